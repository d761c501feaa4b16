"""Requests over HTTP, from a table, by hand: what a browser, Prometheus and programs ask for."""

import asyncio
import contextlib
import random
import re

from tests.soak.crowd import EVENTS, FIELD, NAMES
from tests.soak.link import HOST, PATIENCE, Stage, within

# What is asked for, and the statuses that are right; 503 is, while the disk is full.
REQUESTS: dict[str, frozenset[int]] = {
    request: frozenset(statuses)
    for request, statuses in {
        "GET /": (200, 303),
        "GET /healthz": (200,),
        "GET /metrics": (200,),
        "GET /openapi.json": (200,),
        "GET /api/state": (200,),
        "GET /api/queues": (200,),
        "GET /api/queues/count-0": (200,),
        "GET /api/queues/{queue}": (200, 404),
        "GET /api/queues/{queue}/messages": (200, 404),
        "POST /api/queues/{queue}/purge": (200, 404),
        "DELETE /api/queues/{queue}": (200, 404),
        "GET /api/consumers": (200,),
        "GET /api/connections": (200,),
        "GET /api/events": (200,),
        "GET /api/journal": (200,),
        "GET /api/pipeline": (200,),
        "GET /api/messages/{number}": (200, 400, 404, 410),
        "GET /api/live": (200,),
        "GET /api/tail?mask=noise.*": (200,),
        "POST /api/publish": (200,),
        "POST /api/nonsense": (404, 405),
    }.items()
}
STATUS = re.compile(rb"HTTP/1\.1 (\d+) ")


class Visitor:
    def __init__(self, stage: Stage, name: str, rng: random.Random) -> None:
        self.stage, self.name, self.rng = stage, name, random.Random(rng.getrandbits(64))

    async def live(self) -> None:
        while not self.stage.over:
            if await within(self.stage.door.open.wait(), 1.0):
                await self._ask(self.rng.choice(list(REQUESTS)))
                await asyncio.sleep(self.rng.expovariate(4))

    async def _ask(self, request: str) -> None:
        door, life = self.stage.door, self.stage.door.life
        fields = {"queue": f"noise-{self.rng.randrange(NAMES)}", "number": str(self.rng.randrange(1 << 24))}
        asked = FIELD.sub(lambda found: fields[found[1]], request)
        answer = b""
        try:
            reader, writer = await asyncio.open_connection(HOST, door.http_port, ssl=door.tls)
            try:
                writer.write(self._text(asked))
                with contextlib.suppress(TimeoutError):
                    answer = await asyncio.wait_for(reader.read(200), PATIENCE)
                    await asyncio.wait_for(reader.read(), 3.0)  # a stream has no end
            finally:  # also of one who is sent away
                writer.close()
        except (OSError, EOFError):
            pass  # the broker has gone meanwhile; if not, there is no status
        status = STATUS.match(answer)
        self.stage.done["HTTP " + request.partition("?")[0]] += 1
        if status is None:
            if self.stage.door.life == life and door.open.is_set():
                self.stage.findings.add("unanswered", f"{self.name}, life {life}: {asked}: {answer!r}")
        elif int(status[1]) == 429 and door.token:
            self.stage.done["HTTP: too many at once who say a token that is not known yet"] += 1
        elif int(status[1]) not in REQUESTS[request]:
            self.stage.error(self.name, asked, answer)

    def _text(self, asked: str) -> bytes:
        token = f"Authorization: Bearer {self.stage.door.token}\r\n" if self.stage.door.token else ""
        body = ""
        if asked.startswith("POST"):
            event = f"noise.{self.rng.randrange(EVENTS)}"
            body = f'{{"event": "{event}", "data": {{"from": "HTTP"}}}}' if "publish" in asked else "{}"
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        return f"{asked} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}{length}\r\n{body}".encode()
