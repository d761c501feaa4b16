"""One data folder and what its broker had promised: start a broker on it, and decide every promise."""

import pickle  # nosec B403  # the file is the tool's own
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from verification import checks, oplog
from verification.checks import NOTHING, Allowed
from verification.facts import Facts
from verification.process import Broker, Gone, Stuck

SMALL = ("--segment-size=1M", "--retain-bytes=4M")  # checkpoints and retention come soon
FILE = "case.pickle"


@dataclass
class Case:
    name: str
    facts: Facts
    flags: tuple[str, ...] = ()
    allowed: Allowed = NOTHING
    prefix: str = "look"  # of what the checker itself publishes
    trace: list[str] = field(default_factory=list)  # calls that matter for the first violation

    @property
    def whole_history(self) -> bool:
        """Has retention left all there is?"""
        return SMALL[1] not in self.flags

    def check(self, folder: Path, keep: Path, ops: Callable[[], list[oplog.Op]] = list) -> list[str]:
        """Answers the violations. A folder that fails is kept, with what `replay` needs."""
        before = keep / "data"
        shutil.copytree(folder, before)
        broker = Broker(folder, *self.flags)
        try:
            found = self.look(broker) if broker.wait_until_ready() else [f"it refuses to start:\n{broker.text}"]
        except Stuck as error:
            found = [f"{error}\n{broker.text}"]
        finally:
            broker.kill()
        if not found:
            shutil.rmtree(keep)
            return []
        messages = [word for word in found[0].replace(",", "").split(" ") if word in self.facts.publishes]
        self.trace = oplog.trace(ops(), messages[0]) if messages else []
        (keep / FILE).write_bytes(pickle.dumps(self))
        return [f"{self.name}: {one}" for one in found] + self.trace + [f"replay: python -m verification replay {keep}"]

    def look(self, broker: Broker) -> list[str]:
        """The violations that a running broker shows."""
        once = [
            message
            for message, publish in self.facts.publishes.items()
            if publish.once and not publish.refused and message not in self.allowed.messages
        ]
        try:
            seen = checks.look(broker, self.prefix, once)
        except (AssertionError, Gone, ConnectionError, Stuck) as error:
            return [f"{error!r}\n{broker.text}"]
        for message, _ in seen.history:
            if message in self.facts.publishes:
                self.facts.publishes[message].confirmed = True
        return checks.violations(self.facts, seen, self.allowed, whole_history=self.whole_history)


def replay(folder: Path, scratch: Path) -> list[str]:
    """Check a kept folder again."""
    case: Case = pickle.loads((folder / FILE).read_bytes())  # nosec B301
    shutil.copytree(folder / "data", scratch / "data")
    return case.check(scratch / "data", scratch / "again") + case.trace
