"""`python -m benchmarks.pings`: the worst ping of one client while others make the broker work hard.

Each scenario has one connection that pings without a pause. What is shown is its slowest answer between the moment
when the work begins and the moment when a ping finds it done. `--only` takes names or masks; `--connections` and
`--queues` scale the scenarios.
"""

import argparse
import fnmatch
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from benchmarks.contenders.mqks import DEFAULT, Mqks
from benchmarks.server import Server

CONSUMERS = 10_000  # of one connection: the default of --max-consumers
CHECKPOINT_SECONDS = 65.0  # a broker with a journal makes one each minute


class OnDisk(Mqks):
    mode = "--data={folder}/data --fsync=never --no-http"


@dataclass
class Pinger:
    """A thread that pings on a connection of its own."""

    stage: "Stage"
    worst: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._socket = self.stage.connect()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.perf_counter()
            self._socket.sendall(b"p ping\n")
            self._socket.recv(64)
            self.worst = max(self.worst, time.perf_counter() - began)
            time.sleep(0.0005)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()


@dataclass
class Stage:
    server: Server
    connections: int
    queues: int
    sockets: list[socket.socket] = field(default_factory=list)

    def connect(self) -> socket.socket:
        """Without the benchmarks' limit of time: a broker that stands still is what is measured."""
        sock = socket.create_connection(("127.0.0.1", self.server.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def ask(self, sock: socket.socket, lines: bytes, last: bytes = b"z ok \n") -> bytes:
        """Send these lines and a ping; answers the end of what came before the ping's answer."""
        writer = threading.Thread(target=sock.sendall, args=(lines + b"z ping\n",))
        writer.start()
        end = b""
        while not end.endswith(last):
            got = sock.recv(1 << 20)
            if not got:
                raise ConnectionError("the broker closed the connection")
            end = (end + got)[-200:]
        writer.join()
        return end

    def consume(self, flags: bytes, queue: Callable[[int, int], bytes]) -> None:
        """Each connection gets its consumers, of the queues that `queue` names by connection and number."""
        for connection in range(self.connections):
            sock = self.connect()
            self.sockets.append(sock)
            lines = (b"c%d consume %s%s\n" % (at, queue(connection, at), flags) for at in range(CONSUMERS))
            self.ask(sock, b"".join(lines))

    def make_queues(self) -> None:
        sock = self.connect()
        self.sockets.append(sock)
        self.ask(sock, b"".join(b"s subscribe q%d e%d\n" % (at, at % 1000) for at in range(self.queues)))

    def until_left(self, consumers: int) -> None:
        sock = self.connect()
        while True:
            answer = self.ask(sock, b"e _eval state.queues['q'].consumers if 'q' in state.queues else 0\n")
            if int(answer.split(b"\n")[-3].split()[-1]) == consumers:
                return sock.close()
            time.sleep(0.01)


@contextmanager
def measured(stage: Stage, name: str) -> Iterator[None]:
    pinger = Pinger(stage)
    time.sleep(0.2)
    pinger.worst = 0.0
    began = time.perf_counter()
    yield
    took = time.perf_counter() - began
    time.sleep(0.1)
    pinger.close()
    print(f"{name:<44} worst ping {1000 * pinger.worst:8.1f} ms   done in {took:6.2f} s", flush=True)


def shared(_: int, __: int) -> bytes:
    return b"q"


def own(connection: int, at: int) -> bytes:
    return b"q%d.%d" % (connection, at)


def consumers(stage: Stage) -> None:
    stage.consume(b"", shared)
    with measured(stage, "eval: len(state.consumers)"):
        sock = stage.connect()
        stage.ask(sock, b"e _eval len(state.consumers)\n")
        sock.close()
    with measured(stage, "update: --update to all consumers"):
        sock = stage.connect()
        stage.ask(sock, b"r rebind --confirm q e1\n")
        sock.close()
        for each in stage.sockets:
            stage.ask(each, b"")
    with measured(stage, "close: one connection of many"):
        stage.sockets.pop().close()
        stage.until_left(CONSUMERS * (stage.connections - 1))
    with measured(stage, "close: all connections"):
        for each in stage.sockets:
            each.close()
        stage.until_left(0)
    stage.sockets.clear()


def unacked(stage: Stage) -> None:
    """Each of the consumers that go has been given messages."""
    stage.consume(b" --manual-ack", shared)
    sock = stage.connect()
    stage.ask(sock, b"s subscribe q e1\n" + b"m publish e1 data\n" * (10 * CONSUMERS))
    for each in stage.sockets:
        stage.ask(each, b"")
    with measured(stage, "unacked: one connection of many closes"):
        stage.sockets.pop().close()
        stage.until_left(CONSUMERS * (stage.connections - 1))
    sock.close()


def unused(stage: Stage) -> None:
    """As many queues go as consumers, all bound to one event."""
    stage.consume(b" e1 --delete-queue-when-unused", own)
    with measured(stage, "unused: the queues of one connection go"):
        stage.sockets.pop().close()
        sock = stage.connect()
        left = b"%d" % (CONSUMERS * (stage.connections - 1))
        while left not in stage.ask(sock, b"e _eval len(state.queues)\n"):
            time.sleep(0.01)
        sock.close()


def deleted(stage: Stage) -> None:
    stage.consume(b"", shared)
    with measured(stage, "deleted: the queue of all consumers"):
        sock = stage.connect()
        stage.ask(sock, b"d delete_queue --confirm q\n")
        sock.close()
        for each in stage.sockets:
            stage.ask(each, b"")


def stats(stage: Stage) -> None:
    stage.make_queues()
    sock = stage.connect()
    with measured(stage, "stats: with many queues"):
        stage.ask(sock, b"s stats\n")
    with measured(stage, "eval: a sum over many queues"):
        stage.ask(sock, b"e _eval sum(q.ready for q in state.queues.values())\n")
    sock.close()


def checkpoint(stage: Stage) -> None:
    stage.make_queues()
    sock = stage.connect()
    with measured(stage, "checkpoint: of many queues"):
        stage.ask(sock, b"s subscribe q0 e1\n")
        time.sleep(CHECKPOINT_SECONDS)
    sock.close()


SCENARIOS: dict[str, tuple[Callable[[Stage], None], type[Mqks]]] = {
    "consumers": (consumers, Mqks),
    "unacked": (unacked, Mqks),
    "unused": (unused, Mqks),
    "deleted": (deleted, Mqks),
    "stats": (stats, Mqks),
    "checkpoint": (checkpoint, OnDisk),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pings", description="The worst ping under hard work.")
    parser.add_argument("--only", default="*", metavar="SCENARIO", help=f"a name or mask: {', '.join(SCENARIOS)}")
    parser.add_argument("--connections", type=int, default=10, help="with 10,000 consumers each (%(default)s)")
    parser.add_argument("--queues", type=int, default=100_000, help="where queues are many (%(default)s)")
    parser.add_argument("--mqksd", default=DEFAULT, metavar="COMMAND", help="the server")
    options = parser.parse_args()
    for name, (play, contender) in SCENARIOS.items():
        if fnmatch.fnmatch(name, options.only):
            with Server(contender(options.mqksd)) as server, ExitStack() as stack:
                stage = Stage(server, options.connections, options.queues)
                stack.callback(lambda opened=stage.sockets: [sock.close() for sock in opened])  # type: ignore[misc]
                play(stage)


if __name__ == "__main__":
    main()
