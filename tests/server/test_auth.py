"""The authority: which tokens are right, how late wrong ones are answered, and that all cost the same.

Clock and sleep are the test's own: a sleep is noted, and over when the test says so.
"""

import asyncio
import logging
import stat
import threading
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mqks.broker.auth.access import Rights
from mqks.broker.errors import BadRequest
from mqks.server import auth, tokens
from mqks.server.auth import FORGET_AFTER, Authority, Penalties
from mqks.server.tokens import Hash
from tests.running import PATIENCE
from tests.tokens import ALL, auth_file, token

HERE, THERE = "192.0.2.1:5000", "192.0.2.2:5000"


class Desk:
    """An authority, what it noted, and a time that passes when it sleeps."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.failures: list[tuple[str, str]] = []
        self.gate: asyncio.Event | None = None  # keeps sleepers waiting
        self.authority = Authority(path, self._failed, clock=lambda: self.now, sleep=self._sleep)

    async def check(self, text: str, peer: str) -> Rights | None:
        """The rights, or none, after the penalty."""
        answer = await self.authority.check(text, peer)
        if isinstance(answer, Rights):
            return answer
        await answer
        return None

    def close(self) -> None:
        self.authority.close()

    def _failed(self, peer: str, bad: BadRequest) -> bytes:
        self.failures.append((peer, str(bad)))
        return b"error %d" % len(self.failures)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.gate:
            await self.gate.wait()
        self.now += seconds


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with closing(Desk(auth_file(tmp_path, worker={"publish": ["order.*"]}, boss=ALL))) as desk:
        yield desk


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


def counting(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    """What each derivation costs."""
    costs: list[tuple[int, int, int]] = []
    derive = Hash.derive

    def counted(self: Hash, text: str, size: int) -> bytes:
        costs.append((self.cost, self.block, self.parallel))
        return derive(self, text, size)

    monkeypatch.setattr(Hash, "derive", counted)
    return costs


class Held:
    """Checks that do not end before they are let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.let_go = threading.Event()

    async def until_begun(self, count: int) -> None:
        while len(self.begun) < count:
            await asyncio.sleep(0)


@contextmanager
def held_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held()
    matches = Hash.matches

    def waiting(self: Hash, text: str) -> bool:
        held.begun.append(text)
        assert held.let_go.wait(PATIENCE)
        return matches(self, text)

    monkeypatch.setattr(Hash, "matches", waiting)
    try:
        yield held
    finally:
        held.let_go.set()


# ── right and wrong ──


def test_a_right_token_has_its_rights(desk: Desk) -> None:
    rights = run(desk.check(token("worker"), HERE))
    assert (rights.name, rights.publish, rights.admin) == ("worker", ("order.*",), False)
    assert rights == desk.authority.by_name("worker") == desk.authority.current(rights)
    assert (desk.slept, desk.failures) == ([], [])


WRONG = [
    token("worker") + "x", token("worker")[:-1], "worker", "worker.", ".", "", "nobody.secret", token("boss", 2),
    "worker." + token("boss").partition(".")[2], "a b.c", "\ud800.x", "x" * 4000, token("WORKER"), "wörker.x", "\n",
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_a_wrong_one_has_none_and_costs_as_much_as_a_right_one(
    desk: Desk, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = counting(monkeypatch)
    run(desk.check(token("worker"), HERE))
    assert run(desk.check(wrong, HERE)) is None
    assert costs == [costs[0]] * 2, "one derivation each, of the same cost"
    ((peer, why),) = desk.failures
    assert peer == HERE
    assert why.startswith("the token is not one that is known")
    assert "secret" not in why


def test_what_one_pays_for_nobody_is_what_the_slowest_token_costs(tmp_path: Path) -> None:
    path = auth_file(tmp_path, worker={})
    slow = Hash(64, 2, 1, b"salt of a test", b"").derive(token("slow"), 32)
    entry = Hash(64, 2, 1, b"salt of a test", slow)
    path.write_text(path.read_text() + f'\n[tokens.slow]\nhash = "{entry}"\n')
    nobody = auth._of_nobody(tokens.read(path))
    assert (nobody.cost, nobody.block, nobody.parallel) == (64, 2, 1)
    none_at_all = auth._of_nobody({})
    assert (none_at_all.cost, none_at_all.block, none_at_all.parallel) == tokens.STRENGTH


# ── remembering ──


def test_what_was_accepted_is_remembered_and_costs_nothing_more(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = counting(monkeypatch)
    assert desk.authority.remembered(token("worker")) is None
    first = run(desk.check(token("worker"), HERE))
    for _ in range(100):
        assert run(desk.check(token("worker"), THERE)) is first
    assert desk.authority.remembered(token("worker")) is first
    assert len(costs) == 1
    assert not any(token("worker") in repr(key) for key in desk.authority._accepted)


def test_a_crowd_with_one_token_is_one_check(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = counting(monkeypatch)

    async def crowd() -> list[Rights | None]:
        return await asyncio.gather(*(desk.check(token("worker"), HERE) for _ in range(5000)))

    assert all(rights and rights.name == "worker" for rights in run(crowd()))
    assert len(costs) == 1


def test_a_token_that_was_accepted_does_not_wait_for_wrong_ones(desk: Desk) -> None:
    async def attacked() -> None:
        await desk.check(token("worker"), HERE)
        desk.gate = asyncio.Event()
        attacks = [asyncio.create_task(desk.check(f"worker.{n}", HERE)) for n in range(10)]
        while not desk.slept:
            await asyncio.sleep(0)
        decided: list[Rights | bytes] = []
        desk.authority.ask(token("worker"), HERE, decided.append)
        assert [rights.name for rights in decided if isinstance(rights, Rights)] == ["worker"]
        desk.gate.set()
        assert await asyncio.gather(*attacks) == [None] * 10

    run(attacked())


# ── penalties ──


def test_wrong_tokens_are_answered_later_each_time(desk: Desk) -> None:
    for number in range(8):
        assert run(desk.check(f"worker.{number}", HERE)) is None
    assert desk.slept == [1, 2, 4, 8, 16, 30, 30, 30]
    run(desk.check("worker.x", THERE))
    assert desk.slept[-1] == 1, "somebody else"


def test_penalties_are_forgotten_after_a_quiet_while() -> None:
    now = [0.0]
    penalties = Penalties(lambda: now[0])
    assert [penalties.next("here") for _ in range(3)] == [1, 2, 4]
    now[0] += FORGET_AFTER
    assert penalties.next("here") == 8
    now[0] += FORGET_AFTER + 1
    assert penalties.next("here") == 1


def test_the_table_of_penalties_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "MOST_ADDRESSES", 3)
    penalties = Penalties(lambda: 0.0)
    for place in "abcd":
        penalties.next(place)
    assert len(penalties) == 3
    assert penalties.next("d") == 2
    assert penalties.next("a") == 1, "the one that was quiet longest is forgotten"


def test_those_of_one_address_are_checked_one_after_the_other(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    matches = Hash.matches

    def noted(self: Hash, text: str) -> bool:
        order.append(text)
        return matches(self, text)

    monkeypatch.setattr(Hash, "matches", noted)

    async def attacked() -> None:
        attacks = [asyncio.create_task(desk.check(f"worker.{n}", f"192.0.2.1:{n}")) for n in range(20)]
        elsewhere = asyncio.create_task(desk.check(token("worker"), THERE))
        assert (await elsewhere) is not None
        assert await asyncio.gather(*attacks) == [None] * 20
        assert order.index(token("worker")) <= 2, "another address has its turn"
        assert not desk.authority._turns and not desk.authority._going_on

    run(attacked())
    assert desk.slept[:6] == [1, 2, 4, 8, 16, 30]


def test_an_ipv6_network_is_one_address(desk: Desk) -> None:
    for number in range(3):
        run(desk.check(f"worker.{number}", f"[2001:db8::{number}]:1"))
    assert desk.slept == [1, 2, 4]


def test_however_many_right_ones_of_an_address_are_all_let_in(tmp_path: Path) -> None:
    names = [f"w{number}" for number in range(200)]
    entries: dict[str, Any] = {name: {} for name in names}

    async def crowd(desk: Desk) -> list[Rights | bytes]:
        return await asyncio.gather(*(desk.authority.decide(token(name), HERE) for name in names))

    with closing(Desk(auth_file(tmp_path, **entries))) as desk:
        assert [isinstance(each, Rights) and each.name for each in run(crowd(desk))] == names
    assert (desk.failures, desk.slept) == ([], [])


def test_a_right_one_does_not_wait_for_wrong_ones_of_its_address(desk: Desk) -> None:
    async def attacked() -> None:
        desk.gate = asyncio.Event()  # nobody's penalty is over before this
        attacks = [asyncio.create_task(desk.authority.decide(f"worker.{n}", HERE)) for n in range(100)]
        while len(desk.slept) < 100:
            await asyncio.sleep(0)
        assert isinstance(await desk.authority.decide(token("worker"), HERE), Rights)
        desk.gate.set()
        assert all(isinstance(each, bytes) for each in await asyncio.gather(*attacks))

    run(attacked())


def test_a_crowd_with_one_wrong_token_is_one_check(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = counting(monkeypatch)

    async def crowd() -> None:
        desk.gate = asyncio.Event()
        early = [asyncio.create_task(desk.authority.decide("worker.x", HERE)) for _ in range(50)]
        while not desk.slept:
            await asyncio.sleep(0)
        late = [asyncio.create_task(desk.authority.decide("worker.x", HERE)) for _ in range(50)]
        await asyncio.sleep(0)
        desk.gate.set()
        answers = await asyncio.gather(*early, *late)
        assert (len(costs), desk.slept) == (1, [1])
        assert set(answers) == {b"error %d" % number for number in range(1, 101)}, "each is counted, and can be found"
        assert desk.failures == [(HERE, "the token is not one that is known: it is named 'worker'")] * 100

    run(crowd())


# ── those who go ──


def test_nothing_is_checked_or_kept_for_those_who_are_gone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one address and of many: else connections would not bound what waits, since who goes may come again."""
    authority, decided = desk.authority, list[Rights | bytes]()

    async def left() -> None:
        with held_checks(monkeypatch) as held:
            authority.ask("first.x", HERE, decided.append)
            await held.until_begun(1)
            drops = [authority.ask(f"x.{n}", f"192.0.2.{n % 7}:{n}", decided.append) for n in range(700)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(authority._going_on) == 701
            for drop in drops:
                assert drop
                drop()
            while len(authority._asked) > 1 or len(authority._turns) > 1:
                await asyncio.sleep(0)
            assert [check.begun for check in authority._going_on.values()] == [True]
            right = asyncio.create_task(authority.decide(token("worker"), HERE))
            held.let_go.set()
            assert isinstance(await right, Rights)
            assert held.begun == ["first.x", token("worker")]
        while not decided:
            await asyncio.sleep(0)
        assert (decided, len(desk.failures)) == ([b"error 1"], 1)
        assert not authority._turns and not authority._going_on

    run(left())


def test_a_check_that_has_begun_is_counted_though_nobody_waits(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who goes as soon as it is not let in would else guess without a penalty, and without a line in the log."""
    decided: list[Rights | bytes] = []

    async def left() -> None:
        with held_checks(monkeypatch) as held:
            drop = desk.authority.ask("worker.x", HERE, decided.append)
            await held.until_begun(1)
            assert drop
            drop()
        while not desk.slept:
            await asyncio.sleep(0)
        assert (len(desk.failures), desk.slept, held.begun) == (1, [1], ["worker.x"])
        assert not decided and not desk.authority._asked

    run(left())


@pytest.mark.parametrize("steps", range(5))
def test_who_shares_a_check_with_one_who_goes_is_answered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Whether it came before the other went, or just then."""
    decided: list[Rights | bytes] = []

    async def shared() -> None:
        with held_checks(monkeypatch) as held:
            desk.authority.ask("first.x", HERE, lambda _: None)
            await held.until_begun(1)
            drop = desk.authority.ask(token("worker"), HERE, decided.append)
            early = asyncio.create_task(desk.authority.decide(token("boss"), HERE))
            drop_too = desk.authority.ask(token("boss"), HERE, decided.append)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert drop and drop_too
            drop()
            drop_too()
            for _ in range(steps):
                await asyncio.sleep(0)
            late = asyncio.create_task(desk.authority.decide(token("worker"), HERE))
            await asyncio.sleep(0)
            held.let_go.set()
            assert [isinstance(each, Rights) for each in await asyncio.gather(early, late)] == [True, True]
            assert not decided

    run(shared())


def test_a_fault_is_an_answer_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Hash, text: str) -> bool:
        raise RuntimeError(text)

    monkeypatch.setattr(Hash, "matches", fails)

    async def asked() -> Rights | bytes:
        decided: asyncio.Future[Rights | bytes] = asyncio.get_running_loop().create_future()
        desk.authority.ask(token("worker"), HERE, decided.set_result)
        return await decided

    assert run(asked()) == b"error 1"
    assert desk.failures == [(HERE, "a token could not be checked: RuntimeError")]


# ── reading anew ──


def test_a_reload_brings_rights_and_takes_tokens_away(desk: Desk, tmp_path: Path) -> None:
    worker = run(desk.check(token("worker"), HERE))
    boss = run(desk.check(token("boss"), HERE))
    auth_file(tmp_path, worker={"publish": ["mail"]}, guest={})
    assert desk.authority.reload()
    changed = desk.authority.current(worker)
    assert changed is not None and changed.publish == ("mail",)
    assert desk.authority.remembered(token("worker")) is changed, "it need not be checked again"
    assert desk.authority.remembered(token("boss")) is None
    assert desk.authority.current(boss) is None
    assert run(desk.check(token("boss"), HERE)) is None
    assert run(desk.check(token("guest"), HERE)) is not None


def test_another_token_of_the_same_name_is_another_one(desk: Desk, tmp_path: Path) -> None:
    worker = run(desk.check(token("worker"), HERE))
    auth_file(tmp_path, edition=2, worker={"publish": ["order.*"]})
    desk.authority.reload()
    assert desk.authority.current(worker) is None
    assert run(desk.check(token("worker"), HERE)) is None
    assert run(desk.check(token("worker", 2), HERE)) is not None


def test_a_file_that_is_wrong_is_told_and_changes_nothing(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(desk.check(token("worker"), HERE))
    (tmp_path / "tokens.toml").write_text("[tokens.worker]\nhash = 5\n")
    assert not desk.authority.reload()
    (error,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert "tokens stay as they were" in error.getMessage()
    assert desk.authority.remembered(token("worker")) is not None


def test_a_token_that_is_revoked_while_it_is_checked_is_refused(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matches = Hash.matches

    def revoked_meanwhile(self: Hash, text: str) -> bool:
        right = matches(self, text)
        auth_file(tmp_path, boss=ALL)
        desk.authority.reload()
        return right

    monkeypatch.setattr(Hash, "matches", revoked_meanwhile)
    assert run(desk.check(token("worker"), HERE)) is None
    assert desk.authority.remembered(token("worker")) is None


@pytest.mark.parametrize("steps", range(8))
def test_so_is_one_that_is_revoked_between_the_check_and_the_answer(desk: Desk, tmp_path: Path, steps: int) -> None:
    """A reload in any step of the loop: whoever is told of rights has those that the file gives then."""

    async def raced() -> None:
        decided: list[Rights | bytes] = []
        given: list[Rights | None] = []

        def noted(answer: Rights | bytes) -> None:
            decided.append(answer)
            given.append(desk.authority.current(answer) if isinstance(answer, Rights) else None)

        desk.authority.ask(token("worker"), HERE, noted)
        while not desk.authority._accepted:
            await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        auth_file(tmp_path, boss=ALL)
        desk.authority.reload()
        while not decided:
            await asyncio.sleep(0)
        assert isinstance(decided[0], bytes) or given[0] == decided[0]

    run(raced())


def test_a_token_that_was_wrong_may_be_right_after_a_reload(desk: Desk, tmp_path: Path) -> None:
    async def late() -> None:
        desk.gate = asyncio.Event()
        early = asyncio.create_task(desk.authority.decide(token("guest"), HERE))
        while not desk.slept:
            await asyncio.sleep(0)
        auth_file(tmp_path, guest={})
        desk.authority.reload()
        assert isinstance(await desk.authority.decide(token("guest"), HERE), Rights)
        desk.gate.set()
        assert isinstance(await early, bytes)

    run(late())


@pytest.mark.parametrize("wrong", ["hunter2.x", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.x", "secret"])
def test_a_name_that_the_file_does_not_have_is_not_told(desk: Desk, wrong: str) -> None:
    run(desk.check(wrong, HERE))
    run(desk.check("worker.x", HERE))
    assert [why for _, why in desk.failures] == [
        "the token is not one that is known: its name is not in the file",
        "the token is not one that is known: it is named 'worker'",
    ]


def test_a_file_that_others_can_read_is_worth_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = auth_file(tmp_path, worker={})
    for mode, warned in ((0o600, 0), (0o400, 0), (0o640, 0), (0o604, 1), (0o620, 1), (0o660, 1)):
        caplog.clear()
        path.chmod(mode)
        Desk(path)
        assert caplog.text.count("is open to others: chmod 600") == warned, oct(mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660, "it is not ours to change"


def test_a_file_without_tokens_is_worth_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Desk(auth_file(tmp_path, worker={}))
    assert "nobody is let in" not in caplog.text
    Desk(auth_file(tmp_path))
    assert "has no tokens: nobody is let in; make one with mqks token new" in caplog.text
