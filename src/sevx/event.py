"""What a handler gets. An event parses its JSON when it is first looked into, and settles itself over the message."""

import json
import re
from datetime import datetime
from functools import cached_property
from typing import Any

from mqks.client.blocking import Message

_DTID = re.compile(r"([0-9]{20})[0-9A-Za-z]{4}")
_RETRY = re.compile(r'\{"retry": ([0-9]+)[,}]')  # as the broker puts it before what was sent


class Content(dict[str, Any]):
    """A JSON object whose keys are attributes too: `content.data.name` is `content["data"]["name"]`.

    A key that is named like a method of dict (`items`, `keys`, …) is reached with brackets only.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in self and not name.startswith("__"):
            return self[name]
        raise AttributeError(f"there is no {name!r} in this event, but: {', '.join(self) or 'nothing'}", name=name)


class Event:
    """An event as a receiver got it. Without a message, as in a unit test of a handler, it cannot be settled."""

    def __init__(self, id: str, json: str, message: Message | None = None) -> None:
        self.id = id
        self.json = json
        self.settled = False
        self._message = message

    @cached_property
    def content(self) -> Any:
        return json.loads(self.json, object_hook=Content)

    @property
    def dt(self) -> datetime | None:
        """When it was sent, in UTC, which its id tells; None for an id that is no dtid."""
        try:
            return datetime.strptime(found[1], "%Y%m%d%H%M%S%f") if (found := _DTID.fullmatch(self.id)) else None
        except ValueError:
            return None

    @property
    def retry(self) -> int:
        """How often it came before."""
        return int(found[1]) if (found := _RETRY.match(self.json)) else 0

    def ack(self, wait: bool = False) -> bool:
        """It was processed. False: it was settled before, or the connection it came over is gone, and it will come
        again."""
        return self._settle("ack", self._message, wait)

    def ack_all(self, wait: bool = False) -> bool:
        """All that the broker has given to this receiver were."""
        return self._settle("ack", None, wait)

    def reject(self, wait: bool = False) -> bool:
        """Back to the queue, with retry + 1. Answers as ack does."""
        return self._settle("reject", self._message, wait)

    def reject_all(self, wait: bool = False) -> bool:
        return self._settle("reject", None, wait)

    def _settle(self, action: str, which: Message | None, wait: bool) -> bool:
        if self._message is None:
            raise RuntimeError(f"an event is only there to {action} with @on(…, manual_ack=True)")
        self.settled = True
        stream = self._message.stream
        return stream.settle(which, action, wait) if which else stream.settle_all(action, wait)

    def __repr__(self) -> str:
        return f"<event {self.id} {self.json[:80]}>"
