"""The auth file and tokens as such: what a file may say, and what each of its faults is called."""

from pathlib import Path

import pytest

from mqks.broker.auth.access import EVERYTHING, Rights
from mqks.server import tokens
from mqks.server.config import ConfigError
from mqks.server.tokens import Hash, name_of, new_token
from tests.tokens import ALL, auth_file, cheap_hash

HASH = str(cheap_hash("worker.x"))
FAULTS = {
    "hash = 5": "it has no hash",
    "": "it has no hash",
    'hash = ""': "its hash is not one",
    'hash = "md5:16:1:1:AAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAA"': "its hash is not one",
    'hash = "scrypt:16:1:1:AAAAAAAAAAAA"': "its hash is not one",
    'hash = "scrypt:17:1:1:AAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAA"': "its hash is not one",
    'hash = "scrypt:16:1:1:AAAAAAAAAAAA:!!!!"': "its hash is not one",
    'hash = "scrypt:1048576:32:16:AAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAA"': "its hash is not one",
    'hash = "scrypt:x:1:1:AAAAAAAAAAAA:AAAAAAAAAAAAAAAAAAAAAAAA"': "its hash is not one",
    f'hash = "{HASH}"\npublsh = []': "unknown key 'publsh'",
    f'hash = "{HASH}"\npublish = "order.*"': "publish is a list of masks",
    f'hash = "{HASH}"\npublish = [5]': "publish is a list of masks",
    f'hash = "{HASH}"\npublish = ["a b"]': "publish: 'a b' is not a mask",
    f'hash = "{HASH}"\nhistory = ["**.a"]': "history: '**.a' is not a mask: ** can only be its last word",
    f'hash = "{HASH}"\nconsume = ["mail"]': "write consume = {",
    f'hash = "{HASH}"\nconsume = {{ queue = ["mail"] }}': "write consume = {",
    f'hash = "{HASH}"\nconsume = {{ events = "mail" }}': "consume.events is a list of masks",
    f'hash = "{HASH}"\neval = "yes"': "eval is true or false",
    f'hash = "{HASH}"\nadmin = 1': "admin is true or false",
}


@pytest.mark.parametrize("body", FAULTS)
def test_each_fault_of_an_entry_is_one_line_that_says_what(tmp_path: Path, body: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(f"[tokens.worker]\n{body}\n")
    with pytest.raises(ConfigError, match=r"tokens\.worker: ") as found:
        tokens.read(path)
    assert FAULTS[body] in str(found.value)
    assert "\n" not in str(found.value)
    assert "AAAAAAAA" not in str(found.value) and HASH.rpartition(":")[2] not in str(found.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("tokens = 5", "[tokens.NAME]"),
        ("[token.worker]", "unknown key 'token'"),
        ("[tokens]\nworker = 5", "[tokens.NAME]"),
        ("[tokens.'a.b']\nhash = 'x'", "letters, digits"),
        (f"[tokens.{'x' * 65}]\nhash = 'x'", "letters, digits"),
        (f"[tokens.w]\nhash = '{HASH}'\n[tokens.w]\nhash = '{HASH}'", "is not TOML"),
        ("[[[", "is not TOML"),
        ("[tokens.\"a\\nb\"]\nhash = 'x'", "letters, digits"),
        ("\xff", "is not TOML"),
    ],
)
def test_each_fault_of_a_file_is_one_line(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as found:
        tokens.read(path)
    assert what in str(found.value) and "\n" not in str(found.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        tokens.read(tmp_path / "none.toml")


def test_an_empty_file_lets_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("")
    assert tokens.read(path) == {}


def test_an_entry_and_rights_are_the_same_thing(tmp_path: Path) -> None:
    path = auth_file(tmp_path, boss=ALL, worker={"consume": {"events": ["a"]}}, nobody={})
    found = tokens.read(path)
    assert tokens.rights_of("boss", ALL) == Rights("boss", *(("**",),) * 5, eval=True, admin=True)
    for name, each in found.items():
        assert tokens.rights_of(name, tokens.entry_of(each.rights), each.rights.proof) == each.rights
    assert tokens.entry_of(EVERYTHING) == ALL
    assert len({each.rights.proof for each in found.values()}) == 3


def test_a_new_token_is_its_name_and_a_secret_of_256_bits() -> None:
    made = {new_token("worker") for _ in range(100)}
    assert len(made) == 100
    assert all(name_of(each) == "worker" and len(each) == len("worker.") + 43 for each in made)
    one = made.pop()
    assert Hash.of(one).matches(one)
    assert str(Hash.of(one)) != str(Hash.of(one)), "each has a salt of its own"
    assert Hash.parse(str(Hash.of(one))).matches(one)
    assert str(Hash.of(one)).startswith("scrypt:16384:8:1:")


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    made = cheap_hash("worker.x")
    monkeypatch.setattr("mqks.server.tokens.hmac.compare_digest", compare)
    assert made.matches("worker.x") and not made.matches("worker.y")
    assert [other for _, other in compared] == [made.digest] * 2
