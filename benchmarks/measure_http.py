"""What it costs the broker to be watched: the CPU of a broker with HTTP beside that of one without.

Both run at the same time and get the same messages at the same moments, so whatever else the machine does meets both: a
difference of a hundredth could not be seen from one run to the next. The load is steady and small. It comes as from ten
publishers, each message in a send of its own. Who watches has the page open, which is told the state each second, and
scrapes the metrics.
"""

import math
import re
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from types import TracebackType

from benchmarks.behind import Behind
from benchmarks.contenders.base import BenchError, Contender
from benchmarks.contenders.mqks import MqksDurable, MqksWatched
from benchmarks.load import collect, count_bytes, nothing_more
from benchmarks.measure import MICRO, Metrics
from benchmarks.payload import Load, check, delivered_bytes
from benchmarks.server import STALL_SECONDS, Server

RATE = 10_000  # messages a second
PUBLISHERS = 10  # each a thousand a second, at the same moments
SCRAPE = 5.0  # seconds
WARM_UP = 2 * RATE
DASHBOARD = re.compile(rb"dashboard at http://([\d.]+):(\d+)/")


class Pacer(Behind[float]):
    """A process that publishes at the pace, to all servers alike; `with` ends it."""

    name = "publisher"

    def __init__(self, servers: Sequence[Server], load: Load) -> None:
        super().__init__(pace, servers, load)

    def publish(self, first: int, count: int) -> None:
        self.pipe.send((first, count))

    def late(self) -> float:
        """Seconds that it took longer than it should have."""
        return self.answer()


def pace(pipe: Connection, servers: Sequence[Server], load: Load) -> None:
    """The publishers' process. Each server is the first to get a message as often as the others."""
    try:
        publishers = [[server.connect() for _ in range(PUBLISHERS)] for server in servers]
        pipe.send(0.0)
        while True:
            first, count = pipe.recv()
            lines = [load.publish(servers[0].contender, number) for number in range(first, first + count)]
            began = time.monotonic()
            for at in range(0, count, PUBLISHERS):
                time.sleep(max(began + at / RATE - time.monotonic(), 0))
                publishers.append(publishers.pop(0))
                for sockets in publishers:
                    for sock, line in zip(sockets, lines[at : at + PUBLISHERS], strict=False):
                        sock.sendall(line)
            pipe.send(time.monotonic() - began - count / RATE)
    except (OSError, BenchError) as error:
        pipe.send(str(error))


class Watching:
    """Looks at a broker over HTTP, as a page that is open and a Prometheus do."""

    def __init__(self, server: Server) -> None:
        self.address = dashboard(server)
        self.live = socket.create_connection(self.address)
        self.threads = [threading.Thread(target=self.watch), threading.Thread(target=self.scrape)]
        self.stopping = threading.Event()
        self.states = self.pages = 0

    def __enter__(self) -> "Watching":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self.live.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()

    def watch(self) -> None:
        self.live.sendall(b"GET /api/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while chunk := self.live.recv(1 << 20):
            self.states += chunk.count(b"event: state\n")
        self.live.close()

    def scrape(self) -> None:
        while not self.stopping.is_set():
            with closing(HTTPConnection(*self.address)) as connection:
                connection.request("GET", "/metrics")
                answer = connection.getresponse()
                self.pages += answer.status == 200 and b"mqks_queue_ready{" in answer.read()
            self.stopping.wait(SCRAPE)

    def check(self, seconds: float) -> None:
        """It did look, and was told."""
        if self.states < seconds / 2 or self.pages < seconds / SCRAPE / 2:
            raise BenchError(f"in {seconds:.0f} s {self.states} states came, and {self.pages} pages of metrics")


def dashboard(server: Server) -> tuple[str, int]:
    """Where it is served: the log says so some moments after the broker listens."""
    deadline = time.monotonic() + STALL_SECONDS
    while (found := DASHBOARD.search((server.folder / "server.log").read_bytes())) is None:
        if time.monotonic() > deadline:
            raise BenchError("the log does not say where the dashboard is")
        time.sleep(0.01)
    return found[1].decode(), int(found[2])


def http_cost(contender: Contender, load: Load, messages: int) -> Metrics:
    """CPU for each message, at a steady pace, with HTTP and without."""
    assert isinstance(contender, MqksWatched)
    plain = MqksDurable(contender.command_line)
    messages = math.ceil(messages / PUBLISHERS) * PUBLISHERS
    with Server(contender) as watched, Server(plain) as unwatched, Pacer([watched, unwatched], load) as pacer:
        consumers = [
            each.connect(contender.open_consumer(load.layout[0], load.shared)) for each in (watched, unwatched)
        ]
        with Watching(watched) as watching:
            pacer.publish(0, WARM_UP)
            streams = collect(consumers, 2 * delivered_bytes(contender, load, WARM_UP), contender.noise)
            pacer.late()
            for stream in streams:  # of several publishers within a moment, in any order
                check(contender, load, [b"".join(sorted(stream.splitlines(keepends=True)))], WARM_UP)
            before = watched.cpu(), unwatched.cpu()
            pacer.publish(WARM_UP, messages)
            count_bytes(consumers, 2 * delivered_bytes(contender, load, messages), contender.noise)
            late = pacer.late()
            nothing_more(consumers, contender.noise)
            ours, theirs = watched.cpu() - before[0], unwatched.cpu() - before[1]
        if late > messages / RATE / 10:
            raise BenchError(f"the machine is too busy for {RATE} messages a second: it took {late:.1f} s more")
        watching.check(messages / RATE)
        return {
            "cpu_us": ours / messages * MICRO,
            "plain_cpu_us": theirs / messages * MICRO,
            "watched_times": ours / theirs,
        }
