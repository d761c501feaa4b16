"""Auth files for tests: tokens whose hashes cost nothing, and what their owners may do.

path = auth_file(folder, worker={"publish": ["order.*"]}, boss=ALL)
token("worker")         # what the worker says
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import tomlkit

from mqks.server.tokens import Hash

ALL: dict[str, Any] = {
    "publish": ["**"],
    "consume": {"queues": ["**"], "events": ["**"]},
    "manage": ["**"],
    "history": ["**"],
    "eval": True,
    "admin": True,
}


def token(name: str, edition: int = 1) -> str:
    """The same name may get another token later."""
    return f"{name}.secret-of-{name}-{edition}"


def cheap_hash(text: str) -> Hash:
    unmade = Hash(16, 1, 1, b"salt of a test", b"")
    return replace(unmade, digest=unmade.derive(text, 32))


def auth_file(folder: Path, /, *, edition: int = 1, **tokens: dict[str, Any]) -> Path:
    """Written anew each time, under the same name."""
    path = folder / "tokens.toml"
    entries = {name: {"hash": str(cheap_hash(token(name, edition))), **rights} for name, rights in tokens.items()}
    path.write_text(tomlkit.dumps({"tokens": entries}), encoding="utf-8")
    path.chmod(0o600)
    return path
