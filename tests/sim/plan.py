"""What a seed chooses before the first step, and the ear for what the broker logs meanwhile."""

import logging
import random
from dataclasses import dataclass

from mqks.journal import progress, segments
from tests.sim.truth import Bounds


@dataclass
class Plan:
    """What a seed chooses before the first step."""

    kind: str  # plain, faults, flips or memory
    fsync: str
    steps: int
    crashes: dict[int, str]  # step → how
    limits: dict[str, int]
    capacity: int
    once: dict[str, float]  # limits of what --once remembers
    resends: bool  # clients publish --once again: then nothing may be forgotten
    bounding: float  # how often a request that may do so limits its queue
    bounds: Bounds  # the broker's own
    max_memory: int

    @classmethod
    def chosen(cls, rng: random.Random) -> "Plan":
        kind = rng.choices(("plain", "faults", "flips", "memory"), (12, 4, 3, 1))[0]
        steps = rng.randint(200, 400)
        ways = {
            "plain": ("kill", "power", "power", "inside", "inside", "clean"),
            "faults": ("kill", "power", "inside"),
            "flips": ("flip", "flip", "kill"),
            "memory": (),
        }[kind]
        crashes = {rng.randrange(20, steps): rng.choice(ways) for _ in range(rng.randint(1, 4))} if ways else {}
        limits = {
            "segment_size": rng.choice((700, 2000, 8000, 1 << 16)),
            "tail_memory": rng.choice((0, 1000, 8000, 1 << 20)),
            "checkpoint_bytes": rng.choice((500, 3000, 20_000, 1 << 20)),
            "retain_bytes": rng.choice((0, 1000, 5000)),
            "retain_age": rng.choice((30, 600_000)),
            "spill_after": rng.choice((2, 4, 16, 1024)),
        }
        fsync = rng.choices(("always", "interval", "never"), (8, 1, 1))[0]
        # So small that it is full some time: what the broker reserves ahead, and a bit.
        small = rng.choice((1, 2)) * 4 * segments.AHEAD + rng.choice((1, 2)) * 4 * progress.AHEAD
        small += rng.choice((500, 3000, 20_000, 60_000))
        capacity = small if kind == "faults" and rng.random() < 0.5 else 1 << 40
        resends = rng.random() < 0.8
        once: dict[str, float] = {"dedup_part_bits": rng.choice((1, 2, 11)), "dedup_window": 1e9}
        if not resends:
            once |= {"dedup_window": rng.choice((3, 60, 1e9)), "dedup_count": rng.choice((1, 4, 20))}
        bounding = rng.choice((0.0, 0.0, 0.2, 0.6))
        bounds = Bounds(overflow="reject")
        if bounding and rng.random() < 0.4:
            sizes = rng.choice((0, 10)), rng.choice((0, 2000))
            bounds = Bounds(*sizes, rng.choice(("reject", "drop-oldest")))
        # An empty broker has a block of 256 KiB for its log. So small a memory is full now and then.
        max_memory = rng.choice((1 << 30, 1 << 30, 300_000, 560_000, 820_000))
        return cls(kind, fsync, steps, crashes, limits, capacity, once, resends, bounding, bounds, max_memory)


class Warnings(logging.Handler):
    """What the broker says at warning or above, refused requests aside."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self.fault: str | None = None  # of the broker itself

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            self.fault = f"{text}: {record.exc_info[1]!r}"
        if not text.startswith("error "):
            self.said.append(text)
