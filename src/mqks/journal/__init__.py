"""The journal: all that the broker has taken, in text files that anyone may read.

    from mqks.journal import Reader

    for message in Reader("mqks-data").messages(start="earliest", events=["order.*"], follow=True):
        print(message.position, message.time, message.event, message.data)

`format` is the format, `reader` reads it from outside, `verify` and `salvage` look after it. docs/JOURNAL.md describes
it all. The journal knows nothing of the broker.
"""

from mqks.journal.errors import BeyondEnd, Damaged, JournalError, PositionGone, UnknownVersion
from mqks.journal.messages import Message
from mqks.journal.reader import Batch, Reader, Segment

__all__ = [
    "Batch",
    "BeyondEnd",
    "Damaged",
    "JournalError",
    "Message",
    "PositionGone",
    "Reader",
    "Segment",
    "UnknownVersion",
]
