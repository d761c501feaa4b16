"""What one who is known may do: masks of names, and two rights that are had or not. Pure: nothing is touched here.

In a mask a `*` is any run of characters but the dot, and `**` as its last word is one or more words; so `**` alone is
every name. A mask without a star is a name. `Rights` holds masks as the auth file has them, and answers questions about
names; whoever finds something not permitted raises what `permit` does.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from mqks.broker.errors import BadRequest, show
from mqks.names import Mask, is_name

ALL = "**"
REMEMBERED = 4096  # names of which an answer is remembered
SHORT = 256  # bytes of such a name: long ones could take all memory

Asked = Callable[[bytes], bool]


def wrong_with(mask: str) -> str | None:
    """Why this is not a mask."""
    *words, _ = mask.split(".")
    if not is_name(mask.encode("utf-8", "surrogateescape")):
        return "it has a space or a control character, or begins as no name does"
    if any("**" in word for word in words) or ("**" in mask and mask.rpartition(".")[2] != ALL):
        return "** can only be its last word"
    return None


class Reach:
    """The names that one mask covers."""

    def __init__(self, mask: str) -> None:
        encoded = mask.encode("utf-8", "surrogateescape")
        *words, last = encoded.split(b".")
        self._goes_on = last == b"**"
        self._words = len(words) if self._goes_on else len(words) + 1
        self._mask = Mask(b".".join(words) if self._goes_on else encoded)

    def covers(self, words: list[bytes]) -> bool:
        """Does it cover the name that has these words between its dots?"""
        if not self._goes_on:
            return self._mask.covers(words)
        return len(words) > self._words and (not self._words or self._mask.covers(words[: self._words]))


def remembering(asked: Asked, most: int = REMEMBERED) -> Asked:
    """Answers the same, and knows by heart what it has answered of so many names."""
    remembered = lru_cache(most)(asked)
    return lambda name: remembered(name) if len(name) <= SHORT else asked(name)


def covering(masks: Iterable[str]) -> Asked:
    """Answers of a name whether any of the masks covers it. What has no name is covered by `**` alone."""
    given = list(masks)
    if ALL in given:
        return lambda _: True
    names = {mask.encode("utf-8", "surrogateescape") for mask in given if "*" not in mask}
    reaches = [Reach(mask) for mask in given if "*" in mask]
    if not reaches:
        return names.__contains__  # any number of them is found at once

    def look(name: bytes) -> bool:
        if not name:
            return False
        words = name.split(b".")
        return name in names or any(reach.covers(words) for reach in reaches)

    return remembering(look)


@dataclass(frozen=True)
class Rights:
    """What the token of this name may do."""

    name: str
    publish: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()  # to consume
    events: tuple[str, ...] = ()  # to subscribe queues to
    manage: tuple[str, ...] = ()  # queues: rebind, delete, purge
    history: tuple[str, ...] = ()  # events: to read in the log
    eval: bool = False
    admin: bool = False  # sees all figures, changes nothing
    proof: str = field(default="", repr=False)  # tells the token from another one of its name

    @cached_property
    def may_publish(self) -> Asked:
        return covering(self.publish)

    @cached_property
    def granted(self) -> set[bytes] | None:
        """Events that the core may take by itself from whoever has these rights; None: all."""
        return None if self.publishes_all else set()

    @cached_property
    def may_consume(self) -> Asked:
        return covering(self.queues)

    @cached_property
    def may_bind(self) -> Asked:
        return covering(self.events)

    @cached_property
    def may_manage(self) -> Asked:
        return covering(self.manage)

    @cached_property
    def may_read(self) -> Asked:
        return covering(self.history)

    @property
    def publishes_all(self) -> bool:
        return ALL in self.publish

    @property
    def binds_all(self) -> bool:
        return ALL in self.events

    @property
    def reads_all(self) -> bool:
        return ALL in self.history

    def reads_no_less_than(self, other: "Rights") -> bool:
        """As far as the masks themselves tell: nobody asks which names two different ones share."""
        return self.reads_all or set(other.history) <= set(self.history)


NOTHING = Rights("")
EVERYTHING = Rights("", (ALL,), (ALL,), (ALL,), (ALL,), (ALL,), eval=True, admin=True)
FROM_AFAR = Rights("", (ALL,), (ALL,), (ALL,), (ALL,), (ALL,), admin=True)  # where nobody has to say who it is


def permit(permitted: bool, what: str, name: bytes | None = None) -> None:
    """Go on, or refuse; `name` is what it was about."""
    if not permitted:
        raise BadRequest(f"not permitted: {what}", "" if name is None else show(name))


def permit_each(may: Asked, what: str, names: Iterable[bytes]) -> None:
    for name in names:
        permit(may(name), what, name)
