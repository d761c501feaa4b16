"""Where a lake or a table is: the path or URL as Spark has it, and as delta-rs and the file system have it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):/*", re.IGNORECASE)
S3_OF_HADOOP = ("s3a", "s3n")  # delta-rs only knows s3


@dataclass(frozen=True)
class Location:
    url: str  # as the user gave it, and as Spark takes it

    @property
    def local(self) -> Path | None:
        """The folder, if it is one of this machine."""
        match = SCHEME.match(self.url)
        if match is None:
            return Path(self.url).absolute()
        return Path("/" + self.url[match.end() :]) if match[1].lower() == "file" else None

    @property
    def delta(self) -> str:
        """As delta-rs takes it."""
        local = self.local
        if local is not None:
            return str(local)
        scheme, _, rest = self.url.partition("://")
        return f"s3://{rest}" if scheme in S3_OF_HADOOP else self.url

    @property
    def spark(self) -> str:
        local = self.local
        return self.url if local is None else str(local)

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.url.rstrip('/')}/{name}")
