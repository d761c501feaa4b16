"""SEVX, Simple EVent eXchange: send once, receive everywhere.

    from sevx import on, send

    @on({"obj": "user"})
    def on_event(event): ...

    send({"obj": "user", "act": "updated"})

The functions here belong to one connection of the process, which is made when it is first needed.
"""

import os

from sevx.connection import Connection
from sevx.event import Content, Event
from sevx.receiver import Receiver

__all__ = ["Content", "Event", "Receiver", "connect", "disconnect", "on", "send", "send_prefix"]

_default = Connection()

connect = _default.connect
disconnect = _default.disconnect
send = _default.send
send_prefix = _default.send_prefix
on = _default.on
_ping = _default.ping
_eval = _default.eval

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_default.forked)
