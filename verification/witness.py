"""A client that other clients must not disturb. It pings all the time and publishes confirmed messages.

It is a process of its own, so that what the tool does meanwhile does not slow its pings down.
`python -m verification.witness PORT [CA]` goes on until stdin ends; then it prints a report.
"""

import json
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from verification.process import DEADLINE, Gone, Line, Stuck

QUEUE = EVENT = "witness"
PAUSE = 0.005  # seconds between two pings
PUBLISH = 10  # pings for each message


@dataclass
class Report:
    pings: list[float] = field(default_factory=list)  # seconds, sorted
    accepted: list[str] = field(default_factory=list)  # ids of messages that were confirmed, in order
    problem: str = ""

    def percentile(self, percent: int) -> float:
        return self.pings[(len(self.pings) - 1) * percent // 100] if self.pings else 0.0


class Witness:
    """The process, seen by the tool."""

    def __init__(self, port: int, authority: Path | None) -> None:
        command = [sys.executable, "-m", "verification.witness", str(port), *([str(authority)] if authority else [])]
        root = Path(__file__).parent.parent
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise Stuck("another client is not served before the load")

    def stop(self) -> Report:
        output, _ = self._process.communicate(timeout=2 * DEADLINE)
        return Report(**json.loads(output))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def watch(line: Line, stopped: threading.Event) -> Report:
    report = Report()
    number = 0
    try:
        while not stopped.wait(PAUSE):
            number += 1
            begun = time.perf_counter()
            _ask(line, f"p{number} ping")
            report.pings.append(time.perf_counter() - begun)
            if number % PUBLISH == 1:
                reply = _ask(line, f"w{number} publish --confirm {EVENT} {number}")
                if reply == f"w{number} ok ":
                    report.accepted.append(f"w{number}")
    except (Gone, Stuck) as error:
        report.problem = f"another client is not served any more: {error!r}"
    report.pings.sort()
    return report


def _ask(line: Line, request: str) -> str:
    begin = request.split(" ", 1)[0] + " "
    line.send(request)
    *_, reply = line.until(lambda reply: reply.startswith(begin))
    return reply


def main() -> None:
    port, *authority = sys.argv[1:]
    line = Line(int(port), ssl.create_default_context(cafile=authority[0]) if authority else None)
    _ask(line, f"b rebind --confirm {QUEUE} {EVENT}")
    _ask(line, "c consume --confirm idle")  # who only publishes is slowed down near --max-memory
    print("ready", flush=True)
    stopped = threading.Event()
    result: list[Report] = []
    thread = threading.Thread(target=lambda: result.append(watch(line, stopped)))
    thread.start()
    sys.stdin.read()
    stopped.set()
    thread.join()
    print(json.dumps(asdict(result[0])))


if __name__ == "__main__":
    main()
