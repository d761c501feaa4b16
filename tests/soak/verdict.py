"""The rules for memory, open files and counters: what was sampled in, what is broken out. No I/O.

Memory is flat when a line through what it was in the second half of the calm does not climb more than GROWTH over that
time, beside what the broker counts for messages: on a busy machine consumers fall behind, and what waits takes room.
What the broker counts is judged when all have gone: then it counts no more than a new one with the same queues.
What a life needs at its end does not climb from life to life either, which three lives of some length can tell.
A fault that keeps bytes for each message is found when these make up GROWTH: 17 bytes of each in a run of half an hour
at a thousand messages a second. Where too little was sampled for a rule, that is broken too: nothing was proved.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

FEWEST = 6  # samples that a rule needs
GROWTH = 6 << 20  # bytes, over the second half of the calm
LIFE_GROWTH = 1.3  # the last lives against the first ones
LIFE_SECONDS = 5.0  # shorter ones tell nothing
MEMORY_LEFT = 6 << 20  # bytes counted more than by a new broker, of which 4 MiB are buffers kept for who is busy next
FILES_LEFT = 4  # open files more than a new broker has, when everybody has gone
FILES_GROWTH = 6.0  # beside connections, over the second half of the calm


@dataclass(frozen=True)
class Sample:
    at: float
    life: int
    memory: int
    files: int
    connections: int
    figures: Mapping[str, float] = field(default_factory=dict)  # of stats: published, delivered, ready …


def climb(points: Sequence[tuple[float, float]]) -> float:
    """By how much the line of least squares through the points rises from the first to the last."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    return slope * (points[-1][0] - points[0][0])


def second_half(samples: Sequence[Sample], begin: float, end: float) -> list[Sample]:
    return [sample for sample in samples if (begin + end) / 2 <= sample.at <= end]


def sampled(samples: Sequence[Sample]) -> list[str]:
    """Are there so many that a line through them says something?"""
    return [f"{len(samples)} samples in the calm, {FEWEST} are needed"] if len(samples) < FEWEST else []


def memory_in_calm(samples: Sequence[Sample]) -> tuple[float, list[str]]:
    grown = climb([(sample.at, sample.memory - sample.figures["memory"]) for sample in samples])
    broken = f"memory beside messages grew by {grown / 2**20:.1f} MiB in the calm, {GROWTH >> 20} MiB are allowed"
    return grown, [broken] if grown > GROWTH else []


def files_in_calm(samples: Sequence[Sample]) -> list[str]:
    grown = climb([(sample.at, sample.files - sample.connections) for sample in samples])
    return [f"open files beside connections grew by {grown:.1f} in the calm"] if grown > FILES_GROWTH else []


def ends_of_lives(samples: Sequence[Sample]) -> list[float]:
    """The memory that each life of some length needed at its end."""
    ends: list[float] = []
    for life in sorted({sample.life for sample in samples}):
        of_life = [sample for sample in samples if sample.life == life]
        if of_life[-1].at - of_life[0].at >= LIFE_SECONDS:
            ends.append(median(sample.memory for sample in of_life[-3:]))
    return ends


def memory_over_lives(samples: Sequence[Sample]) -> list[str]:
    """The last third of them against the first."""
    ends = ends_of_lives(samples)
    third = len(ends) // 3
    if not third:
        return []
    first, last = median(ends[:third]), median(ends[-third:])
    if last <= first * LIFE_GROWTH + GROWTH:
        return []
    return [
        f"memory at the end of a life grew from {first / 2**20:.1f} to {last / 2**20:.1f} MiB over {len(ends)} lives"
    ]


def files_at_end(base: int, end: int) -> list[str]:
    return [f"{end} open files when all have gone, {base} of a new broker"] if end > base + FILES_LEFT else []


def memory_at_end(base: int, end: int) -> list[str]:
    """By the broker's own count, when everybody has gone and nothing is in queues."""
    broken = f"{end / 2**20:.1f} MiB are counted when all have gone, {base / 2**20:.1f} MiB by a new broker"
    return [broken] if end > base + MEMORY_LEFT else []


@dataclass
class Deeds:
    """What clients did to one queue in one life, as far as they know."""

    confirmed: int = 0  # publishes
    sent: int = 0  # publishes, answered or not
    acked: int = 0  # confirmed
    acks: int = 0  # sent


def counters(queues: Mapping[str, Mapping[str, Any]], deeds: Mapping[str, Deeds]) -> list[str]:
    """The broker's own counters of a life, against what clients know; and after the drain nothing may be left."""
    return list(_counters(queues, deeds))


def _counters(queues: Mapping[str, Mapping[str, Any]], deeds: Mapping[str, Deeds]) -> Iterable[str]:
    for name, known in deeds.items():
        queue = queues.get(name)
        if queue is None:
            yield f"{name} is gone"
            continue
        if left := queue["ready"] + queue["unacked"]:
            yield f"{name} has {left} messages left"
        if not known.confirmed <= queue["published"] <= known.sent:
            yield f"{name} counts {queue['published']} published, of {known.sent} sent and {known.confirmed} confirmed"
        if not known.acked <= queue["acked"] <= known.acks:
            yield f"{name} counts {queue['acked']} acked, of {known.acks} sent and {known.acked} confirmed"
