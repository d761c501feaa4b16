"""A client's connection as the broker's policy sees it: who it is, since when, what it may do, when its budget of
requests was last filled, and which of its mistakes were logged lately."""

import ipaddress
from dataclasses import dataclass

from mqks.broker.auth.access import NOTHING, Rights
from mqks.core.parts import Connection

# Bytes of memory; measured, and rounded up.
CONNECTION_COST = 1000
TLS_COST = 64 << 10  # OpenSSL's buffers, during the handshake and after it


@dataclass
class Flood:
    """One mistake made again and again: beyond the first few of a second, the rest share an id and a log line."""

    second: int
    error_id: bytes = b""
    logged: int = 0
    unlogged: int = 0


class Client(Connection):
    __slots__ = ("cost", "floods", "peer", "refilled", "rights", "since")

    def __init__(self, peer: str, since: float = 0.0, *, inside: bool = False, cost: int = CONNECTION_COST) -> None:
        self.peer = peer
        self.cost = cost  # bytes of memory that are charged for it
        self.since = since  # by the broker's clock
        self.refilled = since  # likewise
        self.rights: Rights = NOTHING  # see Authentication
        self.inside = inside  # one of this process's own: in no list, and not counted
        self.floods: dict[str, Flood] | None = None


def is_loopback(peer: str) -> bool:
    address = _address(peer)
    return address is not None and address.is_loopback


def origin(peer: str) -> str:
    """Who counts as one: an address; of IPv6 a network of 64 bits, since who has one address there has them all."""
    address = _address(peer)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return peer if address is None else str(address)


def _address(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Of "host:port", "[host]:port" or a host alone. One of IPv4 that came through a socket of IPv6 is one of IPv4."""
    host = peer.rpartition(":")[0] if peer.count(":") == 1 or "]:" in peer else peer
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
