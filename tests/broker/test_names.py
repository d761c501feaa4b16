"""What a name may be, and which events a mask means: compared with regular expressions that say the same.

Also masks made to be slow: a broker that is busy with one client's mask serves nobody.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqks.broker import Broker
from mqks.broker.actions.consume import MANY, TRIES
from mqks.broker.limits import Limits
from mqks.names import Mask, is_event, is_name
from tests.broker.driver import PEER

BYTES = st.lists(st.sampled_from([b"a", b"b", b".", b"-", b"\xff", b"\\", b"[", b"+"]), max_size=8).map(b"".join)
MASKS = st.lists(st.sampled_from([b"a", b"b", b".", b"*", b"-", b"\xff", b"\\"]), max_size=10).map(b"".join)
WORDS = st.lists(
    st.sampled_from([b"-", b"--", b"{", b"a", b" ", b"\t", b"\0", b"\r", b"\n", b",retry=", b"7", b"\xff"]), max_size=6
).map(b"".join)


# ---- Names


@given(WORDS)
def test_names(word: bytes) -> None:
    legal = bool(word) and not set(word) & set(b" \t\0\r\n") and not word.startswith((b"--", b"{")) and word != b"-"
    assert is_name(word) == legal
    looks_retried = word.rstrip(b"0123456789").endswith(b",retry=") and word[-1:].isdigit()
    assert is_event(word) == (legal and not looks_retried)


# ---- Masks


def by_regex(mask: bytes, event: bytes) -> bool:
    """The rule in one line: a star is any run of characters but the dot; an event without a dot matches no mask."""
    regex = b"[^.]*".join(re.escape(piece) for piece in mask.split(b"*"))
    return b"." in event and re.fullmatch(regex, event, re.DOTALL) is not None


@given(MASKS, BYTES)
def test_mask_means_what_its_regex_means(mask: bytes, event: bytes) -> None:
    assert Mask(mask).matches(event.split(b".")) == by_regex(mask, event)


@given(BYTES, st.data())
def test_mask_made_of_an_event(event: bytes, data: st.DataObject) -> None:
    """Stars in place of parts of an event, some of them over a dot, and some letters more."""
    mask = event
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(mask)))
        end = data.draw(st.integers(start, len(mask)))
        mask = mask[:start] + data.draw(st.sampled_from([b"*", b"**", b"*a*", b"*."])) + mask[end:]
    assert Mask(mask).matches(event.split(b".")) == by_regex(mask, event)


@pytest.mark.parametrize(
    ("mask", "matched", "others"),
    [
        (b"*.updated", [b"user.updated", b".updated"], [b"updated", b"user.updated.x", b"a.user.updated"]),
        (b"document.*", [b"document.created", b"document."], [b"document", b"document.a.b"]),
        (b"user.*.connected", [b"user.123.connected", b"user..connected"], [b"user.connected"]),
        (b"*.*.deleted", [b"post.123.deleted", b"category.subcategory.deleted"], [b"post.deleted"]),
        (b"e5.*.a1", [b"e5.id1.a1"], [b"e5.id1.a2", b"e5.a1"]),
        (b"*", [], [b"e1", b"a.b"]),
        (b"e1", [], [b"e1"]),
        (b"a.b", [b"a.b"], [b"axb", b"a.b.", b"A.b"]),
        (b"a.b*b", [b"a.bb", b"a.bxb"], [b"a.b"]),
    ],
)
def test_masks_of_the_spec(mask: bytes, matched: list[bytes], others: list[bytes]) -> None:
    assert [event for event in matched + others if Mask(mask).matches(event.split(b"."))] == matched


# ---- Masks made to be slow: with backtracking, any of these would outlast the universe


@pytest.mark.parametrize(
    ("mask", "event", "matches"),
    [
        (b"x." + b"*a" * 10_000 + b"*b", b"x." + b"a" * 100_000, False),
        (b"x." + b"*a" * 10_000 + b"*", b"x." + b"a" * 100_000, True),
        (b"*." * 10_000 + b"b", b"a." * 10_000 + b"c", False),
        (b"*." * 10_000 + b"c", b"a." * 10_000 + b"c", True),
        (b"x." + b"*" * 500_000 + b"b", b"x." + b"a" * 500_000, False),
        (b"x.*" + b"a" * 50_000 + b"b*", b"x." + b"a" * 500_000, False),
        (b"x." + b"*ab" * 20_000, b"x." + b"ab" * 19_999, False),
        (b"x." + b"*ab" * 20_000, b"x." + b"ab" * 20_000, True),
    ],
    ids=range(8),
)
def test_slow_masks_are_not_slow(mask: bytes, event: bytes, matches: bool) -> None:
    assert Mask(mask).matches(event.split(b".")) is matches


@pytest.mark.parametrize(
    "masks",
    [b" ".join(b"*%d.b" % n for n in range(100_000)), b"*." * 250_000 + b"b", b"1." + b"*b" * 250_000],
    ids=["many masks", "a mask with many dots", "a mask with many stars"],
)
def test_a_line_full_of_masks_on_a_queue_full_of_events(masks: bytes) -> None:
    """About as much of both as fits into a line. It may be refused; but it must not take minutes."""
    broker = Broker(limits=Limits(max_events=100_000))
    client = broker.connect(PEER)
    events = b" ".join(b"%d.a" % n for n in range(100_000))
    broker.feed(client, b"s subscribe --confirm q1 " + events + b"\n")
    broker.feed(client, b"r rebind --confirm q1 --remove-mask " + masks + b"\n")
    replies = client.pending().splitlines()
    assert replies[0] == b"s ok "
    assert replies[1] == b"r ok " or replies[1].startswith(b"r error ")
    assert len(broker.queues.by_name[b"q1"].events) == 100_000


def rebound(masks: bytes, events: list[bytes]) -> bool:
    """Are these masks tried on these events?"""
    broker = Broker(limits=Limits(max_events=100_000))
    client = broker.connect(PEER)
    broker.feed(client, b"s subscribe q1 " + b" ".join(events) + b"\n")
    broker.feed(client, b"r rebind --confirm q1 --remove-mask " + masks + b"\n")
    assert broker.queues.by_name[b"q1"].events == set(events), "none is matched"
    return client.pending() == b"r ok \n"


SHORT = [b"%d.x" % number for number in range(1000)]


@pytest.mark.parametrize(
    ("masks", "events", "tried"),
    [
        (b"*.*.y " * 19, SHORT, True),  # 5 for each: its words and its stars
        (b"*.*.y " * 20, SHORT, False),
        (b"*.y*y", [b"%d.x" % number for number in range(3 * MANY)], True),  # as many as there may be
        (b"*.y*y*y*y*y*y*y*y*y*y", [b"%d.x" % number for number in range(3 * MANY)], False),
        (b"1." + b"*y" * 500, SHORT[:50], True),
        (b"1." + b"*y" * 500, SHORT, False),
        (b"*.".join([b""] * 300) + b"y", SHORT, False),
        (b"x." + b"y" * 1000, [event + b"x" * 400 for event in SHORT[:200]], False),  # so many letters
        (b" ".join(b"%d.y" % number for number in range(20 * MANY)), SHORT[:1], False),  # to read them costs too
    ],
)
def test_how_much_masking_there_may_be_in_one_request(masks: bytes, events: list[bytes], tried: bool) -> None:
    assert rebound(masks, events) is tried


def test_a_usual_mask_can_be_tried_on_as_many_events_as_a_queue_may_have() -> None:
    assert Limits().max_events <= MANY
    assert 1 + sum(map(b"user.*.connected".count, (b".", b"*"))) < TRIES
