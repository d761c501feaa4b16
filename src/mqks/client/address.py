"""Where the broker is: mqks://host:port, from the caller or from MQKS_URL."""

import os
from typing import NamedTuple
from urllib.parse import urlsplit

DEFAULT_URL = "mqks://127.0.0.1:25000"
DEFAULT_PORT = 25000


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"mqks://[{self.host}]:{self.port}" if ":" in self.host else f"mqks://{self.host}:{self.port}"


def find_address(url: str | None = None) -> Address:
    """The address in the url, else in MQKS_URL, else the broker's default on this machine."""
    url = url or os.environ.get("MQKS_URL") or DEFAULT_URL
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is no address of a broker: {error}") from None
    if parts.scheme != "mqks" or not parts.hostname or parts.path.strip("/") or parts.query or parts.username:
        raise ValueError(f"{url!r} is no address of a broker: it looks like {DEFAULT_URL}")
    return Address(parts.hostname, DEFAULT_PORT if port is None else port)
