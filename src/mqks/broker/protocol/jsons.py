"""JSON as we take it: strict, and an object where a request needs one."""

import json
import math
from typing import Any, NoReturn

from mqks.broker.errors import BadRequest


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


# Of lists and objects in each other. Python's own limit depends on who calls, and what is taken once must be taken
# again at a start.
MOST_NESTED = 500

_decode = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite).decode


def loads(text: bytes) -> Any:
    """Raises ValueError for anything that is not strict JSON in UTF-8."""
    try:
        value = _decode(text.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if text.count(b"[") + text.count(b"{") > MOST_NESTED and _is_deep(value):
        raise ValueError("nested too deeply")
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_NESTED + 1):
        inside = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [item for each in inside for item in each]
    return bool(level)


def load_object(text: bytes) -> dict[str, Any]:
    try:
        value = loads(text)
    except ValueError as error:
        raise BadRequest("not JSON", str(error)) from None
    if not isinstance(value, dict):
        raise BadRequest("not a JSON object")
    return value


def is_said_twice(key: str, text: bytes) -> bool:
    """In the object that `load_object` took: of a key that is there again the last one counts, but readers differ."""
    keys: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        keys[:] = [name for name, _ in pairs]  # the outermost object comes last

    json.loads(text.decode(), object_pairs_hook=note)
    return keys.count(key) > 1


def dumps(value: Any) -> bytes:
    return json.dumps(value).encode()
