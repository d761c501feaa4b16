"""What clients may take of the broker, in one table: the value of each limit, what is said when it is reached, and how
often it was. It decides nothing: whoever finds a limit reached raises, or tells, what `reached` answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mqks.broker.errors import BadRequest

# Those that no option changes.
FIXED: Mapping[str, str] = {
    "histories": "too many histories at once on one connection",
    "holds": "too many holds",
}
# The names are those of the options; what is said names the flag, so that an operator knows what to change.
REASONS: Mapping[str, str] = {
    "max_line": "the line is longer than --max-line",
    "max_connections": "--max-connections is reached",
    "max_connections_per_address": "--max-connections-per-address is reached",
    "max_rate": "it makes more requests a second than --max-rate",
    "auth_timeout": "it did not say who it is within --auth-timeout",
    "line_timeout": "a line did not end within --line-timeout",
    "max_queues": "--max-queues is reached: delete some queue first",
    "max_events": "a queue or a history may have no more events than --max-events",
    "max_consumers": "--max-consumers of one connection is reached",
    "max_unacked": "a consumer asked for more unacked messages than --max-unacked",
    "max_length": "a queue is full: its --max-length is reached",
    "max_bytes": "a queue is full: its --max-bytes is reached",
    "min_free_disk": "the disk takes no more: see the log of the broker",
    "max_memory": "out of memory: --max-memory is reached, consume or delete some queue first",
    **FIXED,
}


@dataclass
class Limits:
    """0 stands for no limit, where that is a choice."""

    max_connections: int = 10_000
    max_connections_per_address: int = 5_000
    max_rate: int = 0
    auth_timeout: float = 10.0
    line_timeout: float = 60.0
    max_queues: int = 100_000
    max_events: int = 10_000
    max_consumers: int = 10_000
    max_unacked: int = 0
    max_length: int = 0
    max_bytes: int = 0
    overflow: str = "reject"
    # How often each was reached; and by whom or what the last time, where that is known.
    times: dict[str, int] = field(init=False, default_factory=lambda: dict.fromkeys(REASONS, 0))
    latest: dict[str, str] = field(init=False, default_factory=dict)

    def reached(self, name: str, detail: str = "") -> BadRequest:
        """Count it, and answer the error to raise or to log."""
        self.times[name] += 1
        self.latest[name] = detail
        return BadRequest(REASONS[name], detail)
