"""The table of hostile loads: one for each kind of object that a client can create.

A load is a generator. It creates objects until the broker refuses more, or far more than memory has room for. Then it
yields, so that the broker can be looked at while it is full, and releases what closing its connections does not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from verification import connection_loads, request_loads
from verification.stage import Stage

MEMORY = "out of memory: --max-memory is reached, consume or delete some queue first"
MEMORY_ONLY = "--memory"
HTTP = ("--http", "--http-port=0")
TLS = "--tls-cert"  # its value is made for each case


@dataclass
class Kind:
    load: Callable[[Stage], Iterator[None]]
    reasons: tuple[str, ...] = (MEMORY,)  # that the log may give for a refusal
    flags: tuple[str, ...] = ()
    limits: tuple[int, ...] = (8, 16)  # --max-memory in MiB


KINDS = {
    "messages": Kind(request_loads.messages),
    "messages in memory": Kind(request_loads.messages, flags=(MEMORY_ONLY,)),
    "unacked messages": Kind(request_loads.unacked_messages),
    "ids": Kind(request_loads.ids, flags=("--dedup-window=2s",)),
    "queues": Kind(request_loads.queues, (MEMORY, "--max-queues is reached")),
    "events": Kind(request_loads.events),
    "patterns": Kind(request_loads.patterns, (MEMORY, "--max-consumers of one connection is reached")),
    "holds": Kind(request_loads.holds, (MEMORY, "holds")),
    "consumers": Kind(request_loads.consumers, (MEMORY, "--max-consumers of one connection is reached")),
    "histories": Kind(request_loads.histories, (MEMORY, "histories")),
    "unread replies": Kind(connection_loads.unread_replies),
    "unread deliveries": Kind(connection_loads.unread_deliveries),
    "half lines": Kind(connection_loads.half_lines),
    "connections": Kind(
        connection_loads.connections,
        (MEMORY, "--max-connections-per-address is reached"),
        ("--max-connections-per-address=2000",),
    ),
    "TLS handshakes": Kind(connection_loads.tls_handshakes, flags=(TLS,)),
    "TLS connections": Kind(connection_loads.tls_connections, flags=(TLS,)),
    "HTTP streams": Kind(connection_loads.http_streams, flags=HTTP),
    "HTTP requests": Kind(connection_loads.http_requests, flags=HTTP),
}
