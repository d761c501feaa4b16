"""mqksd's files: any text as its configuration, or as its tokens. What must hold: it is taken, or refused by a
ConfigError of one line that shows no hash."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from mqks.server import tokens
from mqks.server.config import ConfigError, from_file

HASH = "aGFzaCBvZiBhIHRva2VuCg"
WITHOUT_HASHES = re.compile(rb"""hash\s*=\s*(['"]).*?\1""", re.DOTALL)


def read(data: bytes, reader: Callable[[Path], object]) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        try:
            reader(Path(file.name))
        except ConfigError as refused:
            assert str(refused)
            assert str(refused).isprintable()
            assert HASH not in str(refused) or HASH.encode() in WITHOUT_HASHES.sub(b"", data)


def configs(data: bytes) -> None:
    read(data, from_file)


def authfiles(data: bytes) -> None:
    read(data, tokens.read)
