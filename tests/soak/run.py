"""A run from start to verdict: a storm of faults, then calm under the same load, then everything is drained."""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.counted import PUBLISHERS, QUEUES, Consumer, Publisher, all_settled, declaration
from tests.soak.crowd import Member
from tests.soak.fan import Fan
from tests.soak.faults import Bad, storm
from tests.soak.link import PATIENCE, Door, Speaker, Stage
from tests.soak.nuisances import NUISANCES
from tests.soak.process import Ground, Process
from tests.soak.verdict import (
    Sample,
    counters,
    ends_of_lives,
    files_at_end,
    files_in_calm,
    memory_at_end,
    memory_in_calm,
    memory_over_lives,
    sampled,
    second_half,
)
from tests.soak.watching import Follower, Watcher, compare
from tests.soak.web import Visitor

STORM = 0.6  # of the time; the rest is calm
EVERY = 0.5  # seconds between samples
TOLD = 30.0  # seconds between lines of progress
GOING = 20.0  # seconds that the broker has to notice that all have gone
CLOSING = 2.0  # seconds until the files of connections that were forgotten are closed
NOTICED = 130.0  # seconds until the broker's keepalive has noticed who was cut without a word
LEFT = "_eval [[c.address, c.consumers, c.pending] for c in state.clients.values()]"
SUSPICIOUS = ("internal error", "Traceback", "AssertionError", "Exception ignored", "fault in the broker")
SHARES = {"publishers": 0.1, "crowd": 0.65, "nuisances": 0.15, "visitors": 0.02}  # of the connections
FEWEST = {"publishers": 8, "crowd": 10, "nuisances": len(NUISANCES), "visitors": 2}


@dataclass
class Plan:
    minutes: float
    connections: int
    seed: int
    rate: float  # messages in a second that are counted
    modes: tuple[str, ...]
    faults: tuple[str, ...]
    folder: Path  # for what is gone when the run is over
    report: Path


@dataclass
class Outcome:
    plan: Plan
    stage: Stage
    samples: list[Sample] = field(default_factory=list)
    marks: list[tuple[float, float, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    calm: tuple[float, float] = (0.0, 0.0)

    @property
    def clean(self) -> bool:
        return not self.stage.findings.count

    @property
    def verdict(self) -> str:
        if not self.clean:
            return "broken"
        return ", without ".join(["all held", *(what.partition(":")[0] for what in self.left_out)])


class Run:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.rng = plan, random.Random(plan.seed)
        self.stage = Stage(Door())
        self.ground = Ground(plan.folder)
        self.process = Process(self.ground, self.stage.door, plan.report)
        self.outcome = Outcome(plan, self.stage, left_out=self.ground.left_out)
        self.watcher = Watcher(self.stage, self.rng)
        self.follower = Follower(self.stage, self.rng)
        self.publishers: list[Publisher] = []
        self.began = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []

    async def go(self) -> Outcome:
        try:
            await self._go()
        except (RuntimeError, TimeoutError) as error:  # the broker does not start, or answers no more
            self._broken("end", [f"the run was cut short: {error!r}"])
        finally:
            self.stage.over = True
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self.process.alive:
                await self.process.kill()
        return self.outcome

    async def _go(self) -> None:
        await self.process.start(self.plan.modes[0])
        self._live(self.watcher)
        await self._declared()
        bad = Bad(self.stage, self.ground, self.process, self._gather(), self.rng, self.plan.modes)
        bad.started, self.outcome.marks = self.began, bad.marks
        self._tasks += [self._started("the sampler", self._sample()), self._started("progress", self._tell())]
        seconds = self.plan.minutes * 60
        self.stage.cuts_until = time.monotonic() + seconds - NOTICED
        await storm(bad, self.plan.faults, seconds * STORM)
        self.ground.set_clock(0)
        await self.process.kill()
        await self.process.start(self.plan.modes[-1])
        await self._calm(seconds * (1 - STORM))
        await self._drained()
        self._judge(await self._ended())

    # ---- Who is there

    async def _declared(self) -> None:
        """Queues before publishers."""
        for queue in QUEUES:
            self.stage.ledger.declare(queue.name, auto=False, alone=queue.consumers == 1)
            name, _, request = declaration(queue).decode().partition(" ")
            assert await asyncio.wait_for(self.watcher.ask(request), PATIENCE) == "ok ", name
            if queue.sevx:
                await self.watcher.ask('delete_receiver {"receiver_id": "watch"}')

    def _gather(self) -> list[Speaker]:
        """Everybody comes; answers those who may be disturbed."""
        plan, stage, rng = self.plan, self.stage, self.rng
        count = {who: max(int(plan.connections * share), FEWEST[who]) for who, share in SHARES.items()}
        for at in range(count["publishers"]):
            kind, event = PUBLISHERS[at % len(PUBLISHERS)], QUEUES[at // len(PUBLISHERS) % len(QUEUES)].event
            self.publishers.append(kind(stage, f"p{at}", rng, event, plan.rate / count["publishers"]))
        consumers = [
            Consumer(stage, f"{queue.name}.{at}", rng, queue, self.watcher)
            for queue in QUEUES
            for at in range(queue.consumers)
        ]
        crowd = [Member(stage, f"m{at}", rng, 2.0) for at in range(count["crowd"])]
        nuisances = [NUISANCES[at % len(NUISANCES)](stage, f"n{at}", rng) for at in range(count["nuisances"])]
        visitors = [Visitor(stage, f"v{at}", rng) for at in range(count["visitors"])]
        everybody: list[Speaker | Visitor] = [
            self.follower,
            Fan(stage, "fan", rng),
            *self.publishers,
            *consumers,
            *crowd,
            *nuisances,
            *visitors,
        ]
        for one in everybody:
            self._live(one)
        return [*crowd]

    def _live(self, one: Speaker | Visitor) -> None:
        self._tasks.append(self._started(one.name, one.live()))

    def _started(self, name: str, life: Awaitable[None]) -> asyncio.Task[None]:
        async def live() -> None:
            try:
                await life
            except Exception as error:  # one who fails here would be missing unnoticed
                self.stage.findings.add("harness", f"{name}: {error!r}")
                raise

        return asyncio.create_task(live())

    # ---- The parts of a run

    async def _calm(self, seconds: float) -> None:
        """So long, and on a slow machine until there are samples enough to judge."""
        begin = time.monotonic() - self.began
        await asyncio.sleep(seconds)
        while True:
            now = time.monotonic() - self.began
            self.outcome.calm = (begin, now)
            if not sampled(second_half(self.outcome.samples, begin, now)) or now > begin + seconds + PATIENCE:
                return
            await asyncio.sleep(EVERY)

    async def _drained(self) -> None:
        """No more publishes; all that was confirmed is acked; only then everybody goes."""
        self.stage.publishing = False
        if not await all_settled(self.publishers, PATIENCE):
            waiting = [publisher.name for publisher in self.publishers if not publisher.settled]
            self._broken("unanswered", [f"{name} waits for answers at the end" for name in waiting])
        left = " + ".join(f"state.queues[{q.name!r}].ready + state.queues[{q.name!r}].unacked" for q in QUEUES)
        if not await self.watcher.until(f"{left} == 0"):
            self._broken("lost", [f"the counted queues are not empty {PATIENCE} s after the last publish"])
        await self._history_is_read()
        stats = await self.watcher.stats()
        life = self.stage.door.life
        known = {queue.name: self.stage.deeds[life, queue.name] for queue in QUEUES}
        self._broken("counters", counters(stats["queues"], known))
        self.stage.over = True
        for task in self._tasks[1:]:  # the watcher stays
            task.cancel()
        await asyncio.gather(*self._tasks[1:], return_exceptions=True)
        self.stage.over = False

    async def _history_is_read(self) -> None:
        safe = {publisher: [at for at, is_safe in enumerate(all_) if is_safe][-1:] for publisher, all_ in self._safe()}
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and any(
            last and len(self.follower.times.get(publisher, b"")) <= last[0] for publisher, last in safe.items()
        ):
            await asyncio.sleep(0.1)

    def _safe(self) -> list[tuple[bytes, bytearray]]:
        return list(self.stage.ledger.safe.items())

    async def _ended(self) -> list[Path]:
        """All have gone. It ends in order, and starts once more: it had no more files open and no more memory counted
        than then, and what was acked is not back. Answers the logs of all lives."""
        await self._alone()
        await self._emptied()
        open_now = self.process.files()
        files = open_now.total() + 1
        while open_now.total() < files:  # its tables forget a connection before its file is closed
            files = open_now.total()
            await asyncio.sleep(CLOSING)
            open_now = self.process.files()
        left = await self.watcher.ask(LEFT)
        memory = (await self.watcher.stats())["memory"]
        self._stopped(await self.process.stop())
        await self.process.start(self.plan.modes[-1])
        new = await asyncio.wait_for(self.watcher.stats(), PATIENCE)
        queues, base = new["queues"], self.process.memory_and_files()[1]
        self._stopped(await self.process.stop())
        back = [queue.name for queue in QUEUES if queues[queue.name]["ready"]]
        self._broken("duplicated", [f"{name} has messages again after a restart" for name in back])
        self.outcome.figures["open files when all have gone"] = f"{files}, of a new broker {base}"
        counted = f"{memory / 2**20:.2f} MiB, by a new broker {new['memory'] / 2**20:.2f} MiB"
        self.outcome.figures["memory counted when all have gone"] = counted
        self._broken("memory", memory_at_end(new["memory"], memory))
        self._broken("files", [f"{text}: {dict(open_now)}; {left[:500]}" for text in files_at_end(base, files)])
        return sorted(self.plan.report.glob("life-*.log"))

    async def _alone(self) -> None:
        """Nobody but the watcher is left in the broker's tables."""
        if not await self.watcher.until("state.connections == 1", GOING):
            left = await self.watcher.ask(LEFT)
            self._broken("files", [f"the broker knows more than one client {GOING:.0f} s after all have gone: {left}"])

    async def _emptied(self) -> None:
        """The queues that nobody counts go: a new broker would have their messages on disk, and this one in memory."""
        counted = {queue.name for queue in QUEUES}
        for name in (await self.watcher.stats())["queues"].keys() - counted:
            await self.watcher.ask(f"delete_queue --confirm {name}")

    def _stopped(self, code: int | None) -> None:
        self._broken("exit", [f"the last life ended by SIGTERM with {code}"] if code != 0 else [])

    # ---- Samples and verdict

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            with contextlib.suppress(OSError, AssertionError, TimeoutError):
                life = self.stage.door.life
                stats = await asyncio.wait_for(self.watcher.stats(), 5.0)
                memory, files = self.process.memory_and_files()
                self.stage.disk_is(stats["journal"]["full"])
                if self.stage.door.life == life:
                    figures = {name: stats[name] for name in ("published", "delivered", "acked", "errors", "memory")}
                    counted = [stats["queues"].get(queue.name, {}).get("ready", 0) for queue in QUEUES]
                    ready = sum(queue["ready"] for queue in stats["queues"].values())
                    figures |= {"counted": sum(counted), "others": ready - sum(counted)}
                    figures |= {"journal": stats["journal"]["bytes"], "disk": self.ground.used}
                    at = time.monotonic() - self.began
                    self.outcome.samples.append(Sample(at, life, memory, files, stats["connections"], figures))

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TOLD)
            minutes = (time.monotonic() - self.began) / 60
            sent = sum(map(len, self.stage.ledger.safe.values()))
            memory = f"{self.outcome.samples[-1].memory / 2**20:.0f} MiB" if self.outcome.samples else "not sampled"
            print(
                f"soak: {minutes:.1f} of {self.plan.minutes:g} min, life {self.stage.door.life}, {sent:,} sent, "
                f"{memory}, {self.stage.findings.count.total()} broken",
                flush=True,
            )

    def _broken(self, kind: str, texts: list[str]) -> None:
        for text in texts:
            self.stage.findings.add(kind, text)

    def _judge(self, logs: list[Path]) -> None:
        stage, samples, ledger = self.stage, self.outcome.samples, self.stage.ledger
        ledger.close()
        kept = compare(self.follower.times, ledger, stage.findings)
        calm = second_half(samples, *self.outcome.calm)
        grown, broken = memory_in_calm(calm)
        self._broken("memory", sampled(calm) + broken + memory_over_lives(samples))
        self._broken("files", files_in_calm(calm))
        for log in logs:
            for line in log.read_text(errors="replace").splitlines():
                if any(word in line for word in SUSPICIOUS):
                    stage.findings.add("log", f"{log.name}: {line[:300]}")
        sent, safe = sum(map(len, ledger.safe.values())), sum(map(sum, ledger.safe.values()))
        published = calm[-1].figures["published"] - calm[0].figures["published"] if calm else 0
        self.outcome.figures |= {
            "lives of the broker": f"{stage.door.life}, of which {len(ends_of_lives(samples))} tell of memory",
            "counted messages": f"{sent:,} sent, {safe:,} confirmed, {kept:,} in history",
            "deliveries of them": f"{ledger.delivered_count:,}, of which again, as allowed {ledger.again_count:,}",
            "acks of them, confirmed": f"{ledger.acked_count:,}",
            "requests of the others": f"{sum(stage.done.values()):,}",
            "memory beside messages, second half of the calm": (
                f"{grown / 2**20:+.2f} MiB; {calm[-1].memory / 2**20:.1f} MiB in all, after {published:,} messages"
                if calm
                else "not sampled"
            ),
        }
