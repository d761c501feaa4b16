"""Each file in examples/ runs as it is, against a real broker, and says what it should."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import mqks
from mqks.testing import Broker, broker

EXAMPLES = Path(__file__).parents[1] / "examples"
TIMEOUT = 60.0

# What each prints, in order, or in any where several threads print. Ids are left out.
PRINTS: dict[str, list[str] | set[str]] = {
    "hello_world.py": ["hello world"],
    "hello_async.py": ["hello world"],
    "worker_pool.py": {
        "done: resize cat.jpg",
        "done: resize dog.jpg",
        "done: resize bird.jpg",
        "parked: resize not-an-image.txt",
        'to look at: {"job": "resize not-an-image.txt", "error": "not an image"}',
    },
    "sevx_service.py": {"welcome, Bill from signup! retry=0", "welcome, Kate from signup! retry=1"},
    "outbox.py": [
        "rolled back: we have no unicorns",
        '{"id": 1, "item": "book"}',
        '{"id": 2, "item": "lamp"}',
    ],
    "request_handler.py": ['202 {"id": …}'],
}
ID = re.compile(r'"id": "\w+"')  # a new one each time
ON_SPARK = {"spark_day.py"}  # tests/spark/test_example.py


@pytest.fixture
def running() -> Iterator[Broker]:
    with broker() as made:
        yield made


def test_every_example_is_tested_and_in_the_table() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files == PRINTS.keys() | ON_SPARK
    listed = re.findall(r"^\| \[`(\w+\.py)`\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted((name, name) for name in files)


@pytest.mark.parametrize("name", PRINTS)
def test_it_runs_and_runs_again_and_leaves_no_queue_behind(name: str, running: Broker) -> None:
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-W", "error", str(EXAMPLES / name)],
            env={**os.environ, "MQKS_URL": running.url},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        lines, expected = ID.sub('"id": …', ran.stdout).splitlines(), PRINTS[name]
        assert len(lines) == len(expected)
        assert type(expected)(lines) == expected
        with mqks.connect(running.url) as mq:
            assert list(mq.stats()["queues"]) == []


class Server:
    """What a web server does with an ASGI application, for requests that are called instead of sent."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._to_lifespan: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._of_lifespan: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def start(self) -> dict[str, Any]:
        self._lifespan = asyncio.create_task(
            self._app({"type": "lifespan"}, self._to_lifespan.get, self._of_lifespan.put)
        )
        return await self._say("lifespan.startup")

    async def stop(self) -> dict[str, Any]:
        said = await self._say("lifespan.shutdown")
        await self._lifespan
        return said

    async def _say(self, kind: str) -> dict[str, Any]:
        await self._to_lifespan.put({"type": kind})
        return await self._of_lifespan.get()

    async def post(self, *pieces: bytes) -> tuple[int, Any]:
        body: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for number, piece in enumerate(pieces, 1):
            body.put_nowait({"type": "http.request", "body": piece, "more_body": number < len(pieces)})
        sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        await self._app({"type": "http", "method": "POST", "path": "/"}, body.get, sent.put)
        start, end = sent.get_nowait(), sent.get_nowait()
        assert (start["type"], end["type"]) == ("http.response.start", "http.response.body")
        return start["status"], json.loads(end["body"])


@pytest.fixture
def app(running: Broker, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("MQKS_URL", running.url)
    return run_path(str(EXAMPLES / "request_handler.py"))["app"]


def test_the_request_handler(app: Any, running: Broker) -> None:
    async def serve() -> None:
        server = Server(app)
        assert await server.start() == {"type": "lifespan.startup.complete"}
        assert await server.post(b"not", b" JSON") == (400, {"error": "this is not JSON"})
        answers = await asyncio.gather(*(server.post(b'{"n":', b" %d}" % number) for number in range(20)))
        assert {status for status, _ in answers} == {202}
        assert await server.stop() == {"type": "lifespan.shutdown.complete"}
        ids.extend(answer["id"] for _, answer in answers)

    ids: list[str] = []
    with mqks.connect(running.url) as mq, mq.consume("orders", ["order.placed"]) as orders:
        asyncio.run(serve())
        messages = [next(orders) for _ in range(20)]
    assert sorted(message.id for message in messages) == sorted(ids)
    assert sorted(message.json["n"] for message in messages) == list(range(20))


def test_the_request_handler_answers_while_the_broker_is_away(app: Any, running: Broker) -> None:
    async def serve() -> None:
        server = Server(app)
        await server.start()
        running.stop()
        app.patience = 0.05
        status, answer = await server.post(b"{}")
        assert status == 503 and "no answer" in answer["error"]
        running.start()
        app.patience = TIMEOUT
        assert (await server.post(b"{}"))[0] == 202
        await server.stop()

    asyncio.run(serve())


def test_the_request_handler_without_a_broker(app: Any, running: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(mqks.AsyncClient):
        def __init__(self) -> None:
            super().__init__(connect_timeout=0)

    async def start() -> dict[str, Any]:
        return await Server(app).start()

    monkeypatch.setattr(mqks, "AsyncClient", Impatient)
    running.stop()
    answer = asyncio.run(start())
    assert answer["type"] == "lifespan.startup.failed" and "is mqksd running there?" in answer["message"]
