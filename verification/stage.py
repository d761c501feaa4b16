"""What a hostile load works with: a broker, connections to it, and a record of what it accepted and refused."""

import ast
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from verification.process import DEADLINE, Broker, Line, Stuck

BATCH = 32_768  # bytes sent before their replies are read
CONNECTIONS = 4  # that send at the same time
REFUSALS = 100  # that end a flood
FIGURES = ("connections", "memory", "remembered")
ERROR_ID = re.compile(r"\d{20}\w{4}")
DASHBOARD = re.compile(r"dashboard at https?://127\.0\.0\.1:(\d+)/")


class Stage:
    def __init__(self, broker: Broker, rng: random.Random, limit: int, authority: Path | None) -> None:
        self.broker = broker
        self.rng = rng
        self.limit = limit
        self.failures: list[str] = []
        self.created = 0
        self.refused = 0
        self.error_ids: set[str] = set()
        self._sockets: list[socket.socket] = []
        self.authority = authority
        self.tls = ssl.create_default_context(cafile=authority) if authority else None
        self.control = Line(broker.port, self.tls)

    # ---- Connections, which the release closes

    def connect(self) -> Line:
        line = Line(self.broker.port, self.tls)
        self._sockets.append(line.socket)
        return line

    def socket(self, port: int = 0) -> socket.socket:
        """One with a small buffer for what comes: what it does not read stays with the broker."""
        client = socket.socket()
        self._sockets.append(client)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(DEADLINE)
        client.connect(("127.0.0.1", port or self.broker.port))
        return client

    def http_port(self) -> int:
        found = DASHBOARD.search(self.broker.wait_for("dashboard at "))
        if found is None:
            raise Stuck("the broker does not serve HTTP")
        return int(found[1])

    def release(self) -> None:
        """Close all connections of the load."""
        for one in self._sockets:
            one.close()
        self._sockets.clear()

    def close(self) -> None:
        self.release()
        self.control.close()

    # ---- Requests

    def flood(self, requests: Iterable[str]) -> list[str]:
        """Send requests with --confirm until enough are refused. Answers the ids of those that were accepted."""
        lines = [self.connect() for _ in range(CONNECTIONS)]
        for line in lines:
            line.send("idle consume idle")  # who only publishes is slowed down near --max-memory
        accepted: list[str] = []
        batches = batched(requests)
        enough = self.refused + REFUSALS
        while self.refused < enough:
            sent = list(zip(lines, batches, strict=False))
            if not sent:
                break
            for line, batch in sent:
                line.send(*batch)
            for line, batch in sent:
                accepted += self.take_answers(line, batch)
        return accepted

    def ask(self, line: Line, requests: list[str]) -> list[str]:
        line.send(*requests)
        return self.take_answers(line, requests)

    def take_answers(self, line: Line, requests: list[str]) -> list[str]:
        """Wait until each of these is confirmed or refused; answers the ids of those that were accepted."""
        waiting = {request.split(" ", 1)[0] for request in requests}
        accepted = []

        def answered(reply: str) -> bool:
            request, result, data = reply.split(" ", 2)
            if request in waiting and (result == "error" or not data):
                waiting.discard(request)
                if result == "ok":
                    accepted.append(request)
                else:
                    self.refuse(data)
            return not waiting

        for _ in line.until(answered):
            pass
        self.created += len(accepted)
        return accepted

    def refuse(self, error_id: str) -> None:
        self.refused += 1
        self.error_ids.add(error_id)

    def must(self, requests: Iterable[str]) -> None:
        """These must be accepted: they release something, or there is memory for them."""
        created, refused, known = self.created, self.refused, self.error_ids.copy()
        for batch in batched(requests):
            self.ask(self.control, batch)
        if self.refused > refused:
            reasons = [self.broker.wait_for(error_id) for error_id in self.error_ids - known]
            self.failures.append(f"{self.refused - refused} requests are refused that must be accepted: {reasons[:3]}")
        self.created, self.refused, self.error_ids = created, refused, known

    def drain(self, queue: str, expected: list[str]) -> list[str]:
        """Consume a queue to its end: exactly these messages must be there. Answers them in the order of the queue."""
        line = Line(self.broker.port, self.tls)
        line.send(f"c consume {queue}")
        ids = take_messages(line, len(expected))
        line.close()
        published, ready = self.evaluate(f"[state.queues['{queue}'].published, state.queues['{queue}'].ready]")
        if sorted(ids) != sorted(expected) or published != len(expected) or ready:
            lost = sorted(set(expected) - set(ids))
            self.failures.append(
                f"queue {queue}: {len(expected)} messages were confirmed, {published} were put into it, "
                f"{len(ids)} were delivered and {ready} are left; {len(lost)} are lost: {lost[:3]}"
            )
        return ids

    def figures(self) -> dict[str, int]:
        """Small, so that they are answered with full memory too; `stats` may be refused then."""
        fields = ", ".join(f"'{name}': state.{name}" for name in FIGURES)
        found: dict[str, int] = self.evaluate(f"{{{fields}, 'queues': len(state.queues)}}")
        return found

    def evaluate(self, code: str) -> Any:
        self.control.send(f"eval _eval {code}")
        *_, reply = self.control.until(lambda reply: reply.startswith("eval "))
        if not reply.startswith("eval ok "):
            raise AssertionError(f"_eval answers {reply}: {self.broker.wait_for(reply.split(' ')[-1])}")
        return ast.literal_eval(reply.split(" ", 2)[2])

    def unclear_refusals(self, reasons: tuple[str, ...]) -> list[str]:
        """Refusals without an id that the log has with one of these reasons."""
        found = []
        for error_id in sorted(self.error_ids):
            line = self.broker.wait_for(error_id) if ERROR_ID.fullmatch(error_id) else ""
            if not any(reason in line for reason in reasons):
                found.append(f"a refusal that is not clear: {error_id}: {line or 'not in the log'}")
        return found[:3]


def take_messages(line: Line, count: int) -> list[str]:
    """The ids of so many messages for consumer c; fewer if no more come."""
    ids: list[str] = []

    def complete(reply: str) -> bool:
        ids.append(reply.split(" ", 3)[2])
        return len(ids) == count

    with suppress(Stuck):
        for _ in line.until(complete) if count else ():
            pass
    return ids


def batched(requests: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for request in requests:
        batch.append(request)
        size += len(request)
        if size > BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def wait_until(done: Callable[[], object], what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not done():
        if time.monotonic() > end:
            raise Stuck(what)
        time.sleep(0.05)
