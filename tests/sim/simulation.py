"""One run: a seed chooses the limits, the clients, every step, every crash and every fault; the oracle watches.

The process dies by `Killed`, wherever in the broker that comes from. What follows a crash is a new broker on what is
left of the disk. At the end all queues are consumed to their ends, the broker is closed and started once more.
"""

import errno
import json
import logging
import random
from collections.abc import Callable
from typing import Any

from mqks.broker import Broker
from mqks.broker.limits import Limits
from mqks.broker.queues.queue import Queue
from mqks.journal import JournalError
from mqks.journal.errors import UnknownVersion
from tests.sim import bounds, salvaging
from tests.sim.clients import QUEUES, TEMPORARY, SimClient
from tests.sim.disk import FakeDisk, Killed
from tests.sim.links import Link, Violation
from tests.sim.network import Network
from tests.sim.oracle import Memory, Oracle
from tests.sim.plan import Plan, Warnings

EPOCH = 1_700_000_000.0
LOCAL = "127.0.0.1:%d"
MOST_STARTS = 10
MOST_ROOM = 10_000  # bytes that a client takes before it reads, or a little more
MOST_ROUNDS = 5000  # to come to rest
FOLDERS = ("journal", "progress", "index")


class Refused(Exception):
    """The broker found that its files are damaged, said so, and went no further. They are."""


class Simulation:
    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.rng = random.Random(seed)
        self.trace = trace
        self.plan = plan = Plan.chosen(self.rng)
        self.high_water = self.rng.choice((150, 600, 4000, 1 << 16))
        self.disk = None if plan.kind == "memory" else FakeDisk(self.rng, plan.capacity)
        self.oracle = Oracle(self.disk, plan.fsync, plan.bounds)
        self.dropped: dict[Queue, int] = {}  # messages, as far as the oracle knows
        self.now = 0.0
        self.connections = 0
        confirming, largest = self.rng.choice((0.2, 0.5, 0.9)), self.rng.choice((30, 200, 3000))
        count = self.rng.randint(2, 4)
        habits = confirming, largest, plan.resends, plan.bounding
        self.clients = [SimClient(b"%d" % n, self.rng, *habits) for n in range(count)]
        self.flipped = False
        self.beyond = -1  # bytes of memory beyond the limit, before the last step
        self.damaged: str | None = None  # what a running broker has found
        self.salvages = False  # the next start is one with --salvage
        self.aside: set[str] = set()  # what lies there since the last salvage
        self.warnings = Warnings()
        self.running = False
        self.steps: list[tuple[float, Callable[[], None]]] = [
            (9, self.act),
            (9, self.feed),
            (9, self.turn),
            (9, self.read),
            (7, self.complete),
            (4, self.poll),
            (1, self.tick),
            (0.8, self.disconnect),
            (0.3, self.purge),
            (0.4 if plan.kind == "faults" else 0, self.fault),
        ]

    # ── a run ──

    def run(self) -> None:
        logger = logging.getLogger("mqks")
        propagates = logger.propagate
        logger.addHandler(self.warnings)
        logger.propagate = False
        try:
            self._run()
        except Refused as refused:
            self.say(f"REFUSED {refused}")
        finally:
            logger.propagate = propagates
            logger.removeHandler(self.warnings)

    def _run(self) -> None:
        self.say(f"plan {self.plan} high_water {self.high_water}")
        self.start(power_loss=False)
        weights = [weight for weight, _ in self.steps]
        choices = [step for _, step in self.steps]
        for number in range(self.plan.steps):
            try:
                if number in self.plan.crashes:
                    self.crash_as(self.plan.crashes[number])
                else:
                    self.rng.choices(choices, weights)[0]()
            except Killed:
                self.crash(power_loss=self.rng.random() < 0.5)
        self.finish()

    def say(self, text: str) -> None:
        if self.trace is not None:
            self.trace(text)

    # ── the process ──

    def start(self, *, power_loss: bool) -> None:
        """A broker comes up on what the disk has; it may be killed on the way, or fail, and is started again."""
        self.broker = self._broker()
        if self.damaged is not None:
            self._salvage(self.damaged)
        proofs = salvaging.Proofs.of(self.disk) if self.disk is not None and self.flipped else None
        for attempt in range(MOST_STARTS) if self.disk is not None else ():
            trouble = self._trouble() if attempt < 3 and self.running else ""
            try:
                self.broker.recover(salvage=self.salvages)
                break
            except (Killed, OSError, JournalError) as error:
                self.say(f"did not start: {error!r}")
                if not trouble:
                    if not self.flipped or not isinstance(error, JournalError):
                        raise Violation(f"refused to start: {error!r}") from error
                    self._salvage(str(error))
                    continue
            again = self.rng.random() < 0.5 and self.plan.kind != "flips"
            power_loss |= again
            self._crash_disk(again)
            self.broker = self._broker()
        if self.disk is not None:
            self._no_trouble(self.disk)
            if proofs is not None:
                proofs.check(self.disk)
        if self.salvages and self.disk is not None:
            self.salvages = False
            self.flipped = self.oracle.weak  # damage to progress stays until there is a checkpoint
            self.warnings.said.clear()
            self.aside = set(self.disk.files("aside"))
        self._check_log()
        self.say(f"started; said: {self.warnings.said}")
        shown = self._stats()
        if self.running:
            self.oracle.restarted(shown, power_loss=power_loss, failing=self._is_failing())
        self.running = True
        self._look_at_lengths()

    def _trouble(self) -> str:
        """What may happen while the broker starts."""
        assert self.disk is not None
        if self.rng.random() < 0.15:
            self.disk.kill_after = self.rng.randrange(12)
            return "kill"
        if self.plan.kind == "faults" and self.rng.random() < 0.2:
            self.fault()
            return "fault"
        return ""

    def _salvage(self, refusal: str) -> None:
        """The broker refuses to start: start it with --salvage, if that is what it advises."""
        assert self.disk is not None
        self.damaged = None
        if self.salvages or salvaging.ADVICE not in refusal:
            raise Refused(refusal)
        damage = salvaging.damage_of(self.disk)
        self.say(f"salvage; damaged: {damage}")
        self._crash_disk(power_loss=False)
        try:
            salvaging.run(self.disk)
        except UnknownVersion as error:  # a bit of the format's number was flipped
            raise Refused(str(error)) from error
        self.salvages = True
        self.oracle.salvaged(damage.messages, strictly=not damage.elsewhere)
        self.broker = self._broker()

    @staticmethod
    def _no_trouble(disk: FakeDisk) -> None:
        disk.kill_after = None
        disk.faults.clear()

    def _broker(self) -> Broker:
        seed = self.rng.getrandbits(32)
        memory = {"high_water": self.high_water, "max_memory": self.plan.max_memory}
        options: dict[str, Any] = {"seed": seed, **memory, "clock": self.clock, "wall": self.wall}
        self.beyond = -1
        options |= {**self.plan.once, "limits": Limits(**self.plan.bounds._asdict())}
        if self.disk is not None:
            options |= {"disk": self.disk, "fsync": self.plan.fsync, **self.plan.limits}
        self.network = Network(self._reading, self._read, self._leaving)
        broker = Broker(**options)
        broker.transport.links = self.network
        return broker

    def clock(self) -> float:
        return self.now

    def wall(self) -> float:
        return EPOCH + self.now

    def crash_as(self, how: str) -> None:
        assert self.disk is not None
        if how == "inside":
            self.disk.kill_after = self.rng.randrange(25)
            self.say(f"will be killed after {self.disk.kill_after} changes")
        elif how == "clean":
            self.stop()
            self.start(power_loss=False)
        else:
            self.crash(power_loss=how == "power", flip=how == "flip")

    def crash(self, *, power_loss: bool, flip: bool = False) -> None:
        assert self.disk is not None
        if self.plan.kind == "flips":
            power_loss = False  # so that whatever is cut was cut because of a flip
        self.say(f"CRASH {'power loss' if power_loss else 'kill'}")
        for client in self.clients:
            client.gone()
        self._crash_disk(power_loss)
        if flip:
            where = self.disk.flip(self.rng.choice((FOLDERS, ("journal",))))
            self.flipped |= bool(where)
            self.say(f"flipped {where}")
        self.start(power_loss=power_loss)

    def _crash_disk(self, power_loss: bool) -> None:
        assert self.disk is not None
        self.disk.crash(power_loss=power_loss)
        self.disk.capacity = 1 << 40
        self.oracle.crashed(power_loss=power_loss)

    def stop(self) -> None:
        """As the server does it when it is told to stop."""
        assert self.disk is not None
        self.say("clean stop")
        for client in self.clients:
            self._disconnect(client)
        self.disk.works_by_itself = True
        self.broker.close()
        self.oracle.closed()
        self._crash_disk(power_loss=self.plan.fsync == "always" and self.rng.random() < 0.5)

    # ── steps ──

    def act(self) -> None:
        client = self.rng.choice(self.clients)
        if client.link is None:
            self._connect(client)
        client.act()

    def feed(self) -> None:
        """Some client sends something; the broker reads it in a turn."""
        talking = [client for client in self.clients if client.outgoing and not self._is_sending(client)]
        if talking:
            self._feed(self.rng.choice(talking))

    def _is_sending(self, client: SimClient) -> bool:
        return client.link is not None and self.network.is_sending(client.link)

    def _feed(self, client: SimClient) -> None:
        pieces = client.next_pieces()
        data = b"".join(piece for piece, _ in pieces)
        link = self._link(client)
        self.say(f"feed {client.name.decode()} {data[:300]!r}")
        link.feed(pieces)
        self.network.put(link, data)

    def turn(self) -> None:
        self.say("turn")
        try:
            self.broker.turn()
        except Killed:
            link = self.network.reading
            if link is not None:
                self.oracle.fed(link, [request for _, request in link.asked], died=True)
            raise
        self._heard()
        self._look_at_lengths()
        self.oracle.turned(complete=self._is_complete())

    # What happens in a turn.

    def _reading(self, link: Link) -> None:
        self._heard()
        self.say(f"{link.client.peer} is read")
        self._look_at_journal()

    def _read(self) -> None:
        self._heard()
        self._look_at_lengths()

    def _leaving(self, link: Link, size: int) -> None:
        self._heard()
        self.say(f"to {link.client.peer} {link.client.pending()[:size][:1000]!r}")
        self.oracle.left(link, size)

    def read(self) -> None:
        """Some client reads some of what it is told, or makes room for more."""
        links = [client.link for client in self.clients if client.link and client.link.room < MOST_ROOM]
        if links:
            link = self.rng.choice(links)
            size = link.client.pending_size or self.rng.choice((100, 1000, MOST_ROOM))
            link.room += size if self.rng.random() < 0.6 else self.rng.randint(1, size)

    def complete(self) -> None:
        """Something in the background ends; the broker hears of it now or later."""
        if self.disk is not None and self.disk.complete(urgent=self.rng.random() < 0.6):
            self.say("a job of the disk is done")
            if self.rng.random() < 0.7:
                self.poll()

    def poll(self) -> None:
        if self.disk is not None:
            self.broker.poll_disk()
            self._heard()

    def tick(self) -> None:
        self._tick(self.rng.choice((0.01, 0.2, 0.2, 1.0, 5.0, 40.0)))
        self.say(f"tick {self.now:.2f}")

    def disconnect(self) -> None:
        client = self.rng.choice(self.clients)
        self._disconnect(client)

    def purge(self) -> None:
        """Somebody who looks after the broker throws away what waits in a queue."""
        name = self.rng.choice(QUEUES)
        queue = self.broker.queues.by_name.get(name)
        if queue is None or name not in self.oracle.truth.queues:  # after damage that was said, they may differ
            return
        self.say(f"purge {name.decode()}")
        least, most = self.oracle.purging(name)
        count = self.broker.queues.purge(queue, queue.ready_count)
        self._heard()
        if not self.oracle.weak and not least <= count <= most:
            raise Violation(f"purged {count} messages of {name!r}, not {least} to {most}")

    def fault(self) -> None:
        assert self.disk is not None
        call = self.rng.choice(("write", "full", "sync", "read", "reserve", "create"))
        self.say(f"the next {call} will fail")
        if call == "full":  # for a while: each try takes one
            for _ in range(self.rng.randint(1, 5)):
                self.disk.fail("write", errno.ENOSPC)
        else:
            self.disk.fail(call, errno.ENOSPC if call in ("reserve", "create") else errno.EIO)

    # ── their parts ──

    def _connect(self, client: SimClient) -> None:
        self.connections += 1
        client.connected(Link(self.broker.connect(LOCAL % self.connections)))
        self.network.connect(self._link(client))
        self.say(f"connect {client.name.decode()}")

    def _disconnect(self, client: SimClient) -> None:
        if client.link is not None:
            self.say(f"disconnect {client.name.decode()}")
            link = client.link
            self.oracle.disconnected(link)
            self.network.disconnect(link)
            self.broker.disconnect(link.client)
            client.gone()
            self._heard()

    def _link(self, client: SimClient) -> Link:
        assert client.link is not None
        return client.link

    def _tick(self, seconds: float) -> None:
        self.now += seconds
        self.oracle.ticked(self.now)
        self.broker.tick()
        self._heard()
        if self._is_complete():
            self.oracle.recorded()

    def _is_complete(self) -> bool:
        return self.broker.persistence.journal is None or not self.broker.persistence.journal.unwritten

    def _is_broken(self) -> bool:
        return self.disk is not None and self.broker.broken is not None

    def _is_failing(self) -> bool:
        return self.broker.persistence.journal is not None and bool(
            self.broker.persistence.journal.broken or self.broker.persistence.journal.full
        )

    def _heard(self) -> None:
        """All that the broker said is looked at; a broken one ends its process."""
        self._check_log()
        if self.disk is not None and not self.oracle.weak:
            self.oracle.holds.check(self.disk, self.now)
        broken = self._is_broken()
        beyond = self.broker.core.account.used - self.plan.max_memory
        memory = Memory(min(self.beyond, beyond), max(self.beyond, beyond))
        for client in self.clients:
            if client.link is not None:
                self.oracle.fed(client.link, client.link.taken(), failing=self._is_failing(), memory=memory)
        self.beyond = beyond
        if broken:
            self.say(f"broken: {self.broker.broken}")
            if self.plan.kind not in ("faults", "flips"):
                raise Violation(f"broken without a fault: {self.broker.broken}")
            if self.flipped and " is damaged at byte " in str(self.broker.broken):
                self.damaged = self.broker.broken
            raise Killed

    def _look_at_journal(self) -> None:
        """How much of it is shown, before another request comes."""
        self.oracle.visible = self.broker.histories.visible

    def _look_at_lengths(self) -> None:
        """Queues with limits: has one dropped messages, and is it as long as it should be?"""
        queues = {} if self.oracle.weak else self.oracle.truth.queues
        for name, queue in self.broker.queues.by_name.items():
            count = queue.dropped - self.dropped.get(queue, 0)
            if count and name in queues:
                self.say(f"{name.decode()} has dropped {count}")
                self.oracle.dropped(name, bounds.ready(self.broker, self.disk, queue, queues[name].lost), count)
            if name in queues:
                bounds.check_length(queues[name], queue, has_dropped=count > 0)
        self.dropped = {queue: queue.dropped for queue in self.broker.queues.by_name.values()}

    def _check_log(self) -> None:
        if self.warnings.fault:
            raise Violation(self.warnings.fault)
        if self.disk is None or not self.flipped:
            return
        if self.warnings.said or self.disk.files("aside").keys() - self.aside:
            self.oracle.weak = True  # it was said that something is missing

    def _stats(self) -> dict[str, Any]:
        """The figures, as the broker itself shows them."""
        client = self.broker.connect(LOCAL % 0)
        self.broker.feed(client, b"s stats\n")
        reply = client.pending()
        self.broker.disconnect(client)
        figures: dict[str, Any] = json.loads(reply.split(b" ", 2)[2])
        return figures

    # ── the end ──

    def finish(self) -> None:
        """All that was asked is answered, all queues are drained, and it stays so after a clean stop."""
        for last in (False, True):
            while True:
                try:
                    self._finish(last)
                    break
                except Killed:
                    self.crash(power_loss=self.rng.random() < 0.5)

    def _finish(self, last: bool) -> None:
        if self.disk is not None:
            self._no_trouble(self.disk)
            self.disk.capacity = 1 << 40
        self.say("the end: come to rest")
        self._rest()
        self.oracle.at_rest([client.link for client in self.clients if client.link])
        for client in self.clients:
            self._disconnect(client)
        self.say("the end: drain")
        drainer = SimClient(b"drainer", self.rng, confirming=1.0, largest=1)
        self.clients.append(drainer)
        self._connect(drainer)
        for queue in sorted({*QUEUES, *TEMPORARY} & self.oracle.truth.queues.keys()):
            drainer.drain(queue)
        self.feed_all(drainer)
        before = self.oracle.deliveries
        self._rest()
        self.oracle.drained(self._stats()["queues"])
        self.poll()
        if self.disk is not None and self.disk.forgotten():
            raise Violation(f"files that were removed are still open: {self.disk.forgotten()}")
        if last and not self.oracle.weak and self.oracle.deliveries != before:
            raise Violation("after a drain and a clean stop there were messages left")
        self.clients.remove(drainer)
        self._disconnect(drainer)
        if self.disk is not None and not last:
            self.stop()
            self.start(power_loss=False)

    def feed_all(self, client: SimClient) -> None:
        while client.outgoing:
            self._feed(client)
            self.turn()

    def _rest(self) -> None:
        """Everybody reads, the disk works, time passes, until nothing happens any more."""
        quiet = 0
        for _ in range(MOST_ROUNDS):
            moved = False
            while self.disk is not None and (self.disk.complete(urgent=True) or self.disk.complete(urgent=False)):
                moved = True
            self.poll()
            for client in self.clients:
                if client.link is not None:
                    moved = moved or client.link.client.pending_size > 0 or self._is_sending(client)
                    client.link.room = max(client.link.room, 1 << 30)
            self.turn()
            self._tick(0.2)
            quiet = 0 if moved or self._is_failing() else quiet + 1  # a full disk is looked at again after a while
            if quiet == 3:
                return
        raise Violation("it does not come to rest")
