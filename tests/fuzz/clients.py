r"""The client's session: any bytes as what a broker says.

An input is what the peer says, with \x01 where the connection is lost and made again, \x02 where a piece ends, and \x03
where the client's clock ticks. `c`, `r` and `h` at the beginning of a line stand for the ids of a consumer, a receiver
and a history. What must hold: a peer that does not speak as a broker does is found out by `received`, with a
ValueError or OverflowError, and by nothing else; and what the session says then is whole requests, one per line.

If it begins with \x04, the peer is a broker, and the input is what somebody else says to it. Then all that the session
hears is understood: what it asks at the end is answered, and what is published then comes.
"""

import random
from itertools import count
from typing import Any

from mqks.client.session import Session
from mqks.client.wanted import Wanted, WantedConsumer, WantedHistory, WantedReceiver
from mqks.names import is_name
from tests.fuzz.lines import StrictBroker

MAX_LINE = 1 << 14
ROUNDS = 50  # of question and answer, after which it does not end


def nobody(_: object) -> None:
    """Takes what came."""


class Talk:
    def __init__(self) -> None:
        self.session = Session(ids=map("id{}".format, count()).__next__, rng=random.Random(1))
        asked: dict[str, Any] = {"deliver": self.deliver, "ended": nobody}
        self.wanted: dict[bytes, Wanted] = {
            b"c": WantedConsumer("q1", ["e1"], manual_ack=True, **asked),
            b"r": WantedReceiver("q2", {"k": 1}, **asked),
            b"h": WantedHistory("earliest", to=None, events=["e1"], limit=None, follow=True, **asked),
        }
        for wanted in self.wanted.values():
            self.session.want(wanted)
        self.session.publish("e1", "data", done=nobody)
        self.session.ask("stats", nobody)
        self.made()

    def deliver(self, items: list[Any], _: int) -> None:
        for wanted in self.wanted.values():
            self.session.taken(wanted, wanted.waiting)
        for item in items:
            assert isinstance(repr(item), str)

    def made(self) -> None:
        self.session.made()
        self.check_said()

    def lost(self) -> None:
        self.session.lost()
        self.session.write_notes()

    def hear(self, text: bytes) -> None:
        try:
            self.session.received(text)
        except (ValueError, OverflowError):  # it does not speak as a broker does
            self.lost()
            self.made()
        self.check_said()

    def tick(self) -> None:
        if not self.session.tick():
            self.lost()
            self.made()
        self.check_said()

    def check_said(self) -> bytes:
        said = self.session.outgoing()
        if said:
            assert said.endswith(b"\n")
        for line in said.split(b"\n")[:-1]:
            name, _, request = line.partition(b" ")
            assert is_name(name) and request, line
        return said


class Meeting(Talk):
    """The session and a broker, and somebody else there."""

    def __init__(self) -> None:
        self.broker = StrictBroker(max_line=MAX_LINE)
        self.here, self.other = self.broker.connect("127.0.0.1:1"), self.broker.connect("127.0.0.1:2")
        self.came: list[Any] = []
        super().__init__()

    def deliver(self, items: list[Any], size: int) -> None:
        self.came += items
        super().deliver(items, size)

    def made(self) -> None:
        self.session.made()
        self.converse()

    def says(self, text: bytes) -> None:
        self.broker.feed(self.other, text)
        self.converse()
        self.broker.sent(self.other, self.other.pending_size)

    def converse(self) -> None:
        for _ in range(ROUNDS):
            self.broker.feed(self.here, self.check_said())
            self.broker.turn()
            if not (heard := self.here.pending()):
                return
            self.broker.sent(self.here, len(heard))
            self.session.received(heard)
        raise AssertionError("the session and the broker do not come to an end")

    def end(self) -> None:
        answers: list[Any] = []
        self.session.ask("ping thing", answers.append)
        self.session.want(WantedConsumer("the-last", ["the-last"], deliver=self.deliver, ended=nobody))
        self.converse()
        self.says(b"\nlast publish the-last words\n")
        assert answers == ["thing"]
        assert self.came[-1].id == "last" and self.came[-1].data == "words"
        self.broker.disconnect(self.here)
        self.broker.disconnect(self.other)
        self.broker.close()


def meet(data: bytes) -> None:
    meeting = Meeting()
    for piece in data.split(b"\x02"):
        meeting.says(piece)
    meeting.end()


def clients(data: bytes) -> None:
    if data.startswith(b"\x04"):
        meet(data[1:])
        return
    talk = Talk()
    for connection, part in enumerate(data.split(b"\x01")):
        if connection:
            talk.lost()
            talk.made()
        for ticks, said in enumerate(part.split(b"\x03")):
            if ticks:
                talk.tick()
            for piece in with_ids(said, talk.wanted).split(b"\x02"):
                talk.hear(piece)
    talk.lost()


def with_ids(said: bytes, wanted: dict[bytes, Wanted]) -> bytes:
    lines = said.split(b"\n")
    for number, line in enumerate(lines):
        name, space, rest = line.partition(b" ")
        if name in wanted:
            lines[number] = wanted[name].id.encode() + space + rest
    return b"\n".join(lines)
