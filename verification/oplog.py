"""The log of preload.c: every call of a broker on its data folder and its sockets, in order."""

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADER = struct.Struct("<IiqII")


class Kind(enum.IntEnum):
    OPEN = 1
    CLOSE = 2
    WRITE = 3
    SYNC_BEGIN = 4
    SYNC_END = 5
    RENAME = 6
    UNLINK = 7
    MKDIR = 8
    TRUNCATE = 9
    SEND = 10
    RECV = 11
    HANGUP = 12


@dataclass(slots=True)
class Op:
    kind: Kind
    fd: int
    number: int  # offset, size, or inode (negative: truncated as it was opened)
    first: bytes  # path or data
    second: bytes  # the new path


def read(path: Path) -> list[Op]:
    return list(parse(path.read_bytes()))


def parse(data: bytes) -> Iterator[Op]:
    """All whole records. A killed process may leave a part of one."""
    at = 0
    while at + HEADER.size <= len(data):
        kind, fd, number, first, second = HEADER.unpack_from(data, at)
        at += HEADER.size
        if at + first + second > len(data):
            return
        yield Op(Kind(kind), fd, number, data[at : at + first], data[at + first : at + first + second])
        at += first + second


def trace(ops: list[Op], message: str) -> list[str]:
    """The calls that concern one message: received, sent, written, and the syncs of the files that have it."""
    found = []
    names: dict[int, str] = {}
    concerned: set[int] = set()
    for at, op in enumerate(ops):
        if op.kind is Kind.OPEN:
            names[op.fd] = op.first.decode()
            concerned.discard(op.fd)
        elif op.kind in (Kind.SEND, Kind.RECV, Kind.WRITE):
            lines = [line for line in op.first.split(b"\n") if message.encode() in line.split(b" ")]
            if lines and op.kind is Kind.WRITE:
                concerned.add(op.fd)
            where = f"{names.get(op.fd)} at {op.number}" if op.kind is Kind.WRITE else f"connection {op.fd}"
            found += [f"  call {at}: {op.kind.name.lower()} {where}: {line[:80].decode()}" for line in lines]
        elif op.kind in (Kind.SYNC_BEGIN, Kind.SYNC_END) and op.fd in concerned:
            found.append(f"  call {at}: {op.kind.name.lower()} {names.get(op.fd)}")
            if op.kind is Kind.SYNC_END:
                concerned.discard(op.fd)
    return found[:40]
