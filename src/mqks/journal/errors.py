"""What can be wrong with a journal, or with what was asked of it. Each text says what to do next."""


class JournalError(Exception):
    """The folder holds no journal that can be read as asked."""


class PositionGone(JournalError):
    """What stood at the position has been removed."""


class BeyondEnd(JournalError, ValueError):
    """The journal does not reach that far."""


class UnknownVersion(JournalError):
    """A segment is of a format that this version does not know."""

    def __init__(self, segment: str, version: int) -> None:
        super().__init__(f"{segment} is of format {version}, which this mqks does not know: use a newer one")


class Damaged(JournalError):
    """A segment that should never change again has bytes that are no valid batch."""

    def __init__(self, segment: str, offset: int, reason: str) -> None:
        super().__init__(
            f"{segment} is damaged at byte {offset}: {reason}; look at it with `mqks journal verify DIR`; with the "
            "broker stopped, `mqks journal salvage DIR` or a start with --salvage keeps the rest"
        )
        self.segment = segment
        self.offset = offset
