"""The judge is judged: each kind of fault, planted, is found, and what is allowed is not taken for one."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.crash.ledger import PULSES, Ledger, Session

P = b"p"
Story = Callable[["Scene"], None]


class Scene:
    """One publisher, an auto queue `a`, a manual queue `m`, a shared one `s`, a consumer for each."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.ledger.connected(P)
        books = [
            self.ledger.declare("a", auto=True),
            self.ledger.declare("m", auto=False),
            self.ledger.declare("s", auto=False, alone=False),
        ]
        self.sessions = {book.name: Session(book) for book in books}

    def send(self, count: int, safe: bool = True, queue: str = "a") -> None:
        for _ in range(count):
            number = self.ledger.sent(P, (queue,))
            if safe:
                self.ledger.is_safe(P, number)

    def get(self, *numbers: int, queue: str = "a") -> None:
        for number in numbers:
            self.ledger.delivered(self.sessions[queue], (P, number))

    def ack(self, number: int, confirmed: bool = True) -> None:
        self.ledger.acking(self.sessions["m"], (P, number))
        if confirmed:
            self.ledger.acked(self.sessions["m"], (P, number))

    def pulse(self, times: int) -> None:
        for _ in range(times):
            self.ledger.pulse(list(self.sessions.values()))

    def end(self, killed: bool = True) -> None:
        for session in self.sessions.values():
            self.ledger.gone(session, killed=killed)
        self.ledger.connected(P)

    def faults(self) -> Counter[str]:
        self.ledger.close()
        return self.ledger.faults.count


def ok_all_delivered(s: Scene) -> None:
    s.send(3)
    s.get(0, 1, 2)


def ok_unsafe_suffix_gone(s: Scene) -> None:
    s.send(2)
    s.send(2, safe=False)
    s.end()
    s.send(1)
    s.get(0, 1, 2, 4)


def ok_last_turn_again(s: Scene) -> None:
    s.send(2)
    s.get(0, 1)
    s.pulse(PULSES - 1)
    s.end()
    s.get(0, 1)


def ok_last_turn_again_two_kills_later(s: Scene) -> None:
    s.send(1)
    s.get(0)
    s.end()
    s.end()
    s.get(0)


def ok_unacked_again(s: Scene) -> None:
    s.send(3, queue="m")
    s.get(0, 1, 2, queue="m")
    s.ack(0)
    s.ack(1, confirmed=False)
    s.end()
    s.get(1, 2, queue="m")


def ok_rejected_again(s: Scene) -> None:
    s.send(2, queue="m")
    s.get(0, 1, queue="m")
    s.ledger.rejecting(s.sessions["m"], (P, 0))
    s.get(0, queue="m")


def ok_shared_order(s: Scene) -> None:
    s.send(2, queue="s")
    s.get(1, queue="s")
    s.sessions["s"] = Session(s.ledger.queues["s"])
    s.get(0, queue="s")


def ok_shared_order_after_another_went(s: Scene) -> None:
    s.send(2, queue="s")
    other = Session(s.ledger.queues["s"])
    s.get(1, queue="s")
    s.ledger.gone(other, killed=False)
    s.get(0, queue="s")


def ok_refused(s: Scene) -> None:
    s.send(3, safe=False)
    s.ledger.refused(P, 1)
    s.get(0, 2)


def ok_refused_when_sent_again(s: Scene) -> None:
    s.send(4, safe=False)
    s.ledger.refused(P, 1, surely=False)
    s.ledger.refused(P, 2, surely=False)
    s.get(0, 2, 3)


def lost_safe(s: Scene) -> None:
    s.send(2)
    s.get(0)


def lost_hole(s: Scene) -> None:
    s.send(3, safe=False)
    s.get(0, 2)


def lost_before_a_kill(s: Scene) -> None:
    s.send(2)
    s.end()
    s.send(1)
    s.get(0, 2)


def lost_unacked(s: Scene) -> None:
    s.send(1, queue="m")
    s.get(0, queue="m")
    s.end(killed=False)


def lost_rejected(s: Scene) -> None:
    s.send(1, queue="m")
    s.get(0, queue="m")
    s.ledger.rejecting(s.sessions["m"], (P, 0))


def duplicated_in_one_life(s: Scene) -> None:
    s.send(1)
    s.get(0, 0)


def duplicated_of_an_earlier_turn(s: Scene) -> None:
    s.send(1)
    s.get(0)
    s.pulse(PULSES)
    s.end()
    s.get(0)


def duplicated_after_a_clean_stop(s: Scene) -> None:
    s.send(1)
    s.get(0)
    s.end(killed=False)
    s.get(0)


def duplicated_after_its_ack(s: Scene) -> None:
    s.send(1, queue="m")
    s.get(0, queue="m")
    s.ack(0)
    s.end()
    s.get(0, queue="m")


def duplicated_though_held(s: Scene) -> None:
    s.send(1, queue="m")
    s.get(0, 0, queue="m")


def unexpected_number(s: Scene) -> None:
    s.get(0)


def unexpected_queue(s: Scene) -> None:
    s.send(1, safe=False, queue="m")
    s.get(0)


def unexpected_since_refused(s: Scene) -> None:
    s.send(2, safe=False)
    s.ledger.refused(P, 1)
    s.get(0, 1)


def out_of_order_alone(s: Scene) -> None:
    s.send(2)
    s.get(1, 0)


def out_of_order_shared(s: Scene) -> None:
    s.send(2, queue="s")
    s.get(1, 0, queue="s")


ALLOWED: list[Story] = [
    ok_all_delivered,
    ok_unsafe_suffix_gone,
    ok_last_turn_again,
    ok_last_turn_again_two_kills_later,
    ok_unacked_again,
    ok_rejected_again,
    ok_shared_order,
    ok_shared_order_after_another_went,
    ok_refused,
    ok_refused_when_sent_again,
]
FAULTS: list[tuple[str, Story]] = [
    ("lost", lost_safe),
    ("lost", lost_hole),
    ("lost", lost_before_a_kill),
    ("lost", lost_unacked),
    ("lost", lost_rejected),
    ("duplicated", duplicated_in_one_life),
    ("duplicated", duplicated_of_an_earlier_turn),
    ("duplicated", duplicated_after_a_clean_stop),
    ("duplicated", duplicated_after_its_ack),
    ("duplicated", duplicated_though_held),
    ("unexpected", unexpected_number),
    ("unexpected", unexpected_queue),
    ("unexpected", unexpected_since_refused),
    ("out of order", out_of_order_alone),
    ("out of order", out_of_order_shared),
]


@pytest.mark.parametrize("story", ALLOWED, ids=lambda story: story.__name__)
def test_what_is_allowed_is_no_fault(story: Story) -> None:
    scene = Scene()
    story(scene)
    assert not scene.faults(), scene.ledger.faults.examples


@pytest.mark.parametrize(("kind", "story"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_fault_is_found_once(kind: str, story: Story) -> None:
    scene = Scene()
    story(scene)
    assert scene.faults() == {kind: 1}, scene.ledger.faults.examples


def test_counts_what_was_in_doubt() -> None:
    scene = Scene()
    scene.send(3, safe=False)
    scene.get(0)
    assert scene.ledger.in_doubt() == (1, 2)
