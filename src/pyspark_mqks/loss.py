"""What a reader does about what is missing: the one place where `failOnDataLoss` is decided."""

import logging
from collections.abc import Callable

from mqks.journal import JournalError

log = logging.getLogger("mqks.spark")

Lost = Callable[[int, int, str], None]  # (start, end, why): what stood there cannot be read


class DataLoss(JournalError):
    """Something that should be in the journal is not, or cannot be read."""


def fail(start: int, end: int, why: str) -> None:
    raise DataLoss(
        f"positions {start} to {end} cannot be read: {why}. To go on without them, set option failOnDataLoss to false"
    )


def warn(start: int, end: int, why: str) -> None:
    log.warning("positions %d to %d cannot be read and are left out: %s", start, end, why)


def another(position: int, fail_on_data_loss: bool) -> None:
    """What was read up to there is not in this journal: so neither is what followed it."""
    why = (
        f"the journal is another one than that which was read up to position {position}, or a copy of it that was put "
        "back: begin anew, with a new checkpoint, which for mqks pipeline is a new lake"
    )
    if fail_on_data_loss:
        raise DataLoss(f"{why}. To go on from that position all the same, set option failOnDataLoss to false")
    log.warning("%s. It is gone on from that position all the same", why)


def lost_by(fail_on_data_loss: bool) -> Lost:
    return fail if fail_on_data_loss else warn
