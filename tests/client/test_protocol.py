"""The codec: requests as they stand on the wire, replies cut; the compiled half and Spark's columns agree with it."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqks import names
from mqks.client import protocol
from mqks.client.errors import Refused
from mqks.client.wire import Lines


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (protocol.publish("e", "d d", confirm=False), "publish e d d"),
        (protocol.publish("e", "d", confirm=True, once=protocol.once_flag()), "publish --confirm --once e d"),
        (protocol.publish("e", "", confirm=False, once=protocol.once_flag("s")), "publish --once=s e "),
        (protocol.send("{}"), "send {}"),
        (protocol.send("{}", once=protocol.once_flag("s")), "send --once=s {}"),
        (
            protocol.consume("q", ["a"], ["b"], [*protocol.deletion_flags(1.5), *protocol.delivery_flags(True, 7)]),
            "consume --confirm q a --add b --delete-queue-when-unused=1.5 --manual-ack --prefetch=7",
        ),
        (protocol.rebind("q", ["a"], {"--remove": ["b"], "--add": []}, []), "rebind --confirm q a --remove b"),
        (protocol.delete_queue("q"), "delete_queue --confirm q"),
        (protocol.delete_queue("q", when_unused=True), "delete_queue --confirm q --when-unused"),
        (protocol.settle("ack", "c", "m", confirm=False), "ack c m"),
        (protocol.settle("reject", "c", None, confirm=True), "reject --confirm c --all"),
        (protocol.settle_event("ack", "r", "m"), 'ack {"receiver_id": "r", "event_id": "m"}'),
        (protocol.settle_event("ack", "r", None), 'ack {"receiver_id": "r", "all": true}'),
        (protocol.hold("h", "earliest", 1), "hold --confirm h earliest --for=1.000"),
        (protocol.history("latest", to="earliest", raw=True), "history latest --raw --to=earliest"),
        (
            protocol.history(7, to=9, events=["a", "b.*"], limit=0, follow=True),
            "history 7 --limit=0 --to=9 --follow --events=a,b.*",
        ),
        (protocol.recv({"queue": "q"}, ["--prefetch=1"]), 'recv --prefetch=1 {"queue": "q"}'),
    ],
)
def test_requests(request_: str, text: str) -> None:
    assert request_ == text


def test_replies() -> None:
    assert protocol.parse_reply("m1 ok") == ("m1", True, "")
    assert protocol.parse_reply("m1 ok  d ") == ("m1", True, " d ")
    assert protocol.parse_reply("- error x1") == ("-", False, "x1")
    assert protocol.answer("m1 ok d", "ping d") == "d"
    with pytest.raises(Refused) as refused:
        protocol.answer("m1 error x1", "ping d")
    assert (refused.value.request, refused.value.error_id) == ("ping d", "x1")


@pytest.mark.parametrize("line", ["", "m1", "m1 okay", "HTTP/1.1 400 Bad"])
def test_what_is_no_reply(line: str) -> None:
    with pytest.raises(ValueError, match="not an answer"):
        protocol.parse_reply(line)


def test_what_comes_for_a_history() -> None:
    assert protocol.parse_history("--end 7") == protocol.parse_cut_history("--end 7") == "7"
    assert protocol.parse_history("7 m1 event=e  d d") == ("7", "m1", "e", " d d")
    assert protocol.parse_cut_history("7 m1 event=e  d d") == ("7", "m1", "e", " d d")
    assert protocol.parse_cut_history("7 m1 eve") == ("7", "m1", "eve", "")
    with pytest.raises(ValueError, match="not a record"):
        protocol.parse_history("7 m1")


def test_what_comes_for_consumers_and_receivers() -> None:
    assert protocol.parse_update("--update q a b --manual-ack") == (["a", "b"], ["--manual-ack"])
    with pytest.raises(ValueError, match="not an answer to a consumer"):
        protocol.parse_update("--updated q")
    assert protocol.parse_event('m1 {"retry": 2, "a": 1}') == ("m1", '{"retry": 2, "a": 1}', 2)
    assert protocol.parse_pattern_update('{"update": {"pattern": null}}') is None
    with pytest.raises(ValueError, match="not an answer to a receiver"):
        protocol.parse_pattern_update("{}")


@given(st.binary())
def test_any_bytes_go_and_come(data: bytes) -> None:
    assert protocol.encode(protocol.decode(data)) == data


def test_the_compiled_half_writes_the_same_publish() -> None:
    lines = Lines(lambda: "m1")
    lines.know("e")
    assert lines.publish("e", "d d") == "m1"
    assert lines.take().decode() == protocol.line("m1", protocol.publish("e", "d d", confirm=False))


@pytest.mark.parametrize(("id", "request_"), [("m1", "ack c m"), ("m1", "ack c \xe4"), ("\udcff", "ack c m"), ("", "")])
def test_the_compiled_half_writes_the_same_request(id: str, request_: str) -> None:
    lines = Lines(lambda: "m1")
    lines.put("before\n")
    lines.put_request(id, request_)
    assert lines.take() == b"before\n" + protocol.encode(protocol.line(id, request_))


@pytest.mark.parametrize(
    "text", ["7 m1 event=e", "7  event= ", "7 m1 x d", "   ", " ", "", "7 m1 event=\U0001f600 \xe4 d"]
)
def test_the_compiled_half_cuts_any_text(text: str) -> None:
    words = text.split(" ", 3)
    if len(words) < 4:
        with pytest.raises(ValueError, match="not a record"):
            protocol.parse_history(text)
    else:
        assert protocol.parse_history(text) == (words[0], words[1], words[2][6:], words[3])


@given(st.lists(st.binary(max_size=6) | st.text(alphabet="-{ \t\r\n\0a,retry=1", max_size=9).map(str.encode)))
def test_columns_know_the_same_names(words: list[bytes]) -> None:
    column = pa.array(words, pa.large_binary())
    assert pc.match_substring_regex(column, names.NO_NAME).to_pylist() == [not names.is_name(word) for word in words]
    retried = pc.match_substring_regex(column, names.LOOKS_RETRIED).to_pylist()
    is_event = [names.is_name(word) and not looks for word, looks in zip(words, retried, strict=True)]
    assert is_event == [names.is_event(word) for word in words]
