"""The broker without I/O: bytes of clients in, bytes for them out, time as a given clock tells it.

The server and the tests call the same methods: connect, feed, turn, sent, disconnect, tick. The core reads the lines
and does what is hot. It hands every other line to Python (see `core_callbacks`), where an action answers it, or an
error.

The broker is made of parts. Each owns its state and knows the parts that its constructor names.
"""

import logging
import random
import secrets
import time
from collections.abc import Callable
from typing import Any

from mqks.broker.auth.access import EVERYTHING, Rights
from mqks.broker.auth.authentication import Authentication
from mqks.broker.capacity import Capacity
from mqks.broker.connections.client import CONNECTION_COST, Client
from mqks.broker.connections.connections import Connections
from mqks.broker.connections.mistakes import Mistakes
from mqks.broker.connections.pace import Pace
from mqks.broker.core_callbacks import CoreCallbacks
from mqks.broker.limits import Limits
from mqks.broker.listeners import Listeners
from mqks.broker.persistence.definitions import DefinitionLog
from mqks.broker.persistence.history import Histories
from mqks.broker.persistence.once import Dedup, Once
from mqks.broker.persistence.persistence import Persistence
from mqks.broker.persistence.recovery import GoingOn, Recovery
from mqks.broker.queues.consumer_ids import ConsumerIds
from mqks.broker.queues.consumer_manager import ConsumerManager
from mqks.broker.queues.exchange import Exchange
from mqks.broker.queues.queue_limits import QueueLimits
from mqks.broker.queues.queue_manager import QueueManager
from mqks.broker.queues.updates import Updates
from mqks.broker.requests import Requests
from mqks.broker.slices import Slices
from mqks.broker.timers import Timers
from mqks.core.hub import Core
from mqks.core.turn import LocalTransport, Turn
from mqks.dtid import Dtids
from mqks.journal.disk import Disk
from mqks.journal.journal import Options
from mqks.logs import Entry

log = logging.getLogger(__name__)


class Broker:
    def __init__(
        self,
        *,
        max_line: int = 1 << 20,
        max_memory: int = 1 << 30,
        high_water: int = 256 * 1024,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        seed: int | None = None,
        dedup_window: float = 3600.0,
        dedup_count: int = 1_000_000,
        dedup_part_bits: int = 11,
        limits: Limits | None = None,
        disk: Disk | None = None,
        insecure: bool = False,
        **options: Any,
    ) -> None:
        """With a disk, `recover` comes first; the options are those of the journal."""
        rng = random.Random(secrets.randbits(64) if seed is None else seed)  # nosec B311  # ids need not be secret
        core_seed = secrets.randbits(64) if seed is None else seed
        dedup_key = secrets.token_bytes(16) if seed is None else rng.randbytes(16)
        dedup = Dedup(dedup_key, dedup_window, dedup_count, dedup_part_bits)

        self.wall = wall
        self.started = clock()
        self.limits = limits = limits or Limits()
        self.new_dtid = new_dtid = Dtids(wall, rng)
        self.callbacks = callbacks = CoreCallbacks(new_dtid)
        self.core = core = Core(
            callbacks, max_line=max_line, max_memory=max_memory, high_water=high_water, seed=core_seed
        )
        self.timers = timers = Timers(clock, core.account.charge)
        self.slices = slices = Slices(timers)
        self.capacity = capacity = Capacity(core, limits)
        self.listeners = Listeners(core.events)

        self.mistakes = mistakes = Mistakes(timers, new_dtid)
        self.pace = Pace(limits, core, timers)
        self.connections = connections = Connections(core, limits, self.pace, mistakes)

        self.exchange = exchange = Exchange(core)
        self.queue_limits = queue_limits = QueueLimits(core, timers, limits)
        self.definitions = definitions = DefinitionLog(core, new_dtid, capacity)
        consumer_ids = ConsumerIds(capacity.readers)
        self.updates = updates = Updates(core, slices, consumer_ids)
        self.queues = queues = QueueManager(
            core, timers, limits, capacity, exchange, queue_limits, definitions, updates
        )
        self.consumers = ConsumerManager(core, limits, capacity, connections, consumer_ids, queues)

        self.once = once = Once(core.seen, timers, wall, dedup)
        self.persistence = persistence = Persistence(
            core, timers, slices, wall, new_dtid, limits, capacity, connections, definitions, queues, once, disk,
            Options(**options),
        )  # fmt: skip
        self._recovery = recovery = Recovery(core, timers, new_dtid, exchange, queue_limits, queues, once, persistence)
        self.histories = histories = Histories(core, timers, limits, capacity, mistakes, persistence)
        self.authentication = Authentication(core, timers, limits, mistakes, connections, histories, insecure=insecure)
        self.requests = requests = Requests(self)
        self.transport = LocalTransport(core)
        self._turn = Turn(core, self.pump)
        callbacks.attach(requests, self.pace, self.listeners, exchange, queue_limits, updates, persistence, recovery)

    # ── start and stop ──

    def recover(self, *, grace: float = 60.0, salvage: bool = False, going_on: GoingOn | None = None) -> None:
        """Restore queues, holds and remembered ids from disk: see `Recovery.run`."""
        self._recovery.run(grace=grace, salvage=salvage, going_on=going_on)

    @property
    def broken(self) -> str | None:
        """Why the broker has to stop, if it has to."""
        return self.persistence.broken

    def close(self) -> None:
        """Stop in order; all clients are gone."""
        self.slices.finish()
        self.mistakes.tell_rest()
        self.queue_limits.tell_rest()
        self.persistence.close()

    # ── clients ──

    def connect(
        self,
        peer: str,
        fd: int = -1,
        *,
        inside: bool = False,
        rights: Rights = EVERYTHING,
        cost: int = CONNECTION_COST,
    ) -> Client:
        """One who comes by a socket and takes so many bytes of memory, or from inside this process: that one is served
        alike, with these rights, but is in no figures."""
        client = Client(peer, self.timers.clock(), inside=inside, cost=cost)
        self.core.attach(client, fd)
        self.connections.register(client)
        self.authentication.on_connect(client, rights)
        return client

    def feed(self, client: Client, data: bytes) -> None:
        """Bytes as they came, cut anywhere."""
        self.core.parser.feed(client, data)

    def turn(self) -> None:
        """A turn with clients in this process (see `transport`); what was fed before it counts as read."""
        self._turn.run(self.transport)

    def pump(self) -> None:
        """Those who read history and have taken what they were sent get more; what is done in slices goes on."""
        self.histories.pump(self.core.delivery.take_roomy())
        self.slices.turn()

    def sent(self, client: Client, size: int) -> None:
        """So many bytes of what was pending have left."""
        self.core.delivery.sent(client, size)

    def input_ended(self, client: Client) -> None:
        """The client sends no more, and its input was processed: its consumers leave, and its histories end with what
        there is. It may still read replies."""
        self.histories.input_ended(client)
        self.slices.start(self.consumers.leave_all(client, disconnected=False))

    def disconnect(self, client: Client) -> None:
        self.histories.forget(client)
        self.mistakes.forget(client)
        self.authentication.forget(client)
        if client.unfinished:
            said = "the connection of {client} ended in the middle of a line: {bytes} bytes of it are dropped"
            log.info(Entry(said, client=client.peer, bytes=client.unfinished))
        if client.unheard and not client.stranger:
            said = "client {client} went while it was not heard: {bytes} bytes that it had sent are dropped"
            log.warning(Entry(said, client=client.peer, bytes=client.unheard))
        self.core.detach(client)
        self.connections.unregister(client)
        self.slices.start(self.consumers.leave_all(client, disconnected=True))

    def tick(self) -> None:
        """Run the timers that are due."""
        self.timers.run_due()

    def poll_disk(self) -> None:
        """Something may have ended in the background."""
        self.persistence.poll()
