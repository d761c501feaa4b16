"""What a request may ask with: parameters and bodies, read strictly and told by OpenAPI in the same words.

A parameter that is not known or not right is answered with what would be: nothing is ignored.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.requests import Request

from mqks.broker.actions.history import MOST_MASKS
from mqks.broker.protocol import jsons
from mqks.names import is_name

ALL = "*"


@dataclass(frozen=True, slots=True)
class Parameter(ABC):
    name: str
    about: str

    place = "query"

    @abstractmethod
    def schema(self) -> dict[str, Any]: ...

    @abstractmethod
    def read(self, values: list[str]) -> Any:
        """From all that were given under this name. A ValueError says what would be right."""


@dataclass(frozen=True, slots=True)
class Count(Parameter):
    default: int
    least: int
    most: int

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most, "default": self.default}

    def read(self, values: list[str]) -> int:
        if not values:
            return self.default
        if len(values) == 1 and re.fullmatch("[0-9]{1,18}", values[0]) and self.least <= int(values[0]) <= self.most:
            return int(values[0])
        raise ValueError(f"give a number from {self.least} to {self.most}")


@dataclass(frozen=True, slots=True)
class Choice(Parameter):
    choices: tuple[str, ...]

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.choices), "default": self.choices[0]}

    def read(self, values: list[str]) -> str:
        if not values:
            return self.choices[0]
        if len(values) == 1 and values[0] in self.choices:
            return values[0]
        raise ValueError(f"give one of {', '.join(self.choices)}")


@dataclass(frozen=True, slots=True)
class Text(Parameter):
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "default": ""}

    def read(self, values: list[str]) -> str:
        if len(values) > 1:
            raise ValueError("give it once")
        return values[0] if values else ""


@dataclass(frozen=True, slots=True)
class Masks(Parameter):
    def schema(self) -> dict[str, Any]:
        items = {"type": "string", "pattern": "^[A-Za-z0-9_.*-]*$"}
        return {"type": "array", "items": items, "maxItems": MOST_MASKS}

    def read(self, values: list[str]) -> list[bytes]:
        """Of none, of an empty one and of a lone star: all."""
        given = [mask for value in values for mask in value.split(",")]
        if len(given) > MOST_MASKS:
            raise ValueError(f"give at most {MOST_MASKS} names or masks")
        if not any(given) or ALL in given:
            return []
        masks = [mask.encode("utf-8", "replace") for mask in given if mask]
        if not all(map(is_name, masks)):
            raise ValueError("give names or masks of events, such as user.*.connected")
        return masks


@dataclass(frozen=True, slots=True)
class Key(Parameter):
    """A name in the path, of any bytes."""

    place = "path"

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}

    def read(self, values: list[str]) -> bytes:
        dots = re.fullmatch(r"~(\.+)", values[0])  # words.key says why
        return dots[1].encode() if dots else unquote_to_bytes(values[0])


@dataclass(frozen=True, slots=True)
class Position(Parameter):
    place = "path"

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}

    def read(self, values: list[str]) -> int:
        if re.fullmatch("[0-9]{1,19}", values[0]) and int(values[0]) < 1 << 63:
            return int(values[0])
        raise ValueError("give a position: the number that a message is listed with")


@dataclass(frozen=True, slots=True)
class Accept(Parameter):
    """The header, which OpenAPI tells by the kinds of answers."""

    place = "header"

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}

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
