"""How an action says that a request cannot be done. The client sees an error_id, the log sees the reason."""


class BadRequest(Exception):
    """The reason is one of few fixed texts, so that a flood of one mistake can share an id; the detail is free."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


def show(text: bytes) -> str:
    """Client bytes as they may stand in a log line: short and printable."""
    return ascii(text[:200].decode("utf-8", "backslashreplace"))
