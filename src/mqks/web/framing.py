"""h11's parser without what it tolerates: requests whose end two parsers may see at two places.

A proxy in front of the broker and the broker itself must agree where a request ends. Otherwise a client smuggles a
second request past the proxy. h11 accepts a bare LF as end of a line, folded headers, and both `Content-Length` and
`Transfer-Encoding`. Here each of them is an error: the client gets a 400 and the connection closes.
"""

import re

import h11

MALFORMED_LINES = re.compile(rb"(?<!\r)\n|\n[ \t]")  # a bare LF, a folded header
BODY_LENGTH = re.compile(rb"\n(?:content-length|transfer-encoding):", re.IGNORECASE)


class StrictConnection(h11.Connection):
    """The server's side of a connection. An error is final: nothing is parsed after it."""

    _refused = False
    _last = b""  # byte that was consumed: h11 may consume the CR of a line without its LF

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self._refused:
            raise h11.RemoteProtocolError("nothing is parsed after an error")
        unread, _ = self.trailing_data
        event = super().next_event()
        rest, _ = self.trailing_data
        consumed = unread[: len(unread) - len(rest)]
        if isinstance(event, h11.Request | h11.EndOfMessage):  # h11 has consumed lines only: the head, or the trailer
            self._check(event, consumed)
        self._last = consumed[-1:] or self._last
        return event

    def _check(self, event: h11.Request | h11.EndOfMessage, lines: bytes) -> None:
        if MALFORMED_LINES.search(self._last + lines, len(self._last)):
            self._refuse("a line ends in a bare LF, or a header is folded")
        if isinstance(event, h11.Request) and len(BODY_LENGTH.findall(lines)) > 1:
            self._refuse("more than one header says how long the body is")

    def _refuse(self, reason: str) -> None:
        self._refused = True
        raise h11.RemoteProtocolError(reason)
