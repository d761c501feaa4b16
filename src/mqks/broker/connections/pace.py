"""Clients that are too quick or too slow: `--max-rate`, `--line-timeout`, and replies unread while memory is full.

Who makes more requests than it may is not heard for a while, and not refused: an error would lose publishes that ask
for no confirmation. Who begins a line and does not end it keeps the broker waiting, and is to be cut off. Only what
clients may still say, timers and the log are touched here; nothing of it costs anything as long as no limit is set.
"""

import logging
from collections.abc import Iterable
from functools import partial

from mqks.broker.connections.client import Client
from mqks.broker.limits import Limits
from mqks.broker.timers import Timers
from mqks.core.hub import Core
from mqks.logs import Entry

log = logging.getLogger(__name__)

LEAST_WAIT = 0.2  # seconds: to wake up for each single line would cost more than the line
UNLIMITED = (1 << 63) - 1  # lines
STALLED = 10.0  # seconds without reading after which a client is cut off, while there is no memory for deliveries
CALM = 10.0  # seconds after which it is worth a word again that a client is slowed down


class Pace:
    def __init__(self, limits: Limits, core: Core, timers: Timers) -> None:
        self._limits = limits
        self._core = core
        self._timers = timers
        self._slowed: dict[Client, float] = {}  # when that was last
        self._begun: dict[Client, tuple[int, float]] = {}  # how many lines came before, and since when
        self._unread: dict[Client, tuple[int, float]] = {}  # how many bytes were sent before, and since when

    # ── too quick ──

    def welcome(self, client: Client) -> None:
        """It may send as many lines at once as in a second."""
        if self._limits.max_rate and not client.inside:
            client.budget = self._limits.max_rate

    def spent(self, client: Client) -> None:
        """It has sent all that it might, when it was last looked at: has time brought more?

        The input of a client that has closed its connection is limited by the socket's buffer. If messages return to
        their queues after it, consumers wait for them: it is not slowed down.
        """
        if client.closing:
            client.budget = UNLIMITED
            return
        self._refill(client)
        if client.budget < 0:
            self._tell(client)
            self._core.parser.block(client)
            wait = max(LEAST_WAIT, -client.budget / self._limits.max_rate)
            self._timers.set((client, "pace"), wait, partial(self._go_on, client))

    def forget(self, client: Client) -> None:
        """The client goes."""
        self._slowed.pop(client, None)
        self._begun.pop(client, None)
        self._unread.pop(client, None)
        self._timers.cancel((client, "pace"))

    def _go_on(self, client: Client) -> None:
        self._refill(client)
        self._core.parser.unblock(client)

    def _refill(self, client: Client) -> None:
        most = self._limits.max_rate
        now = self._timers.clock()
        earned = int((now - client.refilled) * most)
        if client.budget + earned >= most:
            client.budget, client.refilled = most, now
        else:
            client.budget += earned
            client.refilled += earned / most  # and not `now`: what is left of a line's time counts next time

    def _tell(self, client: Client) -> None:
        now = self._timers.clock()
        if now - self._slowed.get(client, -CALM) >= CALM:
            reason = self._limits.reached("max_rate", client.peer).reason
            log.warning(Entry("client {client} is slowed down: {reason}", client=client.peer, reason=reason))
        self._slowed[client] = now

    # ── too slow ──

    def overdue(self, clients: Iterable[Client]) -> list[Client]:
        """Those of all clients whose line has not ended in time; to be asked about once a second or so."""
        if not self._limits.line_timeout:
            return []
        now = self._timers.clock()
        begun = {}
        for client in self._core.parser.amid_line(clients):
            before, since = self._begun.get(client, (client.lines, now))
            begun[client] = client.lines, since if before == client.lines else now
        self._begun = begun
        most = self._limits.line_timeout
        return [client for client, (_, since) in begun.items() if now - since >= most and not client.inside]

    def stalled(self, clients: Iterable[Client]) -> list[Client]:
        """Those of all clients that have read nothing of what waits for them for too long, while that takes all memory
        for deliveries: else they would keep it from those who read. To be asked about once a second or so."""
        now = self._timers.clock()
        unread = {}
        for client in clients if self._core.account.used >= self._core.account.ceiling else ():
            if client.pending_size and not client.inside:
                before, since = self._unread.get(client, (client.sent, now))
                unread[client] = client.sent, since if before == client.sent else now
        self._unread = unread
        return [client for client, (_, since) in unread.items() if now - since >= STALLED]
