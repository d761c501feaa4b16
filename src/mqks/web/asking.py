"""What a request may ask with: parameters and bodies, read strictly and told by OpenAPI in the same words.

A parameter that is not known or not right is answered with what would be: nothing is ignored.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.requests import Request

from mqks.broker.actions.history import MOST_MASKS
from mqks.broker.protocol import jsons
from mqks.values import ValueType, masks, number, word

VERBATIM = ValueType("TEXT", str)


def name_of_key(text: str) -> bytes:
    dots = re.fullmatch(r"~(\.+)", text)  # words.key says why
    return dots[1].encode() if dots else unquote_to_bytes(text)


MASKS = masks(MOST_MASKS)
KEY = ValueType("KEY", name_of_key, schema={"type": "string", "minLength": 1})


@dataclass(frozen=True, slots=True)
class Parameter:
    """In the query, unless a subclass says otherwise."""

    name: str
    about: str
    value: ValueType = VERBATIM
    default: object = ""

    place = "query"

    def schema(self) -> dict[str, Any]:
        return {**self.value.schema, "default": self.default}

    def read(self, values: list[str]) -> Any:
        """From all that were given under this name. A ValueError says what would be right."""
        if not values:
            return self.default
        if len(values) > 1:
            raise ValueError("give it once")
        return self.value.parse(values[0])


def count(name: str, about: str, default: int, at_least: int, at_most: int) -> Parameter:
    return Parameter(name, about, number("N", at_least, at_most), default)


def choice(name: str, about: str, choices: tuple[str, ...]) -> Parameter:
    """The first one is the default."""
    return Parameter(name, about, word("WORD", *choices, any_case=False), choices[0])


@dataclass(frozen=True, slots=True)
class Masks(Parameter):
    """May be given more than once."""

    value: ValueType = MASKS

    def schema(self) -> dict[str, Any]:
        return dict(self.value.schema)

    def read(self, values: list[str]) -> list[bytes]:
        found: list[bytes] = self.value.parse(",".join(values))
        return found


@dataclass(frozen=True, slots=True)
class InPath(Parameter):
    place = "path"

    def schema(self) -> dict[str, Any]:
        return dict(self.value.schema)


@dataclass(frozen=True, slots=True)
class Key(InPath):
    """A name, of any bytes."""

    value: ValueType = KEY


@dataclass(frozen=True, slots=True)
class Accept(Parameter):
    """The header, which OpenAPI tells by the kinds of answers."""

    place = "header"

    def read(self, values: list[str]) -> str:
        return ",".join(values)


def arguments(request: Request, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """All parameters by name, as the operation takes them."""
    in_query = {each.name for each in parameters if each.place == "query"}
    for name in request.query_params:
        if name not in in_query:
            known = f"known are {', '.join(sorted(in_query))}" if in_query else "this takes none"
            raise HTTPException(400, f"unknown parameter {name[:100]!r}: {known}")
    found = {}
    for each in parameters:
        try:
            found[each.name] = each.read(_given(request, each))
        except ValueError as error:
            raise HTTPException(400, f"{each.name}: {error}") from None
    return found


def _given(request: Request, parameter: Parameter) -> list[str]:
    if parameter.place == "path":
        return [request.path_params[parameter.name]]
    return (request.headers if parameter.place == "header" else request.query_params).getlist(parameter.name)


async def json_body(request: Request, most: int, take: Callable[[int], None]) -> Any:
    """`take` is told of each piece that comes."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "send JSON, with the header content-type: application/json")
    body = bytearray()
    async for piece in request.stream():
        take(len(piece))
        body += piece
        if len(body) > most:
            raise HTTPException(413, f"at most {most} bytes are taken: send less, or raise mqksd's --max-line")
    try:
        return jsons.loads(bytes(body))
    except ValueError as error:
        raise HTTPException(400, f"this is not JSON: {error}") from None
