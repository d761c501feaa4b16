"""A client does not live on in a child process: its threads are not there, and its connection is the parent's."""

import os
import weakref
from typing import Protocol

from mqks.client.errors import ConnectionLost


class Forked(Protocol):
    def forked(self) -> None:
        """This is the child."""


_watched: "weakref.WeakSet[Forked]" = weakref.WeakSet()
watch = _watched.add


def in_the_child() -> ConnectionLost:
    return ConnectionLost("this client was made before the process forked: make one in the child")


def _tell() -> None:
    for driver in list(_watched):
        driver.forked()
    _watched.clear()


os.register_at_fork(after_in_child=_tell)
