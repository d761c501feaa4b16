"""Every dialogue, over real sockets and with the model; and the player itself, which must be able to fail."""

import re

import pytest

from tests import dialogue
from tests.conftest import Brokers
from tests.dialogue import Dialogue, DialogueError, Step
from tests.model import ERROR, Model
from tests.model_queues import Connection
from tests.running import CONTROL, SocketWire, has_tokens

ERROR_ID = "20161231235959123456uN1q"
DIALOGUES = [dialogue.load(name) for name in dialogue.names()]


def looks_inside(step: Step) -> bool:
    """The model leaves out what shows the inside of the broker."""
    return step.kind in ">?" and bool(re.search(r"\S+ (_eval|stats)\b", step.text))


WITHOUT_A_LOOK_INSIDE = [
    each for each in DIALOGUES if not each.flags and not any(looks_inside(step) for step in each.steps)
]


class ModelWire:
    """Plays with the model in process: one turn for each request, a clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.model = Model(max_line=1 << 20, high_water=1 << 18, clock=lambda: self.now)
        self.connections: dict[str, Connection] = {}

    def send(self, name: str, data: bytes) -> None:
        if name not in self.connections:
            self.connections[name] = self.model.connect()
        self.model.feed(self.connections[name], data)

    def close(self, name: str) -> None:
        self.model.disconnect(self.connections.pop(name))

    def settle(self) -> dict[str, list[bytes]]:
        came: dict[str, list[bytes]] = {name: [] for name in self.connections}
        self.model.turn()
        while any(connection.pending() for connection in self.connections.values()):
            for name, connection in self.connections.items():
                pending = connection.pending()
                self.model.sent(connection, len(pending))
                came[name] += pending.replace(ERROR, ERROR_ID.encode()).split(b"\n")[:-1]
            self.model.turn()
        return came

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.model.tick()

    def logged(self, error_id: str) -> bool:
        return error_id == ERROR_ID


@pytest.mark.parametrize("fsync", [None, "never"], ids=["memory", "journal"])
@pytest.mark.parametrize("played", DIALOGUES, ids=lambda each: each.name)
def test_over_sockets(played: Dialogue, fsync: str | None, shared_broker: Brokers) -> None:
    """In memory, and with a journal that nobody waits for, so that replies come in the same order."""
    token = CONTROL if has_tokens(played.flags) else ""
    with SocketWire(shared_broker(*played.flags, fsync=fsync), token=token) as wire:
        dialogue.play(played, wire)


@pytest.mark.parametrize("played", WITHOUT_A_LOOK_INSIDE, ids=lambda each: each.name)
def test_with_the_model(played: Dialogue) -> None:
    dialogue.play(played, ModelWire())


# The player


class ScriptedWire(ModelWire):
    """Answers each request with the lines that the script has for it, to any connections."""

    def __init__(self, script: dict[bytes, list[list[tuple[str, bytes]]]]) -> None:
        super().__init__()
        self.script = script
        self.came: dict[str, list[bytes]] = {}
        self.closed: list[str] = []

    def send(self, name: str, data: bytes) -> None:
        self.came.setdefault(name, [])
        answers = self.script.get(data, [])
        for receiver, line in answers.pop(0) if answers else []:
            self.came.setdefault(receiver, []).append(line)

    def close(self, name: str) -> None:
        self.closed.append(name)

    def settle(self) -> dict[str, list[bytes]]:
        came, self.came = self.came, {name: [] for name in self.came}
        return came


def played(text: str, *answers: tuple[bytes, list[tuple[str, bytes]]]) -> ScriptedWire:
    """Play a text with a script: (request, [(connection, reply), …]), repeated requests in their order."""
    script: dict[bytes, list[list[tuple[str, bytes]]]] = {}
    for request, replies in answers:
        script.setdefault(request + b"\n", []).append(replies)
    wire = ScriptedWire(script)
    dialogue.play(dialogue.parse("made-up", "# Title\n\n" + text), wire)
    return wire


PONG = (b"p1 ping a", [("alice", b"p1 ok a")])


def test_what_is_expected_passes() -> None:
    played("alice> p1 ping a\nalice< p1 ok a\nalice< (nothing)", PONG)


@pytest.mark.parametrize(
    ("expected", "difference"),
    [
        ("alice< p1 ok b", "  alice> p1 ping a\n- alice< p1 ok b\n+ alice< p1 ok a"),
        ("alice< p1 ok a\nalice< p1 ok a", "  alice< p1 ok a\n- alice< p1 ok a\n+ alice< (nothing)"),
        ("alice< p1 ok", "- alice< p1 ok\n+ alice< p1 ok a"),
        ("alice< (nothing)", "more came than expected at line 4\n  alice> p1 ping a\n+ alice< p1 ok a"),
        ("alice closes\nbob> p1 ping b\nbob< p1 ok", "more came than expected before it closed"),
        ("bob> p2 ping b\nbob< p2 ok b", "more came than expected in the end\n"),
        ("bob> x\nalice|bob< p1 ok {b|c}", "- alice|bob< p1 ok {b|c}\n+ alice< p1 ok a"),
    ],
)
def test_a_difference_fails_with_the_transcript(expected: str, difference: str) -> None:
    with pytest.raises(DialogueError) as failure:
        played(f"alice> p1 ping a\n{expected}", PONG, (b"p2 ping b", [("bob", b"p2 ok b")]))
    assert difference in str(failure.value)


def test_either_of_two_connections() -> None:
    text = "alice> x\nbob> x\ncarol> m1\nalice|bob< {c1|c2} ok m1"
    played(text, (b"m1", [("alice", b"c1 ok m1")]))
    played(text, (b"m1", [("bob", b"c2 ok m1")]))
    with pytest.raises(DialogueError, match="more came"):
        played(text, (b"m1", [("alice", b"c1 ok m1"), ("bob", b"c2 ok m1")]))


def test_a_question_is_asked_until_its_answer_comes() -> None:
    text = "alice? ev1 x\nalice< ev1 ok False\nalice< c1 ok m1"
    no, yes = [("alice", b"ev1 ok True")], [("alice", b"ev1 ok False")]
    played(text, (b"ev1 x", no), (b"ev1 x", [*no, ("alice", b"c1 ok m1")]), (b"ev1 x", yes))
    with pytest.raises(DialogueError, match="in vain"):
        played(text, (b"ev1 x", no))


def test_an_error_id_must_be_a_dtid_that_is_in_the_log() -> None:
    text = "alice> x\nalice< x error {error_id}"
    played(text, (b"x", [("alice", f"x error {ERROR_ID}".encode())]))
    with pytest.raises(DialogueError, match="is not in the log"):
        played(text, (b"x", [("alice", f"x error {ERROR_ID[:-1]}r".encode())]))
    with pytest.raises(DialogueError, match="did not come"):
        played(text, (b"x", [("alice", b"x error 42")]))


def test_signs_stand_for_bytes_and_dots_for_anything() -> None:
    assert dialogue.encode("a␉b␀c␍d�é␠") == b"a\tb\0c\rd\xff\xc3\xa9 "
    assert dialogue.show(b"a\tb\0c\rd\xff  ") == "a␉b␀c␍d�␠␠"
    assert dialogue.pattern('x {"a": 1, ... "b": [1|2]}').fullmatch(b'x {"a": 1, "c": 5, "b": [1|2]}')
    assert not dialogue.pattern("x ok␠").fullmatch(b"x ok")


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("alice> p1 ping", "must be a title"),
        ("# T\nalice> p1 ping\nalice< p1 ok ", "written as ␠"),
        ("# T\nalice says p1 ping", "cannot read"),
        ("# T\nAlice> p1 ping\nAlice< p1 ok", "cannot read"),
        ("# T\nalice|bob> p1 ping\nalice< x", "only a reply"),
        ("# T\nalice? p1 ping\nalice> p2 ping\nalice< x", "followed by its answer"),
        ("# T\nalice> p1 ping\nbob< p1 ok", "not connected"),
        ("# T\nalice> p1 ping\nalice closes\nalice< p1 ok", "not connected"),
        ("# T\nalice> p1 ping", "expects nothing"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused(source: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        dialogue.parse("made-up", source)


def test_parts_of_a_file() -> None:
    parsed = dialogue.parse("made-up", "# Title\n# Why.\n\n$ mqksd --a=1 --b\n\n# note\na> x\na< y␠\n\na closes\n")
    assert (parsed.title, parsed.explanation, parsed.flags) == ("Title", "Why.", ("--a=1", "--b"))
    assert parsed.body == "$ mqksd --a=1 --b\n\n# note\na> x\na< y␠\n\na closes"
    assert [str(step) for step in parsed.steps] == ["a> x", "a< y␠", "a closes"]
