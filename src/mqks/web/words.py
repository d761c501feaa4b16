"""Names as people read them, and as URLs carry them: safe to be sent, and never long."""

from hashlib import sha256
from urllib.parse import quote_from_bytes

from mqks.names import text

MOST_SHOWN = 200  # characters of a name
LONGEST_KEY = 1000  # bytes of a name that stands in URLs as it is
BEGINNING = 100  # bytes of a longer one


def address(name: bytes) -> bytes:
    """The name, or of a very long one its beginning and a digest: no name has a space, so this is nobody else's."""
    if len(name) <= LONGEST_KEY:
        return name
    return b"%s %s" % (name[:BEGINNING], sha256(name).hexdigest()[:32].encode())


def key(name: bytes) -> str:
    """A name as a URL has it, whatever bytes it is made of. Dots alone would be taken for folders: they get a ~."""
    quoted = quote_from_bytes(address(name), safe="").replace("~", "%7E")
    return quoted if quoted.strip(".") else f"~{quoted}"


def safe(told: str) -> str:
    """What JSON allows and UTF-8 does not, half a pair of surrogates, is escaped."""
    return told.encode("utf-8", "backslashreplace").decode()


def short(told: str, most: int = MOST_SHOWN) -> str:
    return told if len(told) <= most else told[: most - 1] + "…"


def named(name: bytes) -> str:
    """A name to be shown: of a long one, the beginning."""
    return short(text(name[: 4 * MOST_SHOWN + 4]))


def shown(name: str) -> str:
    """Nothing in it can break a line or hide: what is not printable is escaped."""
    name = short(name)
    return name if name.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def quoted(name: str) -> str:
    return "`" + shown(name).replace("`", r"\x60") + "`"
