"""How an action says that a request cannot be done. The client sees an error_id, the log sees the reason."""


class BadRequest(Exception):
    """The reason is one of few fixed texts, so that a flood of one mistake can share an id; the detail is free."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason

    def without_detail(self) -> "BadRequest":
        """For who must not say what the client said."""
        return BadRequest(self.reason)


class Fault(BadRequest):
    """What the broker or its disk is to blame for, not the client."""

    def __init__(self, reason: str, detail: str, cause: Exception | None = None) -> None:
        super().__init__(reason, detail)
        self.__cause__ = cause

    @classmethod
    def unforeseen(cls, error: Exception) -> "Fault":
        return cls("internal error", repr(error)[:200], error)

    def without_detail(self) -> "BadRequest":
        return Fault(self.reason, type(self.__cause__).__name__)


def show(text: bytes) -> str:
    """Client bytes as they may stand in a log line: short and printable."""
    return ascii(text[:200].decode("utf-8", "backslashreplace"))
