"""A connection that stands, for all who block: TCP, TLS where the address asks for it, and the first words."""

import contextlib
import socket
from collections.abc import Callable

from mqks.client.access import Access
from mqks.client.address import Address
from mqks.client.hello import CONNECT_SECONDS, HANDSHAKE_SECONDS, LONGEST, Hello, Patience, explained


def connected(
    address: Address,
    access: Access,
    timeout: float = CONNECT_SECONDS,
    *,
    within: float | None = None,
    reached: Callable[[socket.socket], object] = lambda _: None,
) -> socket.socket:
    """It stands `within` so many seconds, or not at all; from then on each of its calls waits for `timeout` at most,
    until it is told otherwise.

    `reached` is given the socket before anything is said: to `cut` it ends whatever is waited for here.
    """
    patience = Patience(access, within)
    made = socket.create_connection((address.host, address.port), patience.left(timeout))
    try:
        if made.getsockname() == made.getpeername():  # as may happen on loopback, when nobody listens there
            raise ConnectionRefusedError("connected to itself")
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.tls:
            sealed = access.context().wrap_socket(made, server_hostname=address.host, do_handshake_on_connect=False)
            made = sealed
            reached(made)
            made.settimeout(patience.left(HANDSHAKE_SECONDS))
            sealed.do_handshake()
        else:
            reached(made)
        hello = Hello(access)
        made.settimeout(patience.left())
        made.sendall(hello.line)
        while hello.heard(made.recv(LONGEST)) is None:
            made.settimeout(patience.left())
        made.settimeout(timeout)
    except OSError as error:
        made.close()
        raise explained(address, error) from None
    except BaseException:
        made.close()
        raise
    return made


def cut(connection: socket.socket) -> None:
    """Nothing comes or goes any more, for whoever has it; its owner finds out when he uses it. From any thread."""
    with contextlib.suppress(OSError):  # it is gone already
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not that of TLS, which forgets what it has in hand
