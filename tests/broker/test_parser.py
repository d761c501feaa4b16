"""How bytes become requests: each stream is fed whole, byte by byte and cut anywhere, with the same outcome.

The outcome is written down here, not taken from the model: E stands for an error_id.
"""

from pathlib import Path
from resource import getpagesize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqks.broker import Broker
from tests.broker.driver import PEER, cut, talk
from tests.model import ERROR

MAX_LINE = 40
LONG = b"x" * 33  # `p ping ` and this is the longest legal line

STREAMS: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", b""),
    "no newline yet": (b"p ping", b""),
    "blank lines": (b"\n\r\n\n\np ping\n\n", b"p ok \n"),
    "no data": (b"p ping\n", b"p ok \n"),
    "empty data": (b"p ping \n", b"p ok \n"),
    "several lines": (b"p1 ping a\np2 ping b\np3 ping c\n", b"p1 ok a\np2 ok b\np3 ok c\n"),
    "CR LF": (b"p1 ping a\r\np2 ping b\r\n", b"p1 ok a\np2 ok b\n"),
    "only the last CR goes": (b"p ping a\r\r\n", b"p ok a\r\n"),
    "CR in data": (b"p ping a\rb\n", b"p ok a\rb\n"),
    "CR in an id": (b"p\rq ping\n\rp ping\n", b"- error E\n- error E\n"),
    "CR alone": (b"\r\r\n", b"- error E\n"),
    "CR in an action": (b"p ping\rx\n", b"p error E\n"),
    "CR in a name": (b"m publish e\rx d\nc consume q\rx\n", b"m error E\nc error E\n"),
    "spaces in data": (b"p ping  a  b \n", b"p ok  a  b \n"),
    "space first": (b" p ping\n", b"- error E\n"),
    "two spaces before the action": (b"p  ping\n", b"p error E\n"),
    "no action": (b"p\np \n", b"p error E\np error E\n"),
    "illegal ids": (b"- ping\n-- ping\n--x ping\n{x ping\n", b"- error E\n" * 4),
    "odd but legal ids": (b"-x ping\nx-- ping\nx{ ping\n", b"-x ok \nx-- ok \nx{ ok \n"),
    "unknown action": (b"p nope\np Ping\np pingx\n", b"p error E\n" * 3),
    "TAB": (b"p ping a\tb\np\tq ping\np ping\t\n", b"p error E\n- error E\np error E\n"),
    "NUL": (b"p ping a\0b\n\0 ping\np ping \0\n", b"p error E\n- error E\np error E\n"),
    "other control characters": (b"p ping \x01\x0b\x0c\x7f\n", b"p ok \x01\x0b\x0c\x7f\n"),
    "not UTF-8": (b"\xff ping \xfe\xc3\np ping \x80\n", b"\xff ok \xfe\xc3\np ok \x80\n"),
    "not UTF-8 in JSON": (b's send {"k": "\xff"}\ns send {}\n', b"s error E\ns ok \n"),
    "not UTF-8 through a queue": (b"c consume \xff \xfe\nm publish \xfe \xfd\n", b"c ok m event=\xfe \xfd\n"),
    "after an error": (b"p nope\np ping\n", b"p error E\np ok \n"),
    "longest": (b"p ping " + LONG + b"\np ping\n", b"p ok " + LONG + b"\np ok \n"),
    "longest and CR": (b"p ping " + LONG + b"\r\np ping\n", b"p ok " + LONG + b"\np ok \n"),
    "too long": (b"p ping " + LONG + b"x\np ping\n", b"p error E\np ok \n"),
    "too long and CR": (b"p ping " + LONG + b"x\r\np ping\n", b"p error E\np ok \n"),
    "too long by CR": (b"p ping " + LONG + b"\r\r\np ping\n", b"p error E\np ok \n"),
    "much too long": (b"p ping " + LONG * 9 + b"\np ping\n", b"p error E\np ok \n"),
    "too long without an id": (b"y" * 99 + b"\n- ping " + LONG + b"\np ping\n", b"- error E\n- error E\np ok \n"),
    "too long with TAB": (b"y\t" * 99 + b"\np ping \t" + LONG + b"\np ping\n", b"- error E\np error E\np ok \n"),
    "longest id": (b"i" * 35 + b" ping\np ping\n", b"i" * 35 + b" ok \np ok \n"),
    "id as long as the line": (b"i" * 40 + b"\np ping\n", b"i" * 40 + b" error E\np ok \n"),
    "id one shorter, line too long": (b"i" * 39 + b" ping\np ping\n", b"i" * 39 + b" error E\np ok \n"),
    "id too long": (b"i" * 40 + b" ping\np ping\n", b"- error E\np ok \n"),
    "two too long": ((b"p ping " + LONG + b"x\n") * 2 + b"p ping\n", b"p error E\np error E\np ok \n"),
    "publish and its flag": (b"c consume q e\nm publish --confirm e d\n", b"m ok \nc ok m event=e d\n"),
    "publish without data": (b"c consume q e\nm publish e\nn publish e \n", b"c ok m event=e \nc ok n event=e \n"),
    "publish once": (
        b"c consume q e\nm publish --once e d\nm publish --once --confirm e d\nm publish --confirm --once=s e f\n",
        b"m ok \nm ok \nc ok m event=e d\nc ok m event=e f\n",
    ),
    "publish once, no data": (b"c consume q e\nm publish --once=s e\nm publish --once=s e d\n", b"c ok m event=e \n"),
    "publish once that is none": (
        b"m publish --once= e d\nm publish --once\nm publish --once=s \nm publish --once=- e d\nm publish --onc e\n",
        b"m error E\n" * 5,
    ),
    "send once": (b's send --once {}\ns send --once --confirm {}\ns send --once= {}\n', b"s ok \ns ok \ns error E\n"),
    "publish of spaces": (b"c consume q e\nm publish e  d \n", b"c ok m event=e  d \n"),
    "publish that is none": (b"m publish\nm publish \nm publish  e\n", b"m error E\n" * 3),
    "spaces among arguments": (b"c consume   q  e  --confirm \nm publish e d\n", b"c ok \nc ok m event=e d\n"),
}  # fmt: skip


def expected(outcome: bytes) -> bytes:
    return outcome.replace(b"error E\n", b"error " + ERROR + b"\n")


@pytest.mark.parametrize("name", STREAMS)
def test_whole(name: str) -> None:
    stream, outcome = STREAMS[name]
    assert talk([stream], MAX_LINE) == expected(outcome)


@pytest.mark.parametrize("name", STREAMS)
def test_byte_by_byte(name: str) -> None:
    stream, outcome = STREAMS[name]
    assert talk(cut(stream, range(len(stream))), MAX_LINE) == expected(outcome)


@pytest.mark.parametrize("name", STREAMS)
def test_cut_once_anywhere(name: str) -> None:
    stream, outcome = STREAMS[name]
    for place in range(1, len(stream)):
        assert talk(cut(stream, [place]), MAX_LINE) == expected(outcome), place


@settings(deadline=None)
@given(
    names=st.lists(st.sampled_from([name for name in STREAMS if "consume" not in str(STREAMS[name][0])])),
    places=st.lists(st.integers(0, 5000), max_size=20),
)
def test_streams_one_after_another_cut_at_random(names: list[str], places: list[int]) -> None:
    """Those that leave nothing unfinished and nobody consuming."""
    ended = [STREAMS[name] for name in names if name != "no newline yet"]
    stream = b"".join(stream for stream, _ in ended)
    outcome = b"".join(outcome for _, outcome in ended)
    assert talk(cut(stream, places), MAX_LINE) == expected(outcome)


@settings(deadline=None)
@given(stream=st.binary(max_size=300), places=st.lists(st.integers(0, 300), max_size=10))
def test_any_bytes_are_answered_the_same_however_cut(stream: bytes, places: list[int]) -> None:
    stream += b"\n"
    assert talk(cut(stream, places), MAX_LINE) == talk([stream], MAX_LINE)


@settings(deadline=None)
@given(
    words=st.lists(
        st.sampled_from([b"p", b"ping", b"publish", b"consume", b"ack", b" ", b" ", b"\n", b"\r", b"\t", b"{", b"--"])
    ),
    places=st.lists(st.integers(0, 300), max_size=10),
)
def test_almost_requests_are_answered_the_same_however_cut(words: list[bytes], places: list[int]) -> None:
    stream = b"".join(words) + b"\n"
    assert talk(cut(stream, places), MAX_LINE) == talk([stream], MAX_LINE)


MIB = 1 << 20


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"], ids=["LF", "CR LF"])
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 65536, MIB - 1, MIB, MIB + 1, 3 * MIB])
@pytest.mark.parametrize("piece", [4096, 65536, 1 << 30])
def test_line_of_this_size(size: int, ending: bytes, piece: int) -> None:
    """The default limit: 1 MiB is a line, one byte more is not."""
    head = b"p ping "
    line = (head + b"x" * (size - len(head)))[:size]
    stream = line + ending + b"q ping after\n"
    replies = talk([stream[start : start + piece] for start in range(0, len(stream), piece)])
    first = {0: b"", 1: b"p error " + ERROR + b"\n"}.get(size, b"p ok " + line[len(head) :] + b"\n")
    if size > MIB:
        first = b"p error " + ERROR + b"\n"
    assert replies == first + b"q ok after\n"


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


# A sanitizer keeps freed memory aside, up to 256 MiB; a broker that keeps what it skips would show all of it.
FED = 1024 * MIB
ALLOWED = 400 * MIB


def test_a_line_without_end_is_not_kept() -> None:
    broker = Broker()
    connection = broker.connect(PEER)
    chunk = b"x" * MIB
    broker.feed(connection, b"p ping ")
    before = resident()
    for _ in range(FED // MIB):
        broker.feed(connection, chunk)
    assert resident() - before < ALLOWED
    broker.feed(connection, b"\nq ping after\n")
    assert connection.pending().endswith(b"\nq ok after\n")


def test_a_line_that_was_too_long_leaves_nothing_behind() -> None:
    broker = Broker()
    before = resident()
    stream = b"p ping " + b"x" * MIB
    connections = [broker.connect(PEER) for _ in range(FED // MIB)]
    for connection in connections:
        broker.feed(connection, stream[: MIB // 2])
        broker.feed(connection, stream[MIB // 2 :])
        broker.feed(connection, b"\n")
    assert resident() - before < ALLOWED
    assert all(connection.pending().startswith(b"p error ") for connection in connections)
