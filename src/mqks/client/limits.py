"""How long a queue may be, as consume, recv and rebind can say it: keywords for users, flags for the broker."""

from typing import Literal, TypedDict

from mqks.values import OVERFLOW_POLICIES


class QueueLimits(TypedDict, total=False):
    """What is not named stays as it is. 0 takes the queue's own limit away: then the broker's holds."""

    max_length: int  # messages, with those that consumers have and did not ack
    max_bytes: int  # of their lines, as the broker keeps them
    overflow: Literal["reject", "drop-oldest"]  # what a full queue does with what comes


def is_flag(word: str) -> bool:
    """Does this word of an --update state a limit?"""
    return word.startswith(("--max-length=", "--max-bytes=", "--overflow="))


def flags(limits: QueueLimits) -> list[str]:
    for name in ("max_length", "max_bytes"):
        value = limits.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**15:
            raise ValueError(f"{name} is a whole number, 0 for no limit, not {value!r}")
    if limits.get("overflow", "reject") not in OVERFLOW_POLICIES:
        raise ValueError(f"overflow is one of {', '.join(OVERFLOW_POLICIES)}, not {limits['overflow']!r}")
    return [f"--{name.replace('_', '-')}={value}" for name, value in limits.items()]
