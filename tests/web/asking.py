"""HTTP as tests speak it: by the standard library, with answers taken apart, and streams read event by event."""

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import mqks.testing
from mqks.broker import Broker
from tests.running import PATIENCE


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert self.headers["content-type"] == "application/json", self
        error = self.json["error"]
        assert isinstance(error, str) and error
        return error


def address(broker: mqks.testing.Broker) -> tuple[str, int]:
    url = urlsplit(broker.http_url)
    assert url.hostname and url.port
    return url.hostname, url.port


def ask(broker: mqks.testing.Broker, path: str, method: str = "GET", body: object = None, **headers: str) -> Answer:
    """`body` is sent as JSON, or as it is if it is bytes. Headers are named with _ for -."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        given.setdefault("content-type", "application/json")
    with closing(http.client.HTTPConnection(*address(broker), timeout=PATIENCE)) as connection:
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())


def inner(broker: mqks.testing.Broker) -> Broker:
    """The broker behind the thread; it is only looked at."""
    assert broker._running
    return broker._running.server._broker


class Event(NamedTuple):
    name: str
    data: Any


class Stream:
    """Server-sent events of one response."""

    def __init__(self, response: http.client.HTTPResponse, wire: socket.socket) -> None:
        self.response = response
        self.wire = wire

    def next(self) -> Event | None:
        """The next event; None when the stream has ended. What is no event (comments, retry) is passed over."""
        name = data = ""
        while line := self.response.readline().decode():
            kind, _, value = line.rstrip("\n").partition(": ")
            if kind == "event":
                name = value
            elif kind == "data":
                data = value
            elif not kind and name:
                return Event(name, json.loads(data))
        return None

    def wait_for(self, name: str) -> Any:
        """The data of the next event of this name."""
        while event := self.next():
            if event.name == name:
                return event.data
        raise AssertionError(f"the stream ended without {name}")

    def rest(self) -> list[Event]:
        """All until it ends."""
        return list(iter(self.next, None))


def until(condition: Callable[[], bool], what: str) -> None:
    """Ask again and again: the broker runs in a thread of its own, and tells nobody when something has come true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.001)


@contextmanager
def stream(broker: mqks.testing.Broker, path: str, **headers: str) -> Iterator[Stream]:
    with closing(http.client.HTTPConnection(*address(broker), timeout=PATIENCE)) as connection:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        assert (answer.getheader("content-type") or "").startswith("text/event-stream")
        yield Stream(answer, connection.sock)
