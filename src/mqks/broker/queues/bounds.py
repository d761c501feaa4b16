"""The limits that one queue has of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mqks.broker.protocol.words import BYTES, LENGTH, OVERFLOW


@dataclass(frozen=True)
class Bounds:
    """What a queue has of its own; 0 and none: what the broker has."""

    max_length: int = 0
    max_bytes: int = 0
    overflow: bytes = b""

    def changed(self, flags: Mapping[bytes, Any]) -> Bounds:
        """With what these flags say, of those that a request has."""
        if flags.keys().isdisjoint((LENGTH, BYTES, OVERFLOW)):
            return self  # most queues share one
        return Bounds(
            flags.get(LENGTH, self.max_length),
            flags.get(BYTES, self.max_bytes),
            flags.get(OVERFLOW, self.overflow),
        )

    def values(self) -> dict[bytes, bytes]:
        """Each flag and its value."""
        return {LENGTH: b"%d" % self.max_length, BYTES: b"%d" % self.max_bytes, OVERFLOW: self.overflow}

    def text(self) -> bytes:
        """As flags, each after a space."""
        return b"".join(b" %s=%s" % (flag, value) for flag, value in self.values().items() if value not in (b"0", b""))

    def differing(self, other: Bounds) -> set[bytes]:
        """The flags whose values are not the same."""
        if self == other:
            return set()
        return {flag for flag, _ in self.values().items() ^ other.values().items()}

    @classmethod
    def read(cls, flags: Mapping[bytes, bytes]) -> Bounds:
        """From such flags, among others."""
        return cls(int(flags.get(LENGTH, 0)), int(flags.get(BYTES, 0)), flags.get(OVERFLOW, b""))


NO_BOUNDS = Bounds()
