"""Sizes, durations, counts, rates and times as people read them, in logs, commands and the dashboard's sentences.

Other modules do not format these. The dashboard's page does, in JavaScript (`web/page/format.js`):
`tests/web/test_formatting.py` compares the two. How options write sizes and durations is in `values`.
"""

from datetime import datetime

SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
DURATIONS = ((86_400, "day"), (3_600, "h"), (60, "min"), (1, "s"))
IN_TWO_UNITS = ((86_400, "d"), *DURATIONS[1:])


def size(count: float) -> str:
    """In three digits: 512 bytes, 1.5 KiB, 64 MiB."""
    for unit, name in SIZES:
        if count >= unit:
            return f"{count / unit:,.3g} {name}" if count < 1000 * unit else f"{count / unit:,.0f} {name}"
    return f"{count:,.0f} bytes"


def size_in_tenths(count: float) -> str:
    """With one decimal, for columns: 512 B, 1.5 KiB, 64.0 MiB."""
    for unit, name in SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """In the largest unit that it fills twice, so that little is lost: 119 s, 2 min, 36 h, 2 days."""
    for unit, name in DURATIONS:
        if seconds >= 2 * unit or unit == 1:
            number = int(seconds // unit)
            return counted(number, name) if name == "day" else f"{number:,} {name}"
    raise AssertionError("seconds are the last unit")


def duration_in_two_units(seconds: float) -> str:
    """In the two largest units that it has: 59 s, 1 h 1 min, 10 d."""
    left = int(seconds)
    parts: list[str] = []
    for unit, name in IN_TWO_UNITS:
        number, left = divmod(left, unit)
        if number or (unit == 1 and not parts):
            parts.append(f"{number} {name}")
    return " ".join(parts[:2])


def counted(count: int, one: str, many: str | None = None) -> str:
    """1 message, 1,204 messages."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def rate(per_second: float) -> str:
    """Few have a decimal: 3.5/s, 1,204/s."""
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"


def time_in_utc(time: datetime | None) -> str:
    """To the microsecond; `-` where there is none."""
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z") if time else "-"
