"""The core: the parts that messages pass through, and what each of them needs.

It does no I/O and knows no policy. Bytes come in by `Parser.feed` and leave by `Connection.pending` and `Delivery.sent`; whoever has the
sockets moves them. Each part is in a file of its own, owns its state, and knows only those that it is made with:
    Account, Work (account.pyx)     memory that is taken, and effort
    Tail (tail.pyx)                 the log in memory, with the batches that the journal lacks
    Events (events.pyx)             which queues an event goes to
    Seen (seen.pyx)                 ids of --once
    Ready (ready.pyx)               what is ready in queues, and which of them may have something to deliver
    Progress (progress.pyx)         what became of messages, for the journal
    LineSizes (sizes.pyx)           bytes of queues whose bytes are limited
    Output (output.pyx)             replies and out-buffers
    Confirmations (confirming.pyx)  replies that wait for the disk
    Acks (settling.pyx)             consumers, and what they have not settled
    QueueLimits (bounding.pyx)      queues within their limits
    Router (routing.pyx)            messages to queues
    Persistence (keeping.pyx)       batches and progress, as they are written
    DeferredInput (deferred.pyx)    connections whose input waits
    Delivery (delivery.pyx)         messages from queues to consumers
    Snapshots (snapshots.pyx)       queues for a checkpoint, and after a start
    Parser (parsing.pyx)            lines in
What they ask of Python is in callbacks.py: `Handler` is all of it.
"""

cimport cython
from libc.stdint cimport uint64_t

from mqks.core.account cimport Account, Work
from mqks.core.bounding cimport QueueLimits
from mqks.core.confirming cimport Confirmations
from mqks.core.deferred cimport DeferredInput
from mqks.core.delivery cimport Delivery
from mqks.core.events cimport Events
from mqks.core.keeping cimport Persistence
from mqks.core.output cimport Output
from mqks.core.parsing cimport Parser
from mqks.core.parts cimport Connection
from mqks.core.progress cimport Progress
from mqks.core.ready cimport Ready
from mqks.core.routing cimport Router
from mqks.core.seen cimport Seen
from mqks.core.settling cimport Acks
from mqks.core.sizes cimport LineSizes
from mqks.core.snapshots cimport Snapshots
from mqks.core.tail cimport Tail


@cython.final
cdef class Core:
    def __init__(self, handler, *, size_t max_line, size_t max_memory, size_t high_water, uint64_t seed):
        cdef Account account = Account(max_memory)
        cdef Work work = Work()
        cdef Tail log = Tail(account)
        self.account = account
        self.work = work
        self.log = log
        self.events = Events(seed)
        self.seen = Seen(account)
        self.ready = Ready(account, handler)
        self.progress = Progress(account, log)
        self.sizes = LineSizes(work, log, handler)
        self.output = Output(account, work, handler, max_line=max_line, high_water=high_water)
        self.confirmations = Confirmations(account, log, self.output, self.ready)
        self.acks = Acks(account, work, log, self.ready, self.progress, self.sizes, self.output, seed=seed)
        self.limits = QueueLimits(account, log, self.sizes, self.acks, handler, handler)
        self.router = Router(work, log, self.events, self.seen, self.ready, self.limits, handler)
        self.persistence = Persistence(log, self.ready, self.progress, self.confirmations, handler)
        self.deferred = DeferredInput(self.output, self.acks)
        self.delivery = Delivery(
            account, work, log, self.ready, self.progress, self.output, self.acks, self.persistence, self.deferred,
            handler, handler, seed=seed,
        )
        self.snapshots = Snapshots(account, log, self.events, self.seen, self.ready, self.router, handler)
        self.parser = Parser(
            account, work, log, self.events, self.seen, self.output, self.confirmations, self.acks, self.limits, self.router,
            self.deferred, handler,
        )

    def attach(self, Connection c, int fd=-1):
        self.output.attach(c)
        c.fd = fd

    def detach(self, Connection c):
        """The connection is gone: free what it had."""
        self.acks.detach(c)
        self.parser.detach(c)
        self.output.detach(c)
