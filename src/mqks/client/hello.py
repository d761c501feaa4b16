"""The first request on a connection, without I/O: who we are, and whether the broker takes us.

With a token it is `auth`, else a ping with data, which the original server answers too. A broker that wants a token or
TLS, or that is full, says so as its answer. So nothing is given to a connection that is not let in.

A connection that does not stand raises AuthRefused or TlsFailed, which do not pass by themselves, TurnedAway, which may
or may not, NotABroker, or another OSError.
"""

import time

from mqks.client import protocol
from mqks.client.access import Access
from mqks.client.address import Address
from mqks.client.errors import AuthRefused, TlsFailed
from mqks.client.wire import Ids

FIRST_PING = "ping hello"  # with data: the original server does not answer a ping without
LONGEST = 4096  # bytes of an answer: whoever says more is no broker

CONNECT_SECONDS = 2.0  # for TCP: short, so that a broker that comes back is found soon
HANDSHAKE_SECONDS = 10.0  # for TLS: when all come at once, each waits for the others
ANSWER_SECONDS = 10.0  # for all of it, and the answer
AUTH_SECONDS = 40.0  # the same with a token: that one is wrong is told late, after up to 30 s

NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")
NAME_DIFFERS = {62, 64}  # what OpenSSL numbers: the host, or its IP address, is not in the certificate
OUT_OF_TIME = {9, 10}  # not valid yet, or not any more


class TurnedAway(ConnectionRefusedError):
    """The broker answers nobody's request, but the connection itself, by an error."""


class NotABroker(ConnectionRefusedError):
    """The peer answers something else than the protocol has."""


class Patience:
    """Seconds for all of a connection's steps together, of which each has a part."""

    def __init__(self, access: Access, seconds: float | None) -> None:
        default = AUTH_SECONDS if access.token else ANSWER_SECONDS
        self._until = time.monotonic() + (default if seconds is None else seconds)

    def left(self, most: float = AUTH_SECONDS) -> float:
        left = min(most, self._until - time.monotonic())
        if left <= 0:
            raise TimeoutError
        return left


class Hello:
    def __init__(self, access: Access) -> None:
        self._who = access.who
        self._id = Ids()()
        request = protocol.auth(access.token) if access.token else FIRST_PING
        self.line = protocol.encode(protocol.line(self._id, request))
        self._said = b""

    def heard(self, data: bytes) -> bytes | None:
        """Given what came: None while the answer is not complete, then what came after it. Raises if it is no."""
        self._said += data
        answer, newline, rest = self._said.partition(b"\n")
        if not newline and data and len(answer) < LONGEST:
            return None
        match self._reply(answer) if newline else None:
            case [self._id, True, _]:
                return rest
            case [self._id, False, error_id]:
                raise AuthRefused(self._who, error_id)
            case [protocol.NOBODY, False, error_id]:
                why = f"error {error_id[:100]}; its log says why"
                raise TurnedAway(f"the broker turns us away (no TLS? is it full?): {why}")
        if not answer:
            raise ConnectionResetError("it closed the connection instead of an answer")
        shown = answer[:100].decode(errors="replace").rstrip("\r")
        if answer.startswith(b"HTTP/"):
            raise NotABroker(f"it speaks HTTP and answers {shown!r}")
        raise NotABroker(f"it is no MQKS broker and answers {shown!r}")

    @staticmethod
    def _reply(line: bytes) -> tuple[str, bool, str] | None:
        try:
            return protocol.parse_reply(line.decode(errors="replace"))
        except ValueError:
            return None


def explained(address: Address, error: OSError) -> OSError:
    """The same error, or in its place one that says what to do about TLS."""
    import ssl  # which whoever needs no TLS does not load

    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed(f"cannot trust {address}: {error.verify_message.rstrip('.')}; {_advice(error.verify_code)}")
    if isinstance(error, ssl.SSLEOFError):
        return ConnectionResetError("it closed the connection instead of a handshake of TLS, as one does that is full")
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLZeroReturnError):
        return error
    if not error.reason:  # the connection went, amid something
        return error
    if error.reason in NO_TLS:
        return TlsFailed(f"{address} does not speak TLS; without it the address is mqks://…")
    reason = error.reason.replace("_", " ").lower()
    if "ALERT" in error.reason:
        return TlsFailed(f"{address} refuses TLS: {reason}; does it want another certificate (cert and key)?")
    return TlsFailed(f"no TLS with {address}: {reason}")


def _advice(code: int) -> str:
    if code in NAME_DIFFERS:
        return "reach it by a name that is in its certificate"
    if code in OUT_OF_TIME:
        return "renew its certificate, or set the clock"
    return "name the file of its certificate authority: ca=…, --ca or MQKS_CA"
