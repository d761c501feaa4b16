"""A client's connection as the broker's policy sees it: who it is, and which of its mistakes were logged lately."""

import ipaddress
from dataclasses import dataclass

from mqks.core.parts import Connection


@dataclass
class Flood:
    """One mistake made again and again: beyond the first few of a second, the rest share an id and a log line."""

    second: int
    error_id: bytes = b""
    logged: int = 0
    unlogged: int = 0


class Client(Connection):
    __slots__ = ("floods", "peer")

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.floods: dict[str, Flood] | None = None

    @property
    def is_local(self) -> bool:
        host = self.peer.rpartition(":")[0].strip("[]").partition("%")[0]
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback
