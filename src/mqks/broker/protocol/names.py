"""Names in requests: those that are not legal are a mistake of the client's."""

from mqks.broker.errors import BadRequest, show
from mqks.names import is_event, is_name


def check_name(name: bytes) -> bytes:
    if not is_name(name):
        raise BadRequest("not a legal name", show(name))
    return name


def check_event(name: bytes) -> bytes:
    if not is_event(name):
        raise BadRequest("not a legal event", show(name))
    return name
