"""The last word of each job on Spark, in a small file beside the journal: a job that failed says nothing more, and must
not be forgotten by a start, however much came after it.

Written when a job is new or its state another, each minute, and at the stop. It is never waited for to be on disk: a
killed process loses nothing of it, and a power loss at most this.
"""

import logging
from contextlib import suppress
from typing import Any

from mqks.broker import Broker
from mqks.broker.protocol import jsons
from mqks.web.pipeline import Jobs

log = logging.getLogger(__name__)

FILE, NEW = "web.json", "web.json.new"
LARGEST = 4 << 20  # bytes that are read of it
EVERY = 60.0  # seconds


class LastWords:
    def __init__(self, broker: Broker, jobs: Jobs) -> None:
        self._broker = broker
        self._jobs = jobs
        self._written: list[dict[str, Any]] = []
        self._at = 0.0
        self._failed = False  # then it is tried again with the next minute, not each second

    def read(self) -> None:
        """At the start. What cannot be read is no reason not to."""
        journal = self._broker.persistence.journal
        if journal is None:
            return
        try:
            self._jobs.restore(jsons.loads(journal.disk.read_named(FILE, LARGEST, 0)), self._broker.wall())
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.warning("the last words of the jobs on Spark could not be read: %s", error)
        self._written = self._jobs.words()

    def step(self, now: float) -> None:
        words = self._jobs.words()
        at_once = _states(words) != _states(self._written) and not self._failed
        if at_once or (now - self._at >= EVERY and words != self._written):
            self.write()
            self._at = now

    def write(self) -> None:
        journal = self._broker.persistence.journal
        words = self._jobs.words()
        if journal is None or words == self._written:
            return
        disk = journal.disk
        try:
            with suppress(FileNotFoundError):
                disk.remove(NEW)
            file = disk.open(NEW, create=True)
            try:
                disk.write(file, jsons.dumps(words), 0)
            finally:
                disk.close(file)
            disk.rename(NEW, FILE)
            self._written, self._failed = words, False
        except OSError as error:  # a full disk, most likely, of which the health tells
            self._failed = True
            log.warning("the last words of the jobs on Spark could not be written: %s", error)


def _states(words: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(word["told"]["job"], word["told"]["state"]) for word in words]
