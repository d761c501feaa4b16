"""The core as a whole: see hub.pyx."""

cimport cython

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
    cdef readonly Account account
    cdef readonly Work work
    cdef readonly Tail log
    cdef readonly Events events
    cdef readonly Seen seen
    cdef readonly Ready ready
    cdef Progress progress
    cdef LineSizes sizes
    cdef readonly Output output
    cdef readonly Confirmations confirmations
    cdef readonly Acks acks
    cdef readonly QueueLimits limits
    cdef readonly Router router
    cdef readonly Persistence persistence
    cdef readonly DeferredInput deferred
    cdef readonly Delivery delivery
    cdef readonly Snapshots snapshots
    cdef readonly Parser parser
