"""The auth file, and what a token is: `{name}.{secret}`. The file has a hash of each, and what its owner may do.

    [tokens.worker]
    hash = "scrypt:16384:8:1:{salt}:{hash}"
    publish = ["order.*"]
    consume = { queues = ["mail", "work.**"], events = ["order.**"] }
    manage = ["mail"]
    history = ["order.**"]
    eval = false
    admin = false

Read here and by `mqks token`; only the file is touched. Whatever is wrong with it is a ConfigError of one line, which
never shows a hash.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mqks.broker.auth.access import ALL, Rights, wrong_with
from mqks.server.config import ConfigError, read_toml

EVERY_NAME = ALL  # a mask
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
SECRET_BYTES = 32
SALT_BYTES = 16
STRENGTH = (1 << 14, 8, 1)  # scrypt's: some 50 ms and 16 MB for each token that is looked at
MASKS = ("publish", "manage", "history")  # keys that are lists of masks
OF_CONSUME = ("queues", "events")  # those in the table `consume`
SWITCHES = ("eval", "admin")
KEYS = ("hash", *MASKS, "consume", *SWITCHES)
OPEN_TO_OTHERS = 0o027  # its group may read it, if somebody has said so: as that of the broker


@dataclass(frozen=True)
class Hash:
    """One of scrypt's, with what it was made by."""

    cost: int
    block: int
    parallel: int
    salt: bytes
    digest: bytes

    @classmethod
    def of(cls, token: str) -> "Hash":
        unmade = cls(*STRENGTH, secrets.token_bytes(SALT_BYTES), b"")
        return replace(unmade, digest=unmade.derive(token, 32))

    @classmethod
    def parse(cls, text: str) -> "Hash":
        """ValueError: it is none, or one that would take all memory."""
        kind, cost, block, parallel, salt, digest = text.split(":")
        found = cls(int(cost), int(block), int(parallel), _unbase64(salt), _unbase64(digest))
        if kind != "scrypt" or found.cost & (found.cost - 1) or not 2 <= found.cost <= 1 << 20:
            raise ValueError
        if not (1 <= found.block <= 32 and 1 <= found.parallel <= 16 and found.memory <= 1 << 28):
            raise ValueError
        if len(found.salt) < 8 or not 16 <= len(found.digest) <= 64:
            raise ValueError
        return found

    def __str__(self) -> str:
        numbers = f"scrypt:{self.cost}:{self.block}:{self.parallel}"
        return f"{numbers}:{_base64(self.salt)}:{_base64(self.digest)}"

    @property
    def memory(self) -> int:
        """Bytes that it takes to make it."""
        return 128 * self.block * (self.cost + self.parallel + 2)

    def work(self) -> int:
        """How long it takes, beside others."""
        return self.cost * self.block * self.parallel

    def derive(self, token: str, size: int) -> bytes:
        return hashlib.scrypt(
            token.encode("utf-8", "surrogatepass"),
            salt=self.salt, n=self.cost, r=self.block, p=self.parallel, maxmem=2 * self.memory, dklen=size,
        )  # fmt: skip

    def as_slow_as(self, other: "Hash") -> "Hash":
        return replace(self, cost=other.cost, block=other.block, parallel=other.parallel)

    def matches(self, token: str) -> bool:
        """Takes as long for any token."""
        return hmac.compare_digest(self.derive(token, len(self.digest)), self.digest)


@dataclass(frozen=True)
class Token:
    hash: Hash
    rights: Rights


def new_token(name: str) -> str:
    return f"{name}.{_base64(secrets.token_bytes(SECRET_BYTES))}"


def name_of(token: str) -> str:
    """The name in a token; empty if it has none that is legal."""
    name, dot, _ = token.partition(".")
    return name if dot and NAME.fullmatch(name) else ""


# ---- The file


def read(path: Path) -> dict[str, Token]:
    """All tokens of a file, by name."""
    content = read_toml(path, "--auth-file", "make tokens by mqks token new")
    for key in content:
        if key != "tokens":
            raise _wrong(path, "", f"unknown key {key!r}; tokens are written as [tokens.NAME]")
    tokens = content.get("tokens", {})
    if not isinstance(tokens, dict):
        raise _wrong(path, "", "tokens are written as [tokens.NAME]")
    return {name: _token(path, name, entry) for name, entry in tokens.items()}


def is_open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & OPEN_TO_OTHERS)
    except OSError:
        return False


def rights_of(name: str, entry: Mapping[str, Any], proof: str = "") -> Rights:
    """What an entry of the file says; ValueError: why it is wrong."""
    if not NAME.fullmatch(name):
        raise ValueError("a name has letters, digits, - and _ only, and at most 64 of them")
    for key in entry:
        if key not in KEYS:
            raise ValueError(f"unknown key {key!r}; there are {', '.join(KEYS)}")
    consume = entry.get("consume", {})
    if not isinstance(consume, dict) or not set(consume) <= set(OF_CONSUME):
        raise ValueError("write consume = { queues = […], events = […] }")
    for key in SWITCHES:
        if not isinstance(entry.get(key, False), bool):
            raise ValueError(f"{key} is true or false")
    masks: dict[str, Any] = {key: _masks(key, entry.get(key, [])) for key in MASKS}
    masks |= {key: _masks(f"consume.{key}", consume.get(key, [])) for key in OF_CONSUME}
    return Rights(name, **masks, **{key: entry.get(key, False) for key in SWITCHES}, proof=proof)


def entry_of(rights: Rights) -> dict[str, Any]:
    """The other way round, without the hash; what is not had is not written."""
    entry: dict[str, Any] = {key: list(masks) for key in MASKS if (masks := getattr(rights, key))}
    if consume := {key: list(masks) for key in OF_CONSUME if (masks := getattr(rights, key))}:
        entry["consume"] = consume
    return entry | {key: True for key in SWITCHES if getattr(rights, key)}


def _token(path: Path, name: str, entry: object) -> Token:
    try:
        if not isinstance(entry, dict):
            raise ValueError("write [tokens.NAME] and keys below it")
        text = entry.get("hash")
        if not isinstance(text, str):
            raise ValueError("it has no hash; make a token by mqks token new")
        rights = rights_of(name, entry, hashlib.sha256(text.encode()).hexdigest())
    except ValueError as error:
        raise _wrong(path, name, str(error)) from None
    try:
        return Token(Hash.parse(text), rights)
    except (ValueError, binascii.Error):
        raise _wrong(path, name, "its hash is not one that mqks token new makes") from None


def _masks(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(mask, str) for mask in value):
        raise ValueError(f'{key} is a list of masks, such as ["order.*"]')
    for mask in value:
        if wrong := wrong_with(mask):
            raise ValueError(f"{key}: {mask!r} is not a mask: {wrong}")
    return tuple(value)


def _wrong(path: Path, name: str, what: str) -> ConfigError:
    where = f"{str(path)!r}: tokens.{ascii(name)[1:-1]}" if name else repr(str(path))
    return ConfigError(f"{where}: {what}")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unbase64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
