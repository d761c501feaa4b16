"""Where the broker is: mqks://host:port, or mqkss:// for TLS, from the caller or from MQKS_URL."""

import ipaddress
import os
import re
from typing import NamedTuple
from urllib.parse import urlsplit

DEFAULT_URL = "mqks://127.0.0.1:25000"
DEFAULT_PORT = 25000
SECRET = re.compile("[@?#]")  # where one might stand
IS_TLS = {"mqks": False, "mqkss": True}


class Address(NamedTuple):
    host: str
    port: int
    tls: bool = False

    @property
    def is_here(self) -> bool:
        """By its name alone: what is sent there does not leave this machine."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        scheme, host = "mqkss" if self.tls else "mqks", f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


def find_address(url: str | None = None) -> Address:
    """The address in the url, else in MQKS_URL, else the broker's default on this machine."""
    url = url or os.environ.get("MQKS_URL") or DEFAULT_URL
    if SECRET.search(url):  # which is shown nowhere
        raise ValueError("an address of a broker has no @, ? or #: give a token by token=…, --token-file or MQKS_TOKEN")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is no address of a broker: {error}") from None
    if parts.scheme not in IS_TLS or not parts.hostname or parts.path.strip("/"):
        raise ValueError(f"{url!r} is no address of a broker: it looks like {DEFAULT_URL}, or mqkss://… for TLS")
    return Address(parts.hostname, DEFAULT_PORT if port is None else port, IS_TLS[parts.scheme])
