"""The compiled part of the client: ids, lines to publish, and deliveries read from pieces cut anywhere."""

import time
from collections import deque
from datetime import UTC, datetime
from itertools import pairwise, repeat, starmap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqks.client.session import MOST_FORGOTTEN, Session
from mqks.client.wire import Ids, Lines, Message, Reader


def test_ids_grow_whatever_the_clock_does() -> None:
    times = iter([1.0] * 9000 + [0.5] * 9000 + [2.0])
    ids = Ids(lambda: next(times))
    made = [ids() for _ in range(18_001)]
    assert made == sorted(set(made))
    assert all(len(id) == 24 and id.isalnum() for id in made)
    assert made[0].startswith("19700101000001000000")
    assert made[-1].startswith("19700101000002000000")


def test_ids_grow_when_a_microsecond_is_full() -> None:
    ids = Ids(lambda: 1.0)
    first = ids()
    one, last = deque(starmap(ids, repeat((), 62**4)), maxlen=2)
    assert first < one < last
    assert last.startswith("19700101000001000001")


def test_ids_tell_the_time() -> None:
    before = time.time()
    made = datetime.strptime(Ids()()[:20], "%Y%m%d%H%M%S%f").replace(tzinfo=UTC).timestamp()
    assert before - 1 < made < time.time() + 1


PLAIN = ["", "d", " two  words ", "x" * 1000, "a\rb", "--confirm"]
NOT_PLAIN: list[object] = ["a\n", "\t", "\0", "\r", "ä", b"bytes", 7, None, {}, "\ud800"]


@pytest.mark.parametrize("data", PLAIN)
def test_plain_data_is_put_at_once(data: str) -> None:
    lines = Lines(lambda: "m1")
    assert lines.publish("e1", data) is None, "the event was not looked at yet"
    lines.know("e1")
    assert lines.publish("e1", data) == "m1"
    assert (lines.size, lines.unconfirmed) == (len(data) + 15, 1)
    assert lines.take() == f"m1 publish e1 {data}\n".encode()
    assert (lines.waiting, lines.size) == ([], 0)


@pytest.mark.parametrize("data", NOT_PLAIN)
def test_other_data_is_left_to_the_session(data: object) -> None:
    lines = Lines(lambda: "m1")
    lines.know("e1")
    assert lines.publish("e1", data) is None
    assert lines.unconfirmed == lines.size == 0


def test_what_is_known_is_bounded() -> None:
    lines = Lines(Ids())
    for number in range(30_000):
        lines.know(f"e{number}")
    assert lines.publish("e1", "") is None
    assert lines.publish("e29999", "") is not None


class Wanted:
    """As much of one as the reader looks at."""

    def __init__(self, id: str, kind: type[Message] | None = Message) -> None:
        self.id = id
        self.kind = kind
        self.batch: list[Message] = []


def read(pieces: list[bytes], *wanted: Wanted) -> list[str]:
    """The lines that were for others."""
    others: list[str] = []
    reader = Reader({one.id.encode(): one for one in wanted}, others.append)
    rest = b""
    for piece in pieces:
        touched: list[Any] = []
        before = {one for one in wanted if one.batch}
        rest += piece
        rest = rest[reader.read(rest, touched) :]
        assert {*touched} == {one for one in wanted if one.batch} - before
        assert len(touched) == len({*touched})
    assert rest == b""
    return others


TEXT = """\
p1 ok pong
c1 ok \n\
c1 ok m1 event=e1 d1
c1 ok m2 event=e1 \n\
c1 ok m3 event=e1,retry=2 d3  with  spaces \n\
c2 ok m4 event= {"a": 1}
c1 ok --update q e1
c1 ok -m5 event=a,retry=b ok c1
c2 ok m6 event=a,retry=b,retry=3 d6
c1
c1 error x
c11 ok m7 event=e1 of another
r1 ok s1 {}
c1 ok\n\
c1 ok m8 event=\u00e4 \u00e4
"""
MESSAGES = {
    "c1": [
        ("m1", "e1", 0, "d1"),
        ("m2", "e1", 0, ""),
        ("m3", "e1", 2, "d3  with  spaces "),
        ("-m5", "a,retry=b", 0, "ok c1"),
        ("m8", "ä", 0, "ä"),
    ],
    "c2": [("m4", "", 0, '{"a": 1}'), ("m6", "a,retry=b", 3, "d6")],
}
OTHERS = [
    "p1 ok pong",
    "c1 ok ",
    "c1 ok --update q e1",
    "c1",
    "c1 error x",
    "c11 ok m7 event=e1 of another",
    "r1 ok s1 {}",
    "c1 ok",
]


@given(st.lists(st.integers(1, len(TEXT.encode())), max_size=30))
def test_pieces_cut_anywhere(cuts: list[int]) -> None:
    data = TEXT.encode()
    places = sorted({0, len(data), *cuts})
    pieces = [data[start:end] for start, end in pairwise(places)]
    wanted = {id: Wanted(id) for id in ("c1", "c2")}
    receiver = Wanted("r1", None)
    assert read(pieces, *wanted.values(), receiver) == OTHERS
    got = {id: [(m.id, m.event, m.retry, m.data) for m in one.batch] for id, one in wanted.items()}
    assert got == MESSAGES
    assert {message.consumer_id for message in wanted["c1"].batch} == {"c1"}
    assert receiver.batch == []


def test_byte_by_byte() -> None:
    one, two = Wanted("c1"), Wanted("c2")
    assert read([bytes([byte]) for byte in TEXT.encode()], one, two, Wanted("r1", None)) == OTHERS
    assert len(one.batch) == 5


@pytest.mark.parametrize("line", ["c1 ok m1", "c1 ok m1 event=e1", "c1 ok m1 e1 d1", "c1 ok m1  d1"])
def test_what_is_no_message(line: str) -> None:
    with pytest.raises(ValueError, match="not a message"):
        read([line.encode() + b"\n"], Wanted("c1"))


def test_bytes_that_are_no_text() -> None:
    one = Wanted("c1")
    read([b"c1 ok m1 event=\xff \xfe\xc3\n"], one)
    assert one.batch[0].bytes == b"\xfe\xc3"
    assert one.batch[0].event.encode("utf-8", "surrogateescape") == b"\xff"


# ── lines that leave in pieces ──


def test_pieces_are_all_of_it_in_order() -> None:
    lines = Lines(Ids())
    text = "".join(f"m{number} ping {'x' * number}\n" for number in range(50))
    for line in text.splitlines(keepends=True):
        lines.put(line)
    pieces = []
    while lines.size:
        pieces.append(lines.piece(7))
    assert b"".join(pieces).decode() == text
    assert (lines.piece(7), lines.waiting) == (b"", [])


def test_a_line_that_left_in_part_still_waits() -> None:
    lines = Lines(Ids())
    lines.put("m1 ping 1\n")
    lines.put("m2 ping 2\n")
    assert lines.piece(15) == b"m1 ping 1\nm2 pi"
    assert (lines.waiting, lines.size, lines.begun) == (["m2 ping 2\n"], 5, 5)
    assert lines.take() == b"ng 2\n"


def test_a_line_that_left_in_part_is_gone_on_with_when_others_are_dropped() -> None:
    """Not begun again in the middle of itself."""
    session = Session()
    session.made()
    session.out.piece(1 << 20)
    ids = [session.ask("ping", print) for _ in range(MOST_FORGOTTEN + 2)]
    begun = session.out.piece(7)
    session.publish("e", "d", id="m1")
    session.forget(*ids)
    assert begun + session.out.take() == f"{ids[0]} ping\nm1 publish e d\n".encode()
