"""Event names with their ids masked, so that `user.17.connected` and `user.18.connected` can be counted as one.

An id is a whole word between the dots: digits, a UUID, long hexadecimal with a digit in it, a dtid, a ULID. One regular
expression says so, in the words that Python and Java share: Spark and this process mask alike.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

MASKED = "{id}"

_HEX = "[0-9a-fA-F]"
_KINDS = (
    "[0-9]+",
    f"{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}",  # UUID
    f"(?=[a-fA-F]*[0-9]){_HEX}{{8,}}",  # "facade" and "deadbeef" are words
    "[0-9]{20}[0-9A-Za-z]{4}",  # dtid
    "[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}",  # ULID
)
ID = rf"(?<![^.])(?:{'|'.join(_KINDS)})(?![^.])"
_ID = re.compile(ID)


def mask(event: str) -> str:
    return _ID.sub(MASKED, event)


def masked(event: str) -> Column:
    """The same of a column that has events."""
    from pyspark.sql import functions as F

    return F.regexp_replace(event, ID, MASKED)
