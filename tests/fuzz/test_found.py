"""What hostile input has found: each by a name for what it was. Inputs alone are in `regressions/`."""

import socket
from contextlib import closing

import pytest

import mqks.testing
from mqks.broker.protocol.bridge import name_in
from mqks.core.history import answers
from mqks.core.keeping import first_bad
from mqks.journal.format import build_batch
from tests.broker.driver import talk
from tests.model import ERROR
from tests.running import PATIENCE
from tests.web.asking import address

DTID = b"20260131120000000000aaaa"


CHUNKED = b"POST /nothing HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


def test_what_is_no_http_in_a_body_that_nobody_reads_is_answered_once(caplog: pytest.LogCaptureFixture) -> None:
    """The answer to the request itself came after, and failed: a traceback in the log for each."""
    with (
        mqks.testing.broker(http=True) as broker,
        closing(socket.create_connection(address(broker), PATIENCE)) as wire,
    ):
        wire.sendall(CHUNKED + b"zz\r\n")
        heard = b""
        while came := wire.recv(1 << 16):
            heard += came
    assert heard.startswith(b"HTTP/1.1 400 ") and heard.count(b"HTTP/1.1 ") == 1
    assert "Traceback" not in caplog.text


def test_what_is_no_http_after_an_answer_has_begun_ends_the_connection_and_nothing_else() -> None:
    """uvicorn tried to answer it once more, which failed in the event loop; the broker tells of that when it stops."""
    with (
        mqks.testing.broker(http=True) as broker,
        closing(socket.create_connection(address(broker), PATIENCE)) as wire,
    ):
        wire.sendall(CHUNKED)
        assert wire.recv(1 << 16).startswith(b"HTTP/1.1 404 ")
        wire.sendall(b"zz\r\n")
        while wire.recv(1 << 16):
            pass


def answered(*lines: bytes) -> list[bytes]:
    return talk([b"".join(line + b"\n" for line in lines)]).replace(ERROR, b"E").splitlines()


@pytest.mark.parametrize("blank", [b" ", b"\r", b" \r", b"\x0b"])
def test_a_long_line_of_blanks_is_answered(blank: bytes) -> None:
    """To find out whether it had a token took time that grew with the square of its length, and more."""
    assert answered(blank * (1 << 18) + b"x")[0].endswith(b"error E")


def test_a_position_of_very_many_digits_is_a_mistake_and_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    digits = b"9" * 5000
    asked = [b"h history %s" % digits, b"h history earliest --to=%s" % digits, b"h history %s" % (b"0" * 5000)]
    assert answered(*asked) == [b"h error E", b"h ok --end 0", b"h ok --end 0"]
    assert "internal error" not in caplog.text


def test_masks_that_take_long_are_not_tried_on_everything() -> None:
    """A million of them is a second's work when they are short; these would have taken minutes."""
    events = b" ".join(b"%d%s.b" % (number, b"a" * 500) for number in range(500))
    masks = b" ".join(b"%d%sb.b" % (number, b"*a" * 250) for number in range(1000))
    assert answered(b"r rebind --confirm q " + events, b"r rebind --confirm q --remove-mask " + masks) == [
        b"r ok ",
        b"r error E",
    ]
    assert answered(b"h history earliest --events=" + b",".join([b"*.a"] * 101)) == [b"h error E"]
    assert answered(b"h history earliest --events=" + b",".join([b"*.a"] * 100 + [b"a"] * 1000)) == [b"h ok --end 0"]


def test_a_batch_with_lines_that_no_broker_writes_is_read_without_reading_beyond_it() -> None:
    for lines in (
        b"m publish e\n",
        b"m publish --once\n",
        b"m publish --\n",
        b"m send --once\n",
        b"m\n",
        b"m publish e d",
    ):
        batch = build_batch(DTID, 0, lines, 0, 0)
        assert first_bad(batch, 0) == len(batch)
        _, _, end, _ = answers(batch, 0, b"h ok ", 0, 1 << 63, b"", 1 << 62, 1 << 30, None, name_in)
        assert end == len(batch)
