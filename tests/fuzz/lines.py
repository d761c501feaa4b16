r"""The broker's door: any bytes of several clients, cut anywhere.

An input is what clients say, with a few control characters for what happens between:
    \x01 and a character     the next bytes are of another client
    \x02                     what came so far is one piece: the rest comes later
    \x03                     a turn ends, and clients take all they are sent
    \x04 and a character     a turn ends, and clients take so many bytes
    \x05                     the client goes, and comes again
    \x06 and a character     so many seconds pass
What must hold: nothing fails inside the broker; all that has to be answered is; how the bytes are cut does not matter;
a queue that wants everything gets every message, as JSON; and when all have gone no memory is held.
"""

import json
from collections import Counter
from collections.abc import Iterator

from mqks.broker import Broker
from mqks.broker.connections.client import Client
from mqks.broker.errors import BadRequest, Fault
from mqks.broker.queues.queue import Bounds
from mqks.journal.disk import Disk
from mqks.names import is_name

BEGIN = 1_700_000_000.0  # seconds since 1970
MAX_LINE = 200
HIGH_WATER = 2000
CLIENTS = 3
DEDUP_WINDOW = 5.0
FORGOTTEN = 100.0  # seconds after which nothing is remembered
# What is answered, once at least, whatever follows: by an error, if it is not done.
ANSWERED = {b"ping", b"_ping", b"stats", b"_eval", b"send", b"recv", b"delete_receiver"}
TELLS_OF_MEMORY = (b"stats", b"_eval")  # which depends on how bytes were cut


class StrictBroker(Broker):
    """One that does not go on after a fault of its own."""

    def __init__(self, max_line: int = MAX_LINE, now: float = BEGIN, disk: Disk | None = None) -> None:
        self.now = now
        super().__init__(
            max_line=max_line,
            high_water=HIGH_WATER,
            clock=lambda: self.now,
            wall=lambda: self.now,
            seed=1,
            dedup_window=DEDUP_WINDOW,
            dedup_count=16,
            dedup_part_bits=1,
            disk=disk,
        )
        self._tell = self.requests._fail
        self.requests._fail = self._fail  # type: ignore[method-assign]

    def _fail(self, client: Client, request_id: bytes, line: bytes, bad: BadRequest) -> None:
        if isinstance(bad, Fault):
            raise bad
        self._tell(client, request_id, line, bad)


def pieces(data: bytes) -> Iterator[tuple[bytes, int]]:
    """What is said or happens: the text with 0, or the control character with its number."""
    at = begun = 0
    while at < len(data):
        if not 1 <= data[at] <= 6:
            at += 1
            continue
        if begun < at:
            yield data[begun:at], 0
        takes = data[at] in b"\x01\x04\x06"
        yield data[at : at + 1], data[at + 1] if takes and at + 1 < len(data) else 0
        at += 1 + takes
        begun = at
    if begun < at:
        yield data[begun:], 0


def without_cuts(steps: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
    """The same things said in the same turns, but each as one piece."""
    joined: list[tuple[bytes, int]] = []
    for text, number in steps:
        if text == b"\x02":
            continue
        if joined and text > b"\x06" and joined[-1][0] > b"\x06":
            text = joined.pop()[0] + text
        joined.append((text, number))
    return joined


class Talk:
    def __init__(self, broker: StrictBroker | None = None) -> None:
        self.broker = broker or StrictBroker()
        self.base = self._at_rest()
        self.witness = self.connect()
        self.say(self.witness, b'w recv {"pattern": {}, "queue": "witness", "manual_ack": true}\n')
        self.broker.sent(self.witness, self.witness.pending_size)
        self.all = self.broker.queues.by_name[b"witness"]
        self.pattern = self.all.pattern
        self.published = self.broker.core.router.published
        self.clients = [self.connect() for _ in range(CLIENTS)]
        self.said = [bytearray() for _ in range(CLIENTS)]
        self.heard = [bytearray() for _ in range(CLIENTS)]
        self.current = 0

    def connect(self) -> Client:
        return self.broker.connect("127.0.0.1:5000")

    def say(self, client: Client, data: bytes) -> None:
        self.broker.feed(client, data)

    def _at_rest(self) -> int:
        """What is used when all has been there once and is gone."""
        client = self.connect()
        self.say(client, b"c consume q e\nm publish e d\nm publish --once e d\nd delete_queue q\n")
        self.broker.turn()
        self.broker.sent(client, client.pending_size)
        self.broker.disconnect(client)
        return self.rest()

    def rest(self) -> int:
        self.pass_time(FORGOTTEN)
        self.broker.turn()
        return self.broker.core.account.used

    def pass_time(self, seconds: float) -> None:
        self.broker.now += seconds
        self.broker.tick()

    def do(self, steps: list[tuple[bytes, int]]) -> None:
        for text, number in steps:
            match text:
                case b"\x01":
                    self.current = number % CLIENTS
                case b"\x02":
                    pass
                case b"\x03":
                    self.turn(1 << 30)
                case b"\x04":
                    self.turn(number)
                case b"\x05":
                    self.go(self.current)
                case b"\x06":
                    self.pass_time(number)
                case _:
                    self.said[self.current] += text
                    self.say(self.clients[self.current], text)

    def go(self, index: int) -> None:
        self.broker.disconnect(self.clients[index])
        self.clients[index] = self.connect()
        self.said[index].clear()
        self.heard[index].clear()

    def turn(self, most: int) -> None:
        self.broker.turn()
        for client, heard in zip(self.clients, self.heard, strict=True):
            text = client.pending()[:most]
            heard += text
            self.broker.sent(client, len(text))

    def finish(self) -> None:
        """Every client asks a last thing, and takes all until it is answered."""
        for index, client in enumerate(self.clients):
            self.said[index] += b"\nlast ping thing\n"
            self.say(client, b"\nlast ping thing\n")
        while True:
            before = sum(map(len, self.heard))
            self.turn(1 << 30)
            if sum(map(len, self.heard)) == before:
                break
        for said, heard in zip(self.said, self.heard, strict=True):
            check_answers(bytes(said), bytes(heard))

    def check_witness(self) -> None:
        """Unless somebody knew its queue by name."""
        if self.all.gone or self.all.events or self.all.pattern is not self.pattern or len(self.all.consumers) > 1:
            return
        if self.all.bounds != Bounds():
            return
        heard = self.drain_witness()
        assert len(heard) == self.broker.core.router.published - self.published, (
            "a message did not reach the queue that wants all"
        )
        for line in heard:
            _, _, _, text = line.split(b" ", 3)
            json.loads(text, parse_constant=no_constant)

    def drain_witness(self) -> list[bytes]:
        heard = bytearray()
        self.broker.turn()
        while text := self.witness.pending():
            heard += text
            self.broker.sent(self.witness, len(text))
            self.broker.turn()
        return [line for line in bytes(heard).split(b"\n")[:-1] if not line.startswith(b'w ok {"update"')]

    def leave(self) -> None:
        for client in [*self.clients, self.witness]:
            self.broker.disconnect(client)
        for queue in list(self.broker.queues.by_name.values()):
            self.broker.queues.delete(queue)
        assert self.rest() == self.base, "memory is held for nobody"


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def check_answers(said: bytes, heard: bytes) -> None:
    assert heard.endswith(b"\n")
    due, got = Counter[bytes](), Counter[bytes]()
    for line in said.split(b"\n")[:-1]:
        line = line.removesuffix(b"\r")
        if line:
            due.update(answered_as(line))
    for answer in heard.split(b"\n")[:-1]:
        name, outcome, *_ = answer.split(b" ")
        assert outcome in (b"ok", b"error"), answer
        got[name] += 1
    assert due <= got, f"not answered: {dict(due - got)}"
    assert b"last ok thing\n" in heard


def answered_as(line: bytes) -> list[bytes]:
    """The id with which this line has to be answered, if it has to be."""
    name, _, rest = line.partition(b" ")
    action, _, data = rest.partition(b" ")
    if len(line) > MAX_LINE or not is_name(name):
        return [name if is_name(name) and len(name) < MAX_LINE else b"-"]
    if b"\t" in line or b"\0" in line or action in ANSWERED or data.startswith(b"--confirm "):
        return [name]
    return []


def lines(data: bytes) -> None:
    steps = list(pieces(data))
    talk = Talk()
    talk.do(steps)
    talk.finish()
    talk.check_witness()
    if not any(word in data for word in TELLS_OF_MEMORY):
        whole = Talk()
        whole.do(without_cuts(steps))
        whole.finish()
        assert whole.heard == talk.heard, "it matters how the bytes are cut"
        whole.leave()
    talk.leave()
