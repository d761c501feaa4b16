"""Who looks on: one asks for the figures, one follows the history and counts how often each message is in it."""

import asyncio
import json
import random
from collections import deque
from typing import Any

from tests.crash.ledger import Ledger
from tests.soak.link import PATIENCE, Findings, Speaker, Stage, within

HELD = 600  # seconds that a hold lasts
RENEWED = 3.0  # seconds until it is said again


class Watcher(Speaker):
    """Asks one thing at a time; what was not answered when the connection broke is asked again."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        super().__init__(stage, "watcher", rng)
        self._asked: deque[tuple[bytes, asyncio.Future[bytes]]] = deque()
        self._begun = False  # the broker knows who it is; what was asked before that is said then

    def begin(self) -> None:
        self._begun = True
        for request, _ in self._asked:
            self.send(request)

    def ended(self) -> None:
        self._begun = False

    def line(self, line: bytes) -> None:
        if line.startswith(b"watch ok --update "):
            return
        answer = self._asked.popleft()[1] if self._asked else None
        if answer is not None and not answer.done():
            answer.set_result(line.partition(b" ")[2])

    async def ask(self, request: str) -> str:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked.append((b"watch %s\n" % request.encode(), answer))
        if self._begun:
            self.send(self._asked[-1][0])
        return (await answer).decode()

    async def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = json.loads((await self.ask("stats")).removeprefix("ok "))
        return stats

    async def until(self, condition: str, seconds: float = PATIENCE) -> bool:
        """Ask until it is so; in a new life of the broker it is so at once."""
        life = self.stage.door.life

        async def wait() -> None:
            while await self.ask(f"_eval {condition}") != "ok True" and self.stage.door.life == life:
                await asyncio.sleep(0.05)

        return await within(wait(), seconds)


class Follower(Speaker):
    """Reads the history of what is counted from where it was, in each life, and has the broker hold what it has not
    read. A message that is there twice was doubled by the broker, and `--once` promises that it is not."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        super().__init__(stage, "follower", rng)
        self.position = -1  # of the message that came last
        self.times: dict[bytes, bytearray] = {}  # publisher → by number: how often it is there

    def begin(self) -> None:
        where = b"earliest" if self.position < 0 else b"%d" % self.position
        self.send(b"tell history %s --events=count.* --follow\n" % where)

    async def act(self) -> None:
        while True:
            if self.position >= 0:
                self.stage.done["hold"] += 1
                self.send(b"hold hold soak %d --for=%d --confirm\n" % (self.position, HELD))
            await asyncio.sleep(RENEWED)

    def line(self, line: bytes) -> None:
        if line.startswith(b"tell ok ") and not line.startswith(b"tell ok --end"):
            position, msg_id = line.split(b" ", 4)[2:4]
            if int(position) > self.position:
                self.position = int(position)
                name, _, number = msg_id.rpartition(b"-")
                self._count(name, int(number))
        elif line != b"hold ok " and not line.startswith(b"tell ok --end"):
            self.stage.error(self.name, f"history or hold from {self.position}", line)

    def _count(self, publisher: bytes, number: int) -> None:
        times = self.times.setdefault(publisher, bytearray())
        times.extend(bytes(max(number + 1 - len(times), 0)))
        times[number] = min(times[number] + 1, 255)


def compare(times: dict[bytes, bytearray], ledger: Ledger, findings: Findings) -> int:
    """History against the ledger: what is safe is there once, nothing twice; answers how many are there."""
    for publisher, safe in ledger.safe.items():
        there = times.get(publisher, bytearray()).ljust(len(safe), b"\0")
        for number, (is_safe, count) in enumerate(zip(safe, there, strict=False)):
            if is_safe and not count:
                findings.add("not in history", f"{publisher.decode()}-{number}, which was confirmed")
            elif count > 1:
                findings.add("twice in history", f"{publisher.decode()}-{number}: {count} times")
    return sum(len(there) - there.count(0) for there in times.values())
