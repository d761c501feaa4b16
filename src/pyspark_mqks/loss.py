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


def lost_by(fail_on_data_loss: bool) -> Lost:
    return fail if fail_on_data_loss else warn
