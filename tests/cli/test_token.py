"""`mqks token`: files that it makes are private and whole, whoever changes them at the same time."""

import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mqks.broker.auth.access import Rights
from mqks.server import tokens
from mqks.server.tokens import Hash
from tests.cli.conftest import Cli
from tests.cli.running import COMMAND
from tests.tokens import auth_file, cheap_hash

PROCESSES = 6


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hash, "of", cheap_hash)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "tokens.toml"
    monkeypatch.setenv("MQKS_AUTH_FILE", str(found))
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def files(path: Path) -> list[Path]:
    """All that is beside it, and it."""
    return list(path.parent.iterdir())


def test_a_token_is_printed_once_and_works(cli: Cli, path: Path) -> None:
    said = cli(
        "token", "new", "worker", "--publish", "order.*", "mail", "--queues", "mail", "--events", "order.**",
        "--manage", "mail", "--history", "**", "--eval",
    )  # fmt: skip
    assert said.code == 0
    (made,) = said.lines
    found = tokens.read(path)["worker"]
    assert found.hash.matches(made)
    assert found.rights == Rights(
        "worker", ("order.*", "mail"), ("mail",), ("order.**",), ("mail",), ("**",), eval=True, proof=found.rights.proof
    )
    assert "SIGHUP" in said.err
    secret = made.partition(".")[2]
    assert secret not in said.err and secret not in path.read_text()
    assert mode(path) == 0o600


def test_a_token_that_could_not_be_printed_is_to_be_revoked(path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, "token", "new", "y", "--all"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert f"y is in {path}, but its token could not be printed: revoke it" in done.stderr


def test_all_is_all(cli: Cli, path: Path) -> None:
    assert cli("token", "new", "boss", "--all").code == 0
    rights = tokens.read(path)["boss"].rights
    assert rights == Rights("boss", *(("**",),) * 5, eval=True, admin=True, proof=rights.proof)


def test_list_shows_names_and_rights_and_no_hash(cli: Cli, path: Path) -> None:
    cli("token", "new", "worker", "--publish", "order.*", "--queues", "mail")
    cli("token", "new", "boss", "--all")
    said = cli("token", "list")
    assert said.words == [
        ["name", "publish", "queues", "events", "manage", "history", "eval", "admin"],
        ["boss", "**", "**", "**", "**", "**", "yes", "yes"],
        ["worker", "order.*", "mail", "-", "-", "-", "-", "-"],
    ]
    listed = cli("token", "list", "--json")
    assert [row["name"] for row in listed.json] == ["boss", "worker"]
    assert listed.json[1]["queues"] == ["mail"]
    for each in tokens.read(path).values():
        assert str(each.hash) not in said.out + listed.out


def test_revoke_takes_one_away(cli: Cli, path: Path) -> None:
    cli("token", "new", "worker", "--publish", "order.*")
    cli("token", "new", "boss", "--all")
    assert cli("token", "revoke", "worker").code == 0
    assert list(tokens.read(path)) == ["boss"]
    said = cli("token", "revoke", "worker")
    assert (said.code, said.err) == (1, "mqks: there is no token worker\n")
    assert cli("token", "revoke", "boss").code == 0
    assert tokens.read(path) == {}


def test_a_name_that_is_taken_keeps_its_token(cli: Cli, path: Path) -> None:
    cli("token", "new", "worker", "--publish", "order.*")
    before = path.read_text()
    for rights in (["--all"], []):
        said = cli("token", "new", "worker", *rights)
        assert (said.code, said.out) == (1, "")
        assert "there is a token worker already" in said.err
    assert path.read_text() == before


@pytest.mark.parametrize(
    "words",
    [["new", "worker"], ["new", "worker", "--all", "--eval"], ["new", "a.b", "--all"], ["new", "", "--all"],
     ["new", "x" * 65, "--all"], ["new", "worker", "--publish", "a b"], ["new", "worker", "--queues", "**.x"], ["new"]],
)  # fmt: skip
def test_arguments_that_are_wrong(cli: Cli, path: Path, words: list[str]) -> None:
    said = cli("token", *words)
    assert (said.code, said.out) == (2, "")
    assert not path.exists()


def test_without_a_file_there_is_nothing_to_do(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MQKS_AUTH_FILE", raising=False)
    assert cli("token", "list").code == 2
    said = cli("token", "list", "--auth-file", str(tmp_path / "none"))
    assert (said.code, said.out) == (1, "")
    assert "No such file" in said.err


# ── what others wrote ──

BY_HAND = f"""\
# Who may do what. Ask the owner of the shop first.

[tokens.worker] # the one in the cellar
hash = "{cheap_hash("worker.x")}"  # made in May
publish = [
    "order.*",  # all of them
    "[odd]",
]

[tokens.worker.consume]
queues = ["mail"]

# The boss sees all.
[tokens."boss"]
hash = "{cheap_hash("boss.x")}"
admin = true
# The end.
"""


def test_remarks_stay_when_a_token_comes(cli: Cli, path: Path) -> None:
    path.write_text(BY_HAND)
    assert cli("token", "new", "guest", "--history", "news").code == 0
    assert path.read_text().startswith(BY_HAND.rstrip())
    assert list(tokens.read(path)) == ["worker", "boss", "guest"]


def test_and_when_one_goes(cli: Cli, path: Path) -> None:
    path.write_text(BY_HAND)
    assert cli("token", "revoke", "worker").code == 0
    start = BY_HAND.index("[tokens.worker]")
    assert path.read_text() == BY_HAND[:start] + BY_HAND[BY_HAND.index("\n# The boss") :]
    path.write_text(BY_HAND)
    assert cli("token", "revoke", "boss").code == 0
    assert path.read_text() == BY_HAND[: BY_HAND.index('[tokens."boss')] + "# The end.\n"


HASH = cheap_hash("worker.x")
NOT_TO_BE_FOUND = [
    f'tokens.worker.hash = "{HASH}"\n',
    f'[tokens]\nworker = {{ hash = "{HASH}" }}\n',
    f'tokens = {{ worker = {{ hash = "{HASH}" }} }}\n',
    f'[tokens."\\u0077orker"]\nhash = "{HASH}"\n',
]


@pytest.mark.parametrize("text", NOT_TO_BE_FOUND)
def test_what_cannot_be_changed_safely_is_left_alone(cli: Cli, path: Path, text: str) -> None:
    path.write_text(text)
    results = [cli("token", "revoke", "worker"), cli("token", "new", "worker", "--all")]
    assert [said.code for said in results] == [1, 1]
    assert results[0].err == f"mqks: {path} is written in a way that cannot be changed here; do it by hand\n"
    assert "there is a token worker already" in results[1].err
    assert (path.read_text(), files(path)) == (text, [path])


def test_what_takes_no_more_is_left_alone(cli: Cli, path: Path) -> None:
    path.write_text("tokens = {}\n")
    assert cli("token", "revoke", "worker").err == "mqks: there is no token worker\n"
    said = cli("token", "new", "worker", "--all")
    assert (said.code, said.out) == (1, "") and "do it by hand" in said.err
    assert (path.read_text(), files(path)) == ("tokens = {}\n", [path])


def test_what_others_may_do_is_never_changed(cli: Cli, path: Path) -> None:
    """The name in the last line is `boss`, too, which its text does not show."""
    boss, worker = (f'[tokens.{name}]\nhash = "{HASH}"\n' for name in ("boss", "worker"))
    text = boss + worker + '[tokens."\\u0062oss".consume]\nqueues = ["q"]\n'
    path.write_text(text)
    said = cli("token", "revoke", "worker")
    assert (said.code, path.read_text()) == (1, text)
    assert "do it by hand" in said.err


def test_a_file_that_is_wrong_is_left_alone(cli: Cli, path: Path) -> None:
    path.write_text("[tokens.worker]\nhash = 5\n")
    said = cli("token", "new", "boss", "--all")
    assert (said.code, said.out) == (1, "")
    assert "it has no hash" in said.err
    assert path.read_text() == "[tokens.worker]\nhash = 5\n"


# ── the file itself ──


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o640, 0o640), (0o644, 0o640), (0o666, 0o640)])
def test_others_cannot_read_a_file_that_was_changed(cli: Cli, path: Path, before: int, after: int) -> None:
    auth_file(path.parent, worker={})
    path.chmod(before)
    cli("token", "new", "boss", "--all")
    assert oct(mode(path)) == oct(after)


def test_a_link_stays_a_link(cli: Cli, path: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    path.symlink_to(real / "tokens.toml")
    assert cli("token", "new", "boss", "--all").code == 0
    assert path.is_symlink()
    assert list(tokens.read(real / "tokens.toml")) == ["boss"]


def test_it_is_replaced_as_a_whole_or_not_at_all(cli: Cli, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    auth_file(path.parent, worker={})
    before = path.read_text()
    synced: list[str] = []

    def fails(number: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{number}").readlink()))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mqks.cli.token.os.fsync", fails)
    said = cli("token", "new", "boss", "--all")
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines() == [f"mqks: cannot write {path}: No space left on device"]
    assert synced and path.name in synced[0], "the draft is on disk before it takes the file's place"
    assert (path.read_text(), files(path)) == (before, [path])


def test_those_who_come_at_once_wait_for_each_other(path: Path) -> None:
    def new(number: int) -> str:
        run = subprocess.run(
            [*COMMAND, "token", "new", f"worker{number}", "--all"], capture_output=True, text=True, timeout=60
        )
        assert run.returncode == 0, run.stderr
        return run.stdout.strip()

    with ThreadPoolExecutor(PROCESSES) as pool:
        made = list(pool.map(new, range(PROCESSES)))
    found = tokens.read(path)
    assert len(found) == PROCESSES
    assert all(found[f"worker{number}"].hash.matches(each) for number, each in enumerate(made))
    assert files(path) == [path]
