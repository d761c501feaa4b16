"""What goes to the broker as data, and what comes from its history. Messages of queues are in the compiled part."""

import json
from typing import Any, NamedTuple

from mqks.client.protocol import decode, encode, not_in_data


class Record(NamedTuple):
    """A message of the history, and where it stands in the journal."""

    position: int
    id: str
    event: str
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


def to_text(data: object) -> str:
    """Text and bytes as they are, all else as JSON; ValueError for what a line of the protocol cannot carry."""
    if isinstance(data, str):
        text = str.__str__(data)  # an enum's value, not its name
    elif isinstance(data, bytes | bytearray | memoryview):
        text = decode(bytes(data))
    else:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    encode(text)  # half of a pair is no text, and must not get as far as the socket
    if wrong := not_in_data(text):
        raise ValueError(f"data may not hold {wrong}: give a dict, list or other object to have it sent as JSON")
    if text.endswith("\r"):
        raise ValueError("data may not end in a carriage return, which the broker takes for a part of the line's end")
    return text
