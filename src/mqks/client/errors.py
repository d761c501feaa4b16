"""What can go wrong for a client, each as an error of its own that says what to do next."""


class MqksError(Exception):
    """Any error of a client, so that one `except` can take them all."""


class ConnectionLost(MqksError, ConnectionError):
    """There is no connection, or it went before the answer came."""


class TlsFailed(ConnectionLost):
    """The two do not trust each other, or one of them does not speak TLS: trying again will not help."""


class BufferFull(MqksError):
    """The broker is away or slow, and the buffer has no room for another publish."""


class Refused(MqksError):
    """The broker answered a request with an error."""

    def __init__(self, request: str, error_id: str) -> None:
        shown = request if len(request) <= 100 else f"{request[:100]}…"
        super().__init__(f"the broker refused {shown!r}: error {error_id}; its log says why")
        self.request = request
        self.error_id = error_id

    @property
    def id(self) -> str:
        """Of the request, which is a message's too."""
        return self.request.partition(" ")[0]

    def __reduce__(self) -> tuple[type["Refused"], tuple[str, str]]:
        return type(self), (self.request, self.error_id)


class AuthRefused(Refused):
    """The broker does not let in who shows this token, or who has none."""

    def __init__(self, who: str, error_id: str) -> None:
        super().__init__("auth", error_id)
        self.args = (f"the broker does not let in {who}: error {error_id}; its log says why",)
        self.who = who

    def __reduce__(self) -> tuple[type["AuthRefused"], tuple[str, str]]:
        return AuthRefused, (self.who, self.error_id)
