"""What goes wrong, as a table: each fault once in an order that the seed decides, and then by its weight.

A fault returns when it is over, and the broker serves again.
"""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from tests.soak.link import Speaker, Stage
from tests.soak.process import MODES, Ground, Process

FULL_FOR = ((0.5, 3.0), (0.5, 3.0), (5.0, 15.0))  # seconds, from and to: in the long ones much waits for the disk
EXCUSED_AFTER = 3.0  # seconds after the disk has room again
FARTHEST = 7200  # seconds that the clock may be beside the truth


@dataclass
class Bad:
    """What faults may lay hands on."""

    stage: Stage
    ground: Ground
    process: Process
    speakers: list[Speaker]  # those who may be disturbed
    rng: random.Random
    modes: tuple[str, ...] = tuple(MODES)
    marks: list[tuple[float, float, str]] = field(default_factory=list)  # when each began and ended
    started: float = field(default_factory=time.monotonic)

    async def happen(self, name: str) -> None:
        began = time.monotonic()
        await FAULTS[name].does(self)
        if not self.process.alive:
            raise RuntimeError(f"the broker has ended by itself: {self.process.end_of_log}")
        self.marks.append((began - self.started, time.monotonic() - self.started, name))

    def some(self, share: float) -> list[Speaker]:
        return [speaker for speaker in self.speakers if speaker.transport and self.rng.random() < share]


async def kill(bad: Bad) -> None:
    await bad.process.kill()
    await bad.process.start(bad.rng.choice(bad.modes))


async def kill_while_it_starts(bad: Bad) -> None:
    await bad.process.kill()
    for _ in range(2):
        starting = asyncio.create_task(bad.process.start(bad.process.mode))
        await asyncio.sleep(bad.rng.uniform(0.05, 0.6))
        starting.cancel()
        await asyncio.wait((starting,))
        await bad.process.kill()
    await bad.process.start(bad.rng.choice(bad.modes))


async def restart(bad: Bad) -> None:
    code = await bad.process.stop()
    if code != 0:
        bad.stage.findings.add("exit", f"life {bad.stage.door.life} ended by SIGTERM with {code}")
    await bad.process.start(bad.rng.choice(bad.modes))


async def stall(bad: Bad) -> None:
    bad.process.signal(signal.SIGSTOP)
    await asyncio.sleep(bad.rng.uniform(0.3, 4.0))
    bad.process.signal(signal.SIGCONT)


async def kill_stalled(bad: Bad) -> None:
    bad.process.signal(signal.SIGSTOP)
    await asyncio.sleep(bad.rng.uniform(0.3, 2.0))
    await kill(bad)


async def hiccups(bad: Bad) -> None:
    for _ in range(20):
        bad.process.signal(signal.SIGSTOP)
        await asyncio.sleep(bad.rng.uniform(0.01, 0.05))
        bad.process.signal(signal.SIGCONT)
        await asyncio.sleep(bad.rng.uniform(0.01, 0.1))


async def full_disk(bad: Bad) -> None:
    bad.stage.excuse = float("inf")
    bad.ground.fill_disk()
    await asyncio.sleep(bad.rng.uniform(*bad.rng.choice(FULL_FOR)))
    bad.ground.free_disk()
    bad.stage.excuse = time.monotonic() + EXCUSED_AFTER
    await asyncio.sleep(EXCUSED_AFTER)


async def clock_jump(bad: Bad) -> None:
    bad.ground.set_clock(bad.rng.choice((0, 1, -1, 60, -60, 1800, -1800, FARTHEST, -FARTHEST)))
    await asyncio.sleep(1.5)  # until it has looked


async def reload(bad: Bad) -> None:
    bad.process.signal(signal.SIGHUP)
    await asyncio.sleep(0.1)


async def clients_stall(bad: Bad) -> None:
    seconds = bad.rng.uniform(0.5, 4.0)
    await asyncio.gather(*(speaker.rest(seconds) for speaker in bad.some(0.5)))


async def clients_drop(bad: Bad) -> None:
    """Many go at once without a word, and come back at once."""
    for speaker in bad.some(0.5):
        speaker.hang_up(at_once=True)
    await asyncio.sleep(0.5)


@dataclass(frozen=True)
class Fault:
    does: Callable[[Bad], Awaitable[None]]
    weight: int
    needs: str = ""  # what of the ground it needs


FAULTS = {
    "kill": Fault(kill, 6),
    "kill while it starts": Fault(kill_while_it_starts, 1),
    "restart": Fault(restart, 2),
    "stall": Fault(stall, 4),
    "kill stalled": Fault(kill_stalled, 1),
    "hiccups": Fault(hiccups, 2),
    "full disk": Fault(full_disk, 3, "has_disk"),
    "clock jump": Fault(clock_jump, 4, "faketime"),
    "reload": Fault(reload, 2),
    "clients stall": Fault(clients_stall, 3),
    "clients drop": Fault(clients_drop, 3),
}


def possible(ground: Ground, wanted: Collection[str]) -> list[str]:
    return [name for name in wanted if not FAULTS[name].needs or getattr(ground, FAULTS[name].needs)]


async def storm(bad: Bad, wanted: Collection[str], seconds: float) -> None:
    """Faults, one after the other, with gaps in which the broker is left alone; each at least once."""
    end = time.monotonic() + seconds
    names = possible(bad.ground, wanted)
    gap = min(6.0, seconds / len(names) / 3)
    due = bad.rng.sample(names, len(names))
    while due or time.monotonic() < end:
        await asyncio.sleep(bad.rng.expovariate(1 / gap))
        await bad.happen(due.pop() if due else bad.rng.choices(names, [FAULTS[name].weight for name in names])[0])
