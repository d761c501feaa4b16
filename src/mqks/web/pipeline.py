"""What the jobs on Spark say of themselves: how far they are, and what happened in each minute.

They speak in events of the broker (`mqks.pipeline.progress`, `mqks.stats.minute`), which anyone may publish: so
whatever is not as it should be is passed over, and no more than so much is kept.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import nsmallest
from typing import Any

from mqks.broker.protocol import jsons
from mqks.web.detectors import OK, Found, JobSample
from mqks.web.health import worst
from mqks.web.words import safe, short

PROGRESS, STATS = b"mqks.pipeline.progress", b"mqks.stats.minute"
MOST_JOBS = 100
MOST_MINUTES = 60
MOST_NAMES = 5000  # of one minute
SHOWN = 20  # of each kind
KINDS = ("event", "mask", "queue")
LONGEST = 1000  # characters of a name
LONGEST_SAID = 8192  # bytes of a message; what is longer was not made by a job
MOST_SAID = {PROGRESS: 1000, STATS: 5000}  # messages that wait to be looked at: then the oldest go
EFFORT = 1 << 18  # bytes that are looked at in a second, with TOLL for each message: a few milliseconds
TOLL = 256
FORGOTTEN = 86_400.0  # seconds after which a job that says nothing is not told of any more
AHEAD = timedelta(minutes=2)  # that a clock may be

Data = Mapping[str, Any]


def _text(data: Data, name: str) -> str | None:
    value = data.get(name)
    return safe(value) if isinstance(value, str) and 0 < len(value) <= LONGEST else None


def _number(data: Data, name: str) -> float | None:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 1e18 else None  # which is neither infinite, nor NaN, nor an int of hundreds of digits


class Pipeline:
    def __init__(self, began: float) -> None:
        """`began` is when the broker did, in seconds since 1970, as all times here: before it nobody could speak."""
        self.jobs = Jobs(began)
        self.minutes = Minutes()
        self._said = {event: deque[bytes](maxlen=most) for event, most in MOST_SAID.items()}

    def hear(self, event: bytes, data: bytes) -> None:
        """In the middle of a broker's turn: so it is only noted."""
        if len(data) <= LONGEST_SAID:
            self._said[event].append(data)

    def step(self, now: float) -> None:
        """Look at what was heard, as far as a second allows."""
        left = EFFORT
        for event, said in self._said.items():
            while said and left > 0:
                data = said.popleft()
                left -= TOLL + len(data)
                self.take(event, data, now)

    def take(self, event: bytes, data: bytes, now: float, *, old: bool = False) -> None:
        """Something was said just now; or some time ago, as it tells itself."""
        try:
            told = jsons.loads(data)
        except ValueError:
            return
        if not isinstance(told, dict):
            return
        if event == STATS:
            self.minutes.take(told, now)
        elif event == PROGRESS:
            said = _time(_text(told, "time")) if old else None
            self.jobs.take(told, now if said is None else min(said.timestamp(), now))

    def state(self, now: float, found: Mapping[str, list[Found]]) -> dict[str, Any]:
        """`found` is what is wrong with jobs, by their keys."""
        return {"jobs": self.jobs.rows(now, found), "minute": self.minutes.newest(), "minutes": self.minutes.counts()}


# ── jobs ──


@dataclass
class _Job:
    said: float = 0.0
    moved: float = 0.0  # when it was last seen to get on, or to have nothing to do
    position: float | None = None
    told: dict[str, Any] = field(default_factory=dict)


class Jobs:
    NUMBERS = ("batch", "rows", "rows_per_second", "position", "latest", "lag_positions", "lag_seconds")

    def __init__(self, began: float) -> None:
        self._began = began
        self._jobs: dict[str, _Job] = {}

    def take(self, told: Data, time: float) -> None:
        name, state = _text(told, "job"), _text(told, "state")
        if name is None or state is None or (name not in self._jobs and len(self._jobs) >= MOST_JOBS):
            return
        job = self._jobs.setdefault(name, _Job())
        if time < job.said:
            return
        job.told = {
            "job": name,
            "state": state,
            **{number: _number(told, number) for number in self.NUMBERS},
            "time": _text(told, "time"),
        }
        position = job.told["position"]
        is_first = job.said < self._began  # it may begin where it was
        if is_first or position != job.position or not job.told["lag_positions"] or state != "running":
            job.moved = time
        job.said, job.position = time, position

    def words(self) -> list[dict[str, Any]]:
        """The last one of each, and when it was said: for `restore`."""
        return [{"said": job.said, "told": job.told} for job in self._jobs.values()]

    def restore(self, words: Any, now: float) -> None:
        for word in words if isinstance(words, list) else ():
            if isinstance(word, dict) and isinstance(told := word.get("told"), dict):
                said = _number(word, "said")
                self.take(told, now if said is None else min(said, now))

    def samples(self, now: float) -> list[JobSample]:
        self._jobs = {name: job for name, job in self._jobs.items() if now - job.said < FORGOTTEN}
        return [
            JobSample(
                name,
                job.told["state"],
                silent=max(now - max(job.said, self._began), 0.0),
                stuck=max(now - max(job.moved, self._began), 0.0),
                lag_seconds=job.told["lag_seconds"],
                since_start=job.said < self._began,
            )
            for name, job in sorted(self._jobs.items())
        ]

    def rows(self, now: float, found: Mapping[str, list[Found]]) -> list[dict[str, Any]]:
        rows = []
        for sample in self.samples(now):
            wrong = found.get(sample.key, [])
            job = self._jobs[sample.job]
            rows.append(
                {
                    **job.told,
                    "age": round(max(now - job.said, 0.0), 1),
                    "level": worst(wrong) if wrong else OK,
                    "why": wrong[0].why if wrong else None,
                }
            )
        return rows


# ── minutes ──


Row = dict[str, Any]


class Minutes:
    """Rows come as the minute goes on, each with all that was counted so far; the last word on it is final."""

    def __init__(self) -> None:
        self._counts: dict[datetime, dict[int, int]] = {}  # of events, by the hash of the name: names may be long
        self._rows: dict[datetime, dict[tuple[str, str], Row]] = {}  # of the newest two minutes: one may not be over

    def take(self, told: Data, now: float) -> None:
        kind, name, count = _text(told, "kind"), _text(told, "name"), _number(told, "count")
        minute = _time(_text(told, "minute"))
        if kind not in KINDS or name is None or count is None or minute is None:
            return
        if minute.second or minute.microsecond or minute > datetime.fromtimestamp(now, UTC) + AHEAD:
            return
        counts = self._counts_of(minute)
        if counts is None:
            return
        if kind == "event" and ((hashed := hash(name)) in counts or len(counts) < MOST_NAMES):
            counts[hashed] = max(counts.get(hashed, 0), int(count))  # what is overtaken says less
        rows = self._rows.get(minute)
        if rows is None or ((kind, name) not in rows and len(rows) >= MOST_NAMES):
            return
        known = rows.get((kind, name))
        final = told.get("final") is True or (known is not None and known["final"])
        if known is None or int(count) >= known["count"]:
            known = rows[kind, name] = {
                "kind": kind,
                "name": name,
                "count": int(count),
                "bytes": _number(told, "bytes"),
                "rate": _number(told, "rate"),
            }
        known["final"] = final

    def _counts_of(self, minute: datetime) -> dict[int, int] | None:
        """Of a minute that is new, if it is not older than all that are kept, there is room now."""
        if minute not in self._counts:
            if len(self._counts) >= MOST_MINUTES:
                oldest = min(self._counts)
                if minute < oldest:
                    return None
                del self._counts[oldest]
            self._counts[minute] = {}
            self._rows = {newest: self._rows.get(newest, {}) for newest in sorted(self._counts)[-2:]}
        return self._counts[minute]

    def newest(self) -> dict[str, Any] | None:
        if not self._counts:
            return None
        minute = max(self._counts)
        rows = self._rows[minute].values()
        shown = [
            {name: value for name, value in row.items() if name != "final"} | {"name": short(row["name"])}
            for kind in KINDS
            for row in nsmallest(
                SHOWN, (row for row in rows if row["kind"] == kind), key=lambda row: (-row["count"], row["name"])
            )
        ]
        return {"minute": _told(minute), "final": bool(rows) and all(row["final"] for row in rows), "rows": shown}

    def counts(self) -> list[dict[str, Any]]:
        """Of all events in each minute, oldest first."""
        return [
            {"minute": _told(minute), "count": sum(counts.values())} for minute, counts in sorted(self._counts.items())
        ]


def _time(text: str | None) -> datetime | None:
    """With its zone, or it is none."""
    try:
        time = datetime.fromisoformat(text or "")
        return time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _told(minute: datetime) -> str:
    return minute.strftime("%Y-%m-%dT%H:%M:%SZ")
