r"""The broker's door where tokens are asked for: any bytes of one who is not known, or who may do little.

An input is what the client says, with \x02 where a piece ends and \x03 where what it said about itself is decided and a
turn ends. The token `limited.S3CRET` is known; its owner may publish `e1` and `a.*`, consume `q1`, and read `e1` again.
Somebody inside publishes `kept` each turn, which `q2` gets. What must hold: nothing is published, bound or consumed
that is not permitted to whom the client is known as; it hears nothing but errors until its token is accepted, then
never that something was done which it may not do, and never what is kept from it; and no log line has the token. There
is no journal, so that `hold` and `--raw` are refused to everybody here: they are in tests/broker/test_permissions.py.
"""

import logging

from mqks.broker.auth.access import Rights
from mqks.broker.auth.authentication import Decided
from tests.broker.fake_sockets import FakeSockets
from tests.fuzz.lines import StrictBroker

SECRET = b"S3CRET"
TOKEN = "limited.S3CRET"
KEPT = b"k3pt-from-you"
FOR_OTHERS = {b"stats", b"_eval", b"hold", b"rebind", b"delete_queue"}  # which LIMITED may do nothing of
LIMITED = Rights("limited", publish=("e1", "a.*"), queues=("q1",), events=("e1",), history=("e1",))


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += self.format(record)


class Door:
    def __init__(self) -> None:
        self.broker = StrictBroker()
        self.inside = self.broker.connect("127.0.0.1:1", inside=True)
        self.broker.feed(self.inside, b"w consume witness e1 e2 a.b secret\nr rebind q2 e1 kept\n")
        self.waiting: list[tuple[str, Decided]] = []
        self.gone = False
        self.heard = bytearray()
        self.broker.authentication.require_tokens(lambda token, _, decided: self.waiting.append((token, decided)))
        self.broker.connections.attach(FakeSockets(hang_up=lambda _: self.hang_up()))
        self.client = self.broker.connect("127.0.0.1:2")

    def hang_up(self) -> None:
        self.gone = True

    def hear(self, piece: bytes) -> None:
        if not self.gone:
            self.broker.feed(self.client, piece)

    def turn(self) -> None:
        waiting, self.waiting = self.waiting, []
        for token, decided in waiting:
            decided(LIMITED if token == TOKEN else b"20260131120000000000aaaa")
        self.broker.feed(self.inside, b"k publish kept %s\n" % KEPT)
        self.broker.turn()
        self.broker.histories.grew()
        while came := self.client.pending():  # a history has more when there is room
            self.heard += came
            self.broker.sent(self.client, len(came))
            self.broker.turn()
        self.check()

    def check(self) -> None:
        known = not self.client.stranger
        events = {line.split(b" ")[3][6:] for line in self.inside.pending().splitlines() if b" event=" in line}
        assert events <= ({b"e1", b"a.b"} if known else set()), events
        consumed = {consumer.queue.name for consumer in (self.client.consumers or {}).values()}  # type: ignore[attr-defined]
        assert consumed <= ({b"q1"} if known else set()), consumed
        assert self.broker.queues.by_name.keys() <= {b"witness", b"q2", *([b"q1"] if known else [])}, (
            self.broker.queues.by_name.keys()
        )
        assert self.broker.queues.by_name[b"q2"].events == {b"e1", b"kept"}
        assert self.broker.queues.by_name[b"q1"].events <= {b"e1"} if b"q1" in self.broker.queues.by_name else True


def strangers(data: bytes) -> None:
    log, logged = logging.getLogger("mqks"), Lines()
    before = log.level
    log.addHandler(logged)
    log.setLevel(logging.DEBUG)
    try:
        door = Door()
        for part in data.split(b"\x03"):
            for piece in filter(None, part.split(b"\x02")):
                door.hear(piece)
            door.turn()
        door.broker.disconnect(door.client)
        door.broker.close()
        check_heard(data, bytes(door.heard))
    finally:
        log.removeHandler(logged)
        log.setLevel(before)
    assert SECRET.decode() not in logged.text or not only_in_auth(data), "the log has a token"


def check_heard(data: bytes, heard: bytes) -> None:
    said = [line.split(b" ") for line in data.translate(None, b"\x02\x03").replace(b"\r", b"").split(b"\n")]
    asked = {words[0] for words in said if len(words) > 1 and words[1] not in FOR_OTHERS}
    met = {words[0] for words in said if words[1:2] == [b"auth"]}
    done = [line.split(b" ", 2) for line in heard.splitlines() if line.split(b" ")[1] != b"error"]
    if done:
        assert done[0][0] in met and done[0][1:] == [b"ok", b""], "a stranger hears more than errors"
    for words in done:
        assert words[0] in asked, f"what it may not do was done: {words}"
    assert KEPT not in heard or KEPT in data, "it hears what is kept from it"


def only_in_auth(data: bytes) -> bool:
    """Does the secret stand where a token stands, and nowhere else?"""
    lines = data.translate(None, b"\x02\x03").split(b"\n")
    return all(line.split(b" ")[1:2] == [b"auth"] for line in lines if SECRET in line)
