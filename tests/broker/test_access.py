"""Masks of rights, compared with a plain model of them; and what is no mask."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqks.broker.auth.access import REMEMBERED, SHORT, Rights, covering, wrong_with


def fits(mask: str, word: str) -> bool:
    """One word of each: letter by letter."""
    if not mask:
        return not word
    if mask[0] == "*":
        return fits(mask[1:], word) or (bool(word) and fits(mask, word[1:]))
    return bool(word) and mask[0] == word[0] and fits(mask[1:], word[1:])


def model(mask: str, name: str) -> bool:
    if mask == "**":
        return True
    words, parts = name.split("."), mask.split(".")
    if parts[-1] == "**":
        parts = parts[:-1]
        return bool(name) and len(words) > len(parts) and all(map(fits, parts, words))
    return bool(name) and len(words) == len(parts) and all(map(fits, parts, words))


WORDS = st.text("ab", max_size=3)
PARTS = st.text("ab*", max_size=4).filter(lambda part: "**" not in part)
SOME_NAMES = st.lists(WORDS, min_size=1, max_size=4).map(".".join)
SOME_MASKS = st.one_of(
    st.lists(PARTS, min_size=1, max_size=4).map(".".join),
    st.lists(PARTS, max_size=3).map(lambda parts: ".".join([*parts, "**"])),
).filter(lambda mask: wrong_with(mask) is None)


@given(st.lists(SOME_MASKS, max_size=4), st.lists(SOME_NAMES, max_size=10))
def test_masks_are_what_the_model_says(masks: list[str], names: list[str]) -> None:
    covers = covering(masks)
    for name in names * 2:  # the second time it is remembered
        assert covers(name.encode()) == any(model(mask, name) for mask in masks), (masks, name)


@pytest.mark.parametrize(
    ("mask", "covered", "others"),
    [
        ("mail", ["mail"], ["mails", "mai", "mail.x", "", "MAIL"]),
        ("*", ["mail", "x"], ["mail.x", ""]),
        ("m*l", ["mail", "ml"], ["mal.l", "lm"]),
        ("order.*", ["order.new", "order."], ["order", "order.new.x", "xorder.new", ""]),
        ("order.**", ["order.new", "order.new.x", "order."], ["order", "orders.new"]),
        ("*.paid", ["order.paid", ".paid"], ["paid", "a.b.paid"]),
        ("**", ["order", "order.new", ""], []),
        ("*.**", ["order.new", "a.b.c"], ["order", ""]),
        ("ключ.*", ["ключ.да"], ["кл.да"]),
    ],
)
def test_masks_by_example(mask: str, covered: list[str], others: list[str]) -> None:
    covers = covering([mask])
    assert [name for name in [*covered, *others] if covers(name.encode())] == covered


@pytest.mark.parametrize(
    "mask", ["", "a b", "a\tb", "--x", "{x", "-", "**.a", "a**", "a.**b", "a.**.b", "***", "a.***"]
)
def test_what_is_no_mask(mask: str) -> None:
    assert wrong_with(mask)


@pytest.mark.parametrize("mask", ["a", "*", "**", "a.*", "a.**", "*a*b*", "a.*.b", "-x", "a-b_c"])
def test_what_is_one(mask: str) -> None:
    assert wrong_with(mask) is None


def test_no_mask_is_slow_and_no_name_is_remembered_that_is_long() -> None:
    """Whoever chooses names cannot make this take time, nor memory."""
    covers = covering(["*a" * 60 + "*b", ("*a*." * 30) + "**"])
    for number in range(REMEMBERED // 100):
        assert not covers(b"a" * 20_000 + b"%d" % number)
    assert not covers(b"a." * 29 + b"a" * SHORT)


def test_rights_are_equal_by_what_they_say_and_do_not_show_their_proof() -> None:
    one = Rights("worker", publish=("order.*",), proof="a")
    assert one == Rights("worker", publish=("order.*",), proof="a") != Rights("worker", publish=("order.*",), proof="b")
    assert one.may_publish(b"order.new") and not one.may_publish(b"order")
    assert "proof" not in repr(one)
