"""Dialogues: text files that are the examples of docs/PROTOCOL.md and tests of the broker at once.

This module reads and plays them. It touches nothing but these files: it talks through a `Wire`, so the same
dialogue is played over real sockets (`tests/running.py`) or in process.

A file opens with `#` lines: a title, then an explanation. What follows is the dialogue, which readers see:

    $ mqksd --max-line=40       the broker is started with these flags (only where they matter)
    alice> p1 ping hi           alice sends this line; a new name opens a new connection
    alice< p1 ok hi             alice has got this line, after those expected before
    alice< (nothing)            alice has got nothing more so far
    alice< (closed)             the broker has closed alice's connection; what she sends next is on a new one
    alice|bob< c1 ok m1 …       one of them has got this line
    alice? ev1 _eval …          alice asks again (for 10 s at most) until the next line is the answer
    alice closes                alice disconnects, and the broker has seen it
    # anything                  a remark; blank lines make paragraphs

In an expected line `{error_id}` is an id that the broker has made and logged, `{a|b}` is one of these words
and `...` is any run of characters. Bytes that do not show have a sign, one character each: see `SIGNS`. There
are no other escapes: a backslash is a backslash. A space at the end of a line must be written as its sign.

Each request has had its whole effect, on every connection, before the next line of the dialogue counts. So a
dialogue has one outcome, or says where there may be several, and what it does not expect is a failure.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

FOLDER = Path(__file__).parent / "dialogues"

SIGNS = {"␠": b" ", "␉": b"\t", "␀": b"\0", "␍": b"\r", "\N{REPLACEMENT CHARACTER}": b"\xff"}
DTID = rb"\d{20}[0-9a-zA-Z]{4}"
NOTHING = "(nothing)"
MOST_ASKS = 1200  # with SECONDS_BETWEEN_ASKS: a minute
SECONDS_BETWEEN_ASKS = 0.05

_NAME = r"[a-z][a-z0-9]*"
_LINE = re.compile(rf"(?P<names>{_NAME}(?:\|{_NAME})*)(?P<kind>[>?<])(?: (?P<text>.*))?")
_CLOSES = re.compile(rf"(?P<names>{_NAME}) (?P<kind>closes)(?P<text>)")
_HOLE = re.compile(r"(\{error_id\}|\{[^\s{}|\"]+(?:\|[^\s{}|\"]+)+\}|\.\.\.)")


class Wire(Protocol):
    """What a player needs of the other side."""

    def send(self, name: str, data: bytes) -> None:
        """Send one request, its newline included, on the connection of this name (opened when it is new)."""

    def close(self, name: str) -> None:
        """Disconnect; returns when the broker has noticed."""

    def settle(self) -> dict[str, list[bytes]]:
        """Let all that was sent have its whole effect; the new lines of each connection, without newlines."""

    def pause(self, seconds: float) -> None:
        """Let time pass, for timers."""

    def logged(self, error_id: str) -> bool:
        """Does the broker's log speak of this id?"""


class DialogueError(AssertionError):
    """The broker did not answer as the dialogue says; the message is the whole transcript."""


@dataclass(frozen=True)
class Step:
    """One line of a dialogue."""

    number: int
    names: tuple[str, ...]
    kind: Literal[">", "?", "<", "closes"]
    text: str

    def __str__(self) -> str:
        return f"{'|'.join(self.names)}{' ' if self.kind == 'closes' else ''}{self.kind} {self.text}".rstrip()


@dataclass(frozen=True)
class Dialogue:
    """One file."""

    name: str
    title: str
    explanation: str
    body: str  # as readers see it: without the title and the explanation
    flags: tuple[str, ...]
    steps: tuple[Step, ...]


def names() -> list[str]:
    """The names of all dialogues."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(name: str) -> Dialogue:
    return parse(name, (FOLDER / f"{name}.txt").read_text(encoding="utf-8"))


def parse(name: str, source: str) -> Dialogue:
    """Read a dialogue; a line that it does not understand is a ValueError."""
    lines = source.split("\n")
    head: list[str] = []
    while len(head) < len(lines) and lines[len(head)].startswith("#"):
        head.append(lines[len(head)].removeprefix("#").strip())
    if not head:
        raise ValueError(f"{name}: the first line must be a title: '# …'")
    flags: tuple[str, ...] = ()
    steps: list[Step] = []
    for number, line in enumerate(lines[len(head) :], len(head) + 1):
        if line != line.rstrip():
            raise ValueError(f"{name}:{number}: a space at the end of a line is written as ␠")
        if line.startswith("$ mqksd ") and not steps:
            flags = tuple(line.split()[2:])
        elif line and not line.startswith("#"):
            steps.append(_step(name, number, line))
    _check(name, steps)
    body = "\n".join(lines[len(head) :]).strip("\n")
    return Dialogue(name, head[0], "\n".join(head[1:]), body, flags, tuple(steps))


def _step(name: str, number: int, line: str) -> Step:
    match = _LINE.fullmatch(line) or _CLOSES.fullmatch(line)
    if not match:
        raise ValueError(f"{name}:{number}: cannot read {line!r}")
    who = tuple(match["names"].split("|"))
    kind: Literal[">", "?", "<", "closes"] = match["kind"]  # type: ignore[assignment]
    if len(who) > 1 and kind != "<":
        raise ValueError(f"{name}:{number}: only a reply may be for one of several")
    return Step(number, who, kind, match["text"] or "")


def _check(name: str, steps: list[Step]) -> None:
    """What can be said of the order of lines without playing them."""
    connected: set[str] = set()
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        where = f"{name}:{step.number}"
        if step.kind == "?" and not (following and following.kind == "<" and following.names == step.names):
            raise ValueError(f"{where}: a question is followed by its answer")
        if step.kind in ">?":
            connected.update(step.names)
        elif not connected.issuperset(step.names):
            raise ValueError(f"{where}: {'|'.join(step.names)} is not connected")
        elif step.kind == "closes":
            connected.difference_update(step.names)
    if not any(step.kind == "<" for step in steps):
        raise ValueError(f"{name}: expects nothing")


def encode(text: str) -> bytes:
    """The bytes of a line, signs replaced by what they stand for."""
    return b"".join(SIGNS.get(character) or character.encode() for character in text)


def show(line: bytes) -> str:
    """A line as a dialogue would write it."""
    text = line.decode("utf-8", errors="replace")
    for sign, byte in SIGNS.items():
        if byte not in (b" ", b"\xff"):
            text = text.replace(byte.decode(), sign)
    kept = text.rstrip(" ")
    return kept + "␠" * (len(text) - len(kept))


def pattern(expected: str) -> re.Pattern[bytes]:
    """What an expected line matches; its error_id is a group of that name."""
    parts = [_hole(part) if at % 2 else re.escape(encode(part)) for at, part in enumerate(_HOLE.split(expected))]
    return re.compile(b"".join(parts), re.DOTALL)


def _hole(hole: str) -> bytes:
    if hole == "...":
        return b".*"
    if hole == "{error_id}":
        return b"(?P<error_id>" + DTID + b")"
    return b"(?:" + b"|".join(re.escape(encode(word)) for word in hole[1:-1].split("|")) + b")"


def play(dialogue: Dialogue, wire: Wire) -> None:
    """Play a dialogue to its end; DialogueError tells where it differs."""
    _Player(dialogue, wire).play()


class _Player:
    def __init__(self, dialogue: Dialogue, wire: Wire) -> None:
        self.dialogue = dialogue
        self.wire = wire
        self.inbox: dict[str, list[bytes]] = {}  # what has come and was not expected yet
        self.transcript: list[str] = []

    def play(self) -> None:
        try:
            self.play_steps()
        except OSError as error:
            self.fail(f"the broker is not there any more ({error})", "", ())

    def play_steps(self) -> None:
        steps = iter(self.dialogue.steps)
        for step in steps:
            match step.kind:
                case ">":
                    self.transcript.append(str(step))
                    self.wire.send(step.names[0], encode(step.text) + b"\n")
                    self.settle()
                case "?":
                    self.transcript.append(str(step))
                    self.ask(step, next(steps))
                case "<":
                    self.expect(step)
                case "closes":
                    self.transcript.append(str(step))
                    self.leftovers(step.names, "before it closed")
                    self.wire.close(step.names[0])
                    self.settle()
        self.leftovers(tuple(self.inbox), "in the end")

    def settle(self) -> None:
        for name, lines in self.wire.settle().items():
            self.inbox.setdefault(name, []).extend(lines)

    def expect(self, step: Step) -> None:
        if step.text == NOTHING:
            self.leftovers(step.names, f"at line {step.number}")
            self.transcript.append(str(step))
            return
        for name in step.names:
            if self.inbox[name] and self.fits(step, self.inbox[name][0]):
                self.transcript.append(f"{name}< {show(self.inbox[name].pop(0))}")
                return
        self.fail(f"line {step.number} did not come", f"- {step}", step.names)

    def ask(self, question: Step, answer: Step) -> None:
        """Repeat the question until its answer is the one expected; other lines wait for their own turn."""
        name, request = question.names[0], encode(question.text)
        own = request.split(b" ")[0] + b" "
        for _ in range(MOST_ASKS):
            self.wire.send(name, request + b"\n")
            before = len(self.inbox.get(name, ()))
            self.settle()
            came = self.inbox[name][before:]
            self.inbox[name][before:] = [line for line in came if not line.startswith(own)]
            if any(self.fits(answer, line) for line in came):
                self.transcript.append(str(answer))
                return
            self.wire.pause(SECONDS_BETWEEN_ASKS)
        self.inbox[name].extend(line for line in came if line.startswith(own))
        self.fail(f"line {answer.number} was asked for in vain", f"- {answer}", question.names)

    def fits(self, step: Step, line: bytes) -> bool:
        match = pattern(step.text).fullmatch(line)
        if not match:
            return False
        error_id = match.groupdict().get("error_id")
        if error_id is not None and not self.wire.logged(error_id.decode()):
            self.fail(f"the error_id of line {step.number} is not in the log", f"? {show(line)}", ())
        return True

    def leftovers(self, names: tuple[str, ...], when: str) -> None:
        if any(self.inbox.get(name) for name in names):
            self.fail(f"more came than expected {when}", "", names)

    def fail(self, what: str, expected: str, names: tuple[str, ...]) -> None:
        """Raise with the transcript, the expected line (-) and what is there instead (+)."""
        __tracebackhide__ = True  # pytest shows the transcript, which says more
        waiting = [f"+ {name}< {show(line)}" for name in names for line in self.inbox.get(name, ())]
        lines = [f"  {line}" for line in self.transcript]
        lines += [line for line in [expected, *waiting] if line]
        if not waiting and names:
            lines.append(f"+ {'|'.join(names)}< {NOTHING}")
        raise DialogueError("\n".join([f"{self.dialogue.name}: {what}", *lines]))
