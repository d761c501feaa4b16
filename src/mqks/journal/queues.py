"""The queues of a data folder as its newest checkpoint has them, for whoever looks from outside. It only reads.

A running broker is ahead of its checkpoint: `stats` tells how things are now.
"""

from pathlib import Path

from mqks.journal.progress import FOLDER, POSITION_BITS, Checkpoint, Kept


def describe(folder: Path) -> list[dict[str, object]]:
    """Each queue with its messages, the lowest position that it holds, and the position at which that was so."""
    found = sorted((folder / FOLDER).glob("*.checkpoint"))
    try:
        made = Checkpoint.unpack(int(found[-1].stem), found[-1].read_bytes()) if found else None
    except FileNotFoundError:  # the broker has just made another
        return describe(folder)
    return [_row(kept, made.position) for kept in made.queues] if made else []


def _row(kept: Kept, position: int) -> dict[str, object]:
    words = memoryview(kept.snapshot).cast("Q")
    _, unsettled, returned, parts = words[:4]
    items = [words[4 + 2 * i] for i in range(unsettled + returned)]
    messages = len(items)
    at = 4 + 2 * len(items)
    for part in range(parts):
        place, count = words[at : at + 2]
        messages += count
        if not place and part == 0:  # what is delivered next; the index has nothing lower, retries aside
            items += words[at + 2 : at + 2 + count]
        at += 2 if place else 2 + count
    return {
        "queue": kept.name.decode("utf-8", "backslashreplace"),
        "messages": messages,
        "unacked": unsettled,
        "low_water": min((item & ((1 << POSITION_BITS) - 1) for item in items), default=position),
        "as_of": position,
    }
