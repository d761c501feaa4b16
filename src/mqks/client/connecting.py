"""`mqks.connect`: one way in for both clients, of which only the one that is used gets imported."""

from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Unpack

from mqks.client.address import find_address
from mqks.client.options import OptionWords

if TYPE_CHECKING:
    from mqks.client.aio import AsyncClient
    from mqks.client.blocking import Client


class connect:
    """`with connect(url) as mq` is a Client, `async with connect(url) as mq` an AsyncClient.

    Without a url, MQKS_URL tells where the broker is, and without that it is on this machine.
    """

    def __init__(self, url: str | None = None, **options: Unpack[OptionWords]) -> None:
        find_address(url)  # what is wrong is wrong at once
        self._url = url
        self._options = options

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"no {name!r} here: use `with mqks.connect() as mq`, `async with`, or mqks.Client()")

    def __enter__(self) -> "Client":
        from mqks.client.blocking import Client

        self._client = Client(self._url, **self._options)
        return self._client

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.__exit__(kind, error, trace)

    async def __aenter__(self) -> "AsyncClient":
        from mqks.client.aio import AsyncClient

        self._async_client = await AsyncClient(self._url, **self._options).start()
        return self._async_client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._async_client.__aexit__(kind, error, trace)
