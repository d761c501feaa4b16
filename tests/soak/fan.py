"""One event that very many queues want."""

import asyncio
import random

from tests.soak.link import PATIENCE, Speaker, Stage, within

MANY = 200  # queues


class Fan(Speaker):
    """Publishes it, and consumes all of these queues: every message comes once from each."""

    def __init__(self, stage: Stage, name: str, rng: random.Random) -> None:
        super().__init__(stage, name, rng)
        self.missing: set[bytes] = set()  # consumers that have not got the last message yet
        self.answered = asyncio.Event()  # the message was refused, or all have it
        self._number = 0
        self._last = b""

    def begin(self) -> None:
        self._last = b""  # what was under way to the connection before this one may come again
        self.send(b"".join(b"c-many-%d consume many-%d many\n" % (at, at) for at in range(MANY)))

    async def act(self) -> None:
        while True:
            await asyncio.sleep(self.rng.expovariate(1.0))
            self.publish()
            if not await within(self.answered.wait(), PATIENCE) and not self.lost.is_set():
                self.stage.findings.add(
                    "lost", f"{self._last!r} has not come from {len(self.missing)} of {MANY} queues"
                )
                return

    def publish(self) -> None:
        self._number += 1
        self._last = b"%s-%d" % (self.name.encode(), self._number)
        self.missing = {b"c-many-%d" % at for at in range(MANY)}
        self.answered.clear()
        self.stage.done["publish, to many queues"] += 1
        self.send(b"%s publish many x\n" % self._last)

    def line(self, line: bytes) -> None:
        request_id, _, rest = line.partition(b" ")
        if rest.startswith(b"error "):
            self.stage.error(self.name, f"{request_id.decode()}: publish or consume, many queues", line)
            if request_id == self._last:
                self.answered.set()
            else:
                self.hang_up()
        elif rest.split(b" ")[1:2] == [self._last]:
            if request_id not in self.missing:
                self.stage.findings.add("duplicated", f"{self._last!r} has come twice from {request_id!r}")
            self.missing.discard(request_id)
            if not self.missing:
                self.answered.set()
