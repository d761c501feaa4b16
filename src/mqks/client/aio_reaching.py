"""A connection that stands, on an event loop: TCP, TLS where the address asks for it, and the first words."""

import asyncio

from mqks.client.access import Access
from mqks.client.address import Address
from mqks.client.hello import CONNECT_SECONDS, HANDSHAKE_SECONDS, Hello, Patience, explained


class Greeting(asyncio.Protocol):
    """Has the transport until the broker has answered; what came after its answer is kept."""

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: Exception | None = None
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
            self._done(ConnectionRefusedError("connected to itself"))  # see mqks.client.reaching
        else:
            transport.write(self._hello.line)

    def data_received(self, data: bytes) -> None:
        if self.answered.done():
            self.rest += data
            return
        try:
            rest = self._hello.heard(data)
        except Exception as error:
            self._done(error)
        else:
            if rest is not None:
                self.rest = rest
                self._done()

    def connection_lost(self, error: Exception | None) -> None:
        self._done(error or ConnectionResetError("it closed the connection instead of an answer"))

    def _done(self, error: Exception | None = None) -> None:
        if not self.answered.done():
            self.error = error
            self.answered.set_result(None)


async def connected(
    address: Address, access: Access, protocol: asyncio.Protocol, *, within: float | None = None
) -> None:
    """The protocol has the connection, `within` so many seconds; it is told `connection_made`."""
    patience = Patience(access, within)
    transport: asyncio.Transport | None = None
    try:
        # Authorities are many, and reading them takes a while in which the loop has other things to do.
        context = await asyncio.to_thread(access.context) if address.tls else None
        async with asyncio.timeout(
            patience.left(CONNECT_SECONDS + HANDSHAKE_SECONDS if address.tls else CONNECT_SECONDS)
        ):
            transport, greeting = await asyncio.get_running_loop().create_connection(
                lambda: Greeting(Hello(access)), address.host, address.port, ssl=context
            )
        async with asyncio.timeout(patience.left()):
            await greeting.answered
        if greeting.error is not None:
            raise greeting.error
        if transport.is_closing():
            raise ConnectionResetError("it closed the connection after its answer")
    except OSError as error:
        if transport is not None:
            transport.abort()
        raise explained(address, error) from None
    except BaseException:
        if transport is not None:
            transport.abort()
        raise
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if greeting.rest:
        protocol.data_received(greeting.rest)
