"""What a client receives: messages of a queue, and records of the history. Data is text that gives back its bytes."""

import json
from typing import Any, NamedTuple


class Message:
    """A message as a consumer got it. What settles it, `ack` and `reject`, is added by each client in its own way.

    It holds its consumer, which stays one as long as anybody holds it: so a message can be settled after the loop.
    """

    __slots__ = ("consumer", "consumer_id", "data", "event", "id", "retry")

    def __init__(self, id: str, event: str, data: str, retry: int, consumer_id: str) -> None:
        self.id = id
        self.event = event
        self.data = data
        self.retry = retry
        self.consumer: Any = None  # set when it is handed to the user
        self.consumer_id = consumer_id  # the consumer's name on the connection over which this message came

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def bytes(self) -> bytes:
        return self.data.encode("utf-8", "surrogateescape")

    def __repr__(self) -> str:
        retry = f", retry={self.retry}" if self.retry else ""
        return f"<message {self.id} event={self.event}{retry} {self.data[:80]!r}>"


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
        text = data
    elif isinstance(data, bytes | bytearray | memoryview):
        text = bytes(data).decode("utf-8", "surrogateescape")
    else:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    text.encode("utf-8", "surrogateescape")  # half of a pair is no text, and must not get as far as the socket
    for character, name in (("\n", "a newline"), ("\t", "a TAB"), ("\0", "a NUL")):
        if character in text:
            raise ValueError(f"data may not hold {name}: give a dict, list or other object to have it sent as JSON")
    if text.endswith("\r"):
        raise ValueError("data may not end in a carriage return, which the broker takes for a part of the line's end")
    return text
