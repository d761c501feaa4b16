"""What a broker has promised so far, from the bytes that it received and sent.

`Facts` folds the records of a log (oplog.py) one by one. At any record it knows which publishes are confirmed or
refused, what was delivered, and which acks were asked for and confirmed. Events and queues are those of workload.py.
"""

import copy
from dataclasses import dataclass, field

from verification.oplog import Kind, Op
from verification.workload import QUEUES


@dataclass
class Publish:
    event: str
    text: str
    once: bool
    confirmed: bool = False  # told `ok`, or shown by `history`
    refused: bool = False  # told `error`
    publisher: int = 0  # each connection has a number
    number: int = 0  # in the order of arrival
    asked: int = 1  # times; only --once is asked for again


@dataclass
class QueueFacts:
    may_be_settled: set[str] = field(default_factory=set)  # sent to an auto-ack consumer, or an ack was asked for
    settled: set[str] = field(default_factory=set)  # the ack is confirmed
    touched: set[str] = field(default_factory=set)  # delivered at least once: its place may have changed


class Connection:
    def __init__(self, number: int) -> None:
        self.number = number
        self.received = b""
        self.sent = b""
        self.requests: dict[str, tuple[str, ...]] = {}  # by id: what its `ok` confirms


class Facts:
    def __init__(self) -> None:
        self.publishes: dict[str, Publish] = {}
        self.queues = {name: QueueFacts() for name in QUEUES}
        self.version_asked = 0  # of the queue that is bound again and again
        self.version_confirmed = 0
        self.setup = False  # all queues are confirmed
        self.problems: list[str] = []  # broken promises that are plain to see already
        self._connections: dict[int, Connection] = {}
        self._count = 0  # of connections
        self._newest: dict[tuple[str, int], int] = {}  # by consumer and publisher: the last message without a retry

    def copy(self) -> "Facts":
        """For another life of the broker: no connection outlives it."""
        result = copy.deepcopy(self)
        result._connections.clear()
        result._newest.clear()
        return result

    def apply(self, op: Op) -> None:
        if op.kind is Kind.HANGUP:
            self._connections.pop(op.fd, None)
        elif op.kind in (Kind.RECV, Kind.SEND):
            connection = self._connections.get(op.fd)
            if connection is None:
                self._count += 1
                connection = self._connections[op.fd] = Connection(self._count)
            if op.kind is Kind.RECV:
                *lines, connection.received = (connection.received + op.first).split(b"\n")
                for line in lines:
                    self._requested(connection, line.decode())
            else:
                *lines, connection.sent = (connection.sent + op.first).split(b"\n")
                for line in lines:
                    self._replied(connection, line.decode())

    def _requested(self, connection: Connection, line: str) -> None:
        request, action, rest = (*line.split(" ", 2), "")[:3]
        if action in ("publish", "send"):
            self._published(connection, request, action, rest)
        elif action in ("ack", "reject"):
            consumer, message = rest.removeprefix("--confirm ").split(" ")
            queue = consumer.split("/")[0]
            if action == "ack":
                self.queues[queue].may_be_settled.add(message)
                connection.requests[request] = ("ack", queue, message)
        elif action == "rebind":
            words = rest.removeprefix("--confirm ").split(" ")
            if words[0] == "bound":
                version = int(words[1].removeprefix("version."))
                self.version_asked = max(self.version_asked, version)
                connection.requests[request] = ("bound", str(version))
            elif request == "setup":
                connection.requests[request] = ("setup",)

    def _published(self, connection: Connection, request: str, action: str, rest: str) -> None:
        once = False
        while rest.startswith("--"):
            flag, _, rest = rest.partition(" ")
            once = once or flag.startswith("--once")
        event, text = ("json", rest) if action == "send" else rest.split(" ", 1)
        if request in self.publishes:
            self.publishes[request].asked += 1
            self.publishes[request].refused = False  # this time it may be taken
        else:
            number = len(self.publishes)
            self.publishes[request] = Publish(event, text, once, publisher=connection.number, number=number)
        connection.requests[request] = ("publish", request)

    def _replied(self, connection: Connection, line: str) -> None:
        request, result, rest = (*line.split(" ", 2), "")[:3]
        if "/" in request:
            if result == "ok" and rest and not rest.startswith("--update"):
                message, properties = rest.split(" ")[:2]
                self._delivered(request, message, retried=",retry=" in properties)
            return
        if request.startswith("history"):
            words = rest.split(" ")
            if result == "ok" and words[0].isdigit() and words[1] in self.publishes:
                self.publishes[words[1]].confirmed = True
            return
        what = connection.requests.get(request)
        if what is None:
            return
        if what[0] == "publish":
            publish = self.publishes[what[1]]
            if result == "ok":
                publish.confirmed = True
            elif publish.asked == 1:  # one of several requests with this id may have been taken
                publish.refused = True
        elif result == "ok" and what[0] == "ack":
            self.queues[what[1]].settled.add(what[2])
        elif result == "ok" and what[0] == "bound":
            self.version_confirmed = max(self.version_confirmed, int(what[1]))
        elif result == "ok" and what[0] == "setup":
            self.setup = True

    def _delivered(self, consumer: str, message: str, *, retried: bool) -> None:
        queue, kind, *_ = consumer.split("/")
        facts = self.queues[queue]
        facts.touched.add(message)
        if message in facts.settled:
            self.problems.append(f"{message} was delivered from {queue} after its ack was confirmed")
        if kind == "auto":
            facts.may_be_settled.add(message)
        publish = self.publishes.get(message)
        if publish is None:
            return
        key = consumer, publish.publisher
        if not retried and not publish.once:
            if publish.number <= self._newest.get(key, -1):
                self.problems.append(f"{consumer} got {message} out of order")
            self._newest[key] = publish.number
        if publish.refused:
            self.problems.append(f"{message} was delivered from {queue} though its publish was answered with an error")
