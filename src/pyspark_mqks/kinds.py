"""The types of values that only Spark's options have. No I/O."""

from dataclasses import replace

from mqks import values
from mqks.client.access import Access
from mqks.client.address import find_address
from mqks.values import ValueType, duration, file, listed, name, number, rate, size

Offsets = int | str  # a position, "earliest" or "latest"


def _names(text: str) -> tuple[str, ...]:
    if "*" in text:
        raise ValueError("give exact names, such as order.new,order.paid; masks are for the option events")
    found: tuple[str, ...] = MASKS.parse(text)
    return found


def _url(text: str) -> str:
    if not text:
        raise ValueError("give the broker's address, such as mqks://127.0.0.1:25000")
    return str(find_address(text))


def _path(text: str) -> str:
    """Spark may make a URL of what it is given."""
    found = text.removeprefix("file://") if text.startswith("file:///") else text.removeprefix("file:")
    path: str = FOLDER.parse(found)
    return path


def _token(text: str) -> str:
    return Access(text.strip()).token or ""


MASKS = listed(
    "MASKS", bool, "give names and masks with a comma between them, such as order.new,user.*.connected", strip=True
)
FOLDER = file("DIR", "give the folder that the broker has as --data")
COUNT = number("N", 1, advice="give a whole number from 1 on")
SIZE_IN_BYTES = size(1, with_b=True, advice="give a size in bytes, or with a letter, such as 64m or 1g")
SECONDS = duration("SECONDS", decimals=6)
RATE = rate("N")
SWITCH = replace(values.SWITCH, metavar="true|false")
NAMES = ValueType("NAMES", _names)
URL = ValueType("URL", _url)
PATH = ValueType("DIR", _path)
SCOPE = name("NAME")
FILE = file("FILE", "give the path of a file that the driver and all executors have")
TOKEN = ValueType("TOKEN", _token)
