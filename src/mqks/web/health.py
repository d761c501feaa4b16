"""How the broker is, in one sentence; and a line in the log when something begins to be wrong and when that is over.

What is found each second (`detectors`) comes in; what was found before is remembered here, so that each incident is
told once. One that comes and goes is one incident: it is over when it has not been seen for some seconds. If very many
begin at once, it is the log's own limit that makes few lines of them.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mqks.formatting import counted, duration
from mqks.logs import Entry
from mqks.web.detectors import LEVELS, OK, Found, JobSample
from mqks.web.words import shown

log = logging.getLogger(__name__)

CALM = 10.0  # seconds without a sign of it, until an incident is over
TOLD_ONE_BY_ONE = 3  # of one kind, in the sentence
ABOUT_QUEUES = ("no-consumer", "poison", "slow", "behind")

DURABILITY = {
    "memory": "Messages are in memory only.",
    "interval": "The disk is synced from time to time only.",
    "never": "The disk is not synced.",
}

Phrase = dict[str, str]


@dataclass
class Incident:
    found: Found
    began: float
    calm: float | None = None  # since when there was no sign of it


class Incidents:
    """Those that go on, by kind and subject."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], Incident] = {}
        self._calm: set[tuple[str, str]] = set()
        self._begun: list[Incident] = []

    def take(self, before: Iterable[Found], now_found: Iterable[Found], now: float) -> None:
        """What is found now about something, about which that was found the last time."""
        seen = set()
        for found in now_found:
            known = self._open.get(name := (found.kind, found.subject))
            seen.add(name)
            if known is None:
                known = self._open[name] = Incident(found, now)
                self._begun.append(known)
            known.found, known.calm = found, None
            self._calm.discard(name)
        for found in before:
            name = found.kind, found.subject
            if name not in seen and (known := self._open.get(name)) is not None:
                known.calm = now
                self._calm.add(name)

    def tell(self, now: float) -> None:
        """Write to the log what has begun and what is over."""
        ended = []
        for name in list(self._calm):
            incident = self._open[name]
            if incident.calm is not None and now - incident.calm >= CALM:
                ended.append(incident)
                self._calm.discard(name)
                del self._open[name]
        begun, self._begun = self._begun, []
        for incident in begun:
            log.warning(Entry("incident {kind}: {text}", **_fields(incident.found)))
        for incident in ended:
            lasted = duration((incident.calm or now) - incident.began)
            said = "incident {kind} has not been seen for {calm}; it lasted {lasted}: {text}"
            log.info(Entry(said, calm=duration(CALM), lasted=lasted, **_fields(incident.found)))


def _fields(found: Found) -> dict[str, str]:
    named = {"queue": found.queue, "client": found.client}
    return {"kind": found.kind, "text": found.text} | {name: value for name, value in named.items() if value}


def worst(found: Iterable[Found]) -> str:
    return max((one.level for one in found), key=LEVELS.index, default=OK)


def health(found: Sequence[Found], queues: int, jobs: Sequence[JobSample], durability: str) -> dict[str, Any]:
    """The sentence, and its parts with links: how many queues keep up, what is wrong, how the jobs are."""
    phrases = [_queues(found, queues), *_told(found), *_jobs(found, jobs)]
    if durability in DURABILITY:
        phrases.append(_phrase(DURABILITY[durability], "#/journal", OK, "durability"))
    return {
        "level": worst(found),
        "sentence": " ".join(phrase["text"] for phrase in phrases),
        "phrases": phrases,
    }


def _phrase(text: str, link: str, level: str, kind: str) -> Phrase:
    return {"text": text, "link": link, "level": level, "kind": kind}


def _queues(found: Iterable[Found], queues: int) -> Phrase:
    troubled = len({one.link for one in found if one.kind in ABOUT_QUEUES})
    if not queues:
        text = "No queues yet."
    elif troubled:
        text = f"{max(queues - troubled, 0):,} of {counted(queues, 'queue')} keeping up."
    else:
        text = f"All {queues:,} queues keeping up." if queues > 1 else "The only queue is keeping up."
    return _phrase(text, "#/queues", OK, "queues")


def _told(found: Sequence[Found]) -> Iterable[Phrase]:
    """The worst first; of many alike, some and a number."""
    told: Counter[str] = Counter()
    more: dict[str, Found] = {}
    for one in sorted(found, key=lambda one: (-LEVELS.index(one.level), one.kind, -one.weight)):
        told[one.kind] += 1
        if told[one.kind] <= TOLD_ONE_BY_ONE or not one.more:
            yield _phrase(one.text, one.link, one.level, one.kind)
        else:
            more[one.kind] = one
    for kind, one in more.items():
        left = told[kind] - TOLD_ONE_BY_ONE
        yield _phrase(one.more.format(f"{left:,}"), "#/queues" if kind in ABOUT_QUEUES else one.link, one.level, kind)


def _jobs(found: Iterable[Found], jobs: Iterable[JobSample]) -> Iterable[Phrase]:
    """Those that run and are not told of already."""
    stalled = {one.subject for one in found if one.kind == "stalled"}
    for job in jobs:
        if job.state == "running" and job.key not in stalled:
            yield _phrase(f"Spark {shown(job.job)} {_is(job)}.", "#/pipeline", OK, "job")


def _is(job: JobSample) -> str:
    if job.since_start:
        return "has not been heard since the start"
    if job.lag_seconds is None:
        return "runs"
    return "is up to date" if job.lag_seconds < 1 else f"is {duration(job.lag_seconds)} behind"
