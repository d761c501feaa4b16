"""What `mqks doctor` looks at, and what it finds: shared by its checks. It only reads and asks."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mqks.cli.connection import meet

if TYPE_CHECKING:
    from mqks.client.access import Access
    from mqks.client.errors import TlsFailed
    from mqks.journal import Segment
    from mqks.server.config import Config

PATIENCE = 3.0  # seconds for a broker to answer


class Finding(NamedTuple):
    level: str
    text: str
    advice: str = ""


def ok(text: str) -> Finding:
    return Finding("ok", text)


def warn(text: str, advice: str) -> Finding:
    return Finding("warn", text, advice)


def bad(text: str, advice: str) -> Finding:
    return Finding("bad", text, advice)


def bind(host: str, port: int) -> None:
    """As mqksd would, for a moment. OSError: it is taken, or the host is another one."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(address)


class Mount(NamedTuple):
    kind: str  # of the file system
    place: Path  # where it begins
    device: str  # its numbers, as the system writes them


def mount_of(path: Path) -> Mount:
    """The file system that has it."""
    found = Mount("unknown", Path("/"), "")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        words = before.split()
        place = Path(words[4].replace("\\040", " "))
        if path.is_relative_to(place) and len(place.parts) >= len(found.place.parts):  # a later one covers those before
            found = Mount(after.split()[0], place, words[2])
    return found


@dataclass(frozen=True)
class Case:
    """What is looked at: a configuration, as `mqksd` would take it from here, and who is asked."""

    config: Config
    wrong: str | None = None  # with the configuration
    asked: str | None = None  # the broker that was named
    named: Path | None = None  # the folder that was
    access: Access | None = None  # what a broker is shown, and trusted by

    @property
    def told(self) -> str | None:
        """The folder of the broker that answers, by its own word, unless another one was named."""
        return None if self.named else (self.stats or {}).get("data")

    @cached_property
    def is_seen(self) -> bool:
        """Is that folder here? The broker may be on another machine, or in a container with files of its own."""
        return bool(self.told and self.is_here and os.path.isdir(self.told))  # noqa: PTH112 # Path.is_dir may raise

    @property
    def folder(self) -> Path:
        return Path(self.told) if self.told and self.is_seen else self.named or self.config.data

    @property
    def existing(self) -> Path:
        """The data folder, or the nearest one above it that is there."""
        return next(path for path in (self.folder.absolute(), *self.folder.absolute().parents) if path.is_dir())

    @cached_property
    def owner(self) -> int | None:
        """The process that has the folder; 0 if it cannot be seen from here which one."""
        try:
            inode = (self.folder / "lock").stat().st_ino
            # Not by st_dev: on btrfs that is not the device of the file system, which is the one of a lock.
            major, minor = map(int, mount_of(self.folder.resolve()).device.split(":"))
            locks = Path("/proc/locks").read_text().splitlines()
        except (OSError, ValueError):
            return None
        ours = f"{major:02x}:{minor:02x}:{inode}"
        held = (line.split() for line in locks if " FLOCK " in line and "->" not in line)
        return next((max(int(words[4]), 0) for words in held if words[5] == ours), None)

    @cached_property
    def segments(self) -> list[Segment]:
        """Of the journal; none where it cannot be read, which the checks `folder` and `journal` tell of."""
        from mqks.journal import JournalError, Reader

        try:
            return Reader(self.folder).segments()
        except (JournalError, OSError):
            return []

    @property
    def url(self) -> str:
        from mqks.cli.up import url_of

        return self.asked or url_of(self.config)

    @property
    def has_tls(self) -> bool:
        from mqks.client.address import find_address

        return find_address(self.url).tls

    @property
    def is_here(self) -> bool:
        """Is the broker that is asked one of this machine?"""
        from mqks.client.address import find_address

        try:
            bind(find_address(self.url).host, 0)
        except OSError:
            return False
        return True

    @property
    def http_host(self) -> str:
        """Where its HTTP is: with the broker that was named, else where it listens for it."""
        from mqks.cli.up import reachable
        from mqks.client.address import find_address

        if self.asked:
            return find_address(self.asked).host
        return reachable(replace(self.config, host=self.config.http_host))

    @cached_property
    def answer(self) -> dict[str, Any] | str | TlsFailed | None:
        """The broker's stats, or why it does not tell them; None if none answers."""
        from mqks.client.access import Access
        from mqks.client.errors import MqksError, Refused, TlsFailed

        try:
            with meet(self.url, PATIENCE, self.access or Access()) as mq:
                return mq.stats()
        except Refused as error:
            return str(error)
        except TlsFailed as error:
            return error
        except (MqksError, OSError):
            return None

    @cached_property
    def stats(self) -> dict[str, Any] | None:
        return self.answer if isinstance(self.answer, dict) else None
