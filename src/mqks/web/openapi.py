"""The OpenAPI document: what can be asked, told from the same table that the routes are made from."""

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mqks import __version__
from mqks.web import schemas
from mqks.web.asking import Parameter
from mqks.web.gate import Needs
from mqks.web.guard import ALWAYS
from mqks.web.schemas import Schema

TEXT: Schema = {"type": "string"}
TOKEN = {"type": "http", "scheme": "bearer", "description": "a token of the --auth-file: mqks token new"}
SESSION = {
    "type": "apiKey",
    "in": "cookie",
    "description": "made by POST /api/session; what changes something also needs the header X-CSRF-Token",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path. `does` is called with the Api, who asks, the parameters by name, and `body` if it has one."""

    method: str
    path: str
    does: Callable[..., Awaitable[Any]]
    about: str
    needs: Needs
    answer: Schema | None = None
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    kind: str = "application/json"
    failing: Schema | None = None  # what a 503 says, if not just an error


def document(operations: Iterable[Operation], *, secured: bool, cookie: str) -> dict[str, Any]:
    """Whether tokens are needed depends on the broker: it has an --auth-file, or none."""
    schemes = {"token": TOKEN, "session": {**SESSION, "name": cookie}}
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, secured)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "MQKS",
            "version": __version__,
            "description": "See how the broker is, publish, and look at messages without consuming them.",
        },
        "paths": paths,
        "components": {"schemas": schemas.NAMED, **({"securitySchemes": schemes} if secured else {})},
    }


def _operation(operation: Operation, secured: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": operation.does.__name__,
        "summary": operation.about,
        "responses": {
            "200": _response("Done", operation.answer or TEXT, operation.kind),
            **{
                str(status): _response(why, schemas.ERROR)
                for status, why in _mistakes(operation, secured)
                if not (status == 503 and operation.failing)
            },
        },
    }
    if secured:
        needs = operation.needs
        told["security"] = [] if needs is None else [{"token": list(needs)}, {"session": list(needs)}]
    if operation.failing:
        told["responses"]["503"] = _response("It does not, and why", operation.failing)
    if shown := [each for each in operation.parameters if each.place != "header"]:
        told["parameters"] = [
            {
                "name": each.name,
                "in": each.place,
                "required": each.place == "path",
                "description": each.about,
                "schema": each.schema(),
            }
            for each in shown
        ]
    if operation.body is not None:
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": operation.body}}}
    return told


def _mistakes(operation: Operation, secured: bool) -> Iterable[tuple[int, str]]:
    yield 400, "What was asked for is not right"
    yield 403, "Not from there, or not permitted: see the error"
    if secured and (operation.needs is not None or operation.body is not None):
        yield 401, "Nobody known"
        yield 429, "Too many attempts at one time"
    if re.search("{key}|{position}", operation.path):
        yield 404, "There is no such thing"
    if operation.path not in ALWAYS:
        yield 503, "Not now: see the error"
    if operation.body is not None:
        yield 413, "Too long"
        yield 415, "Not sent as JSON"


def _response(why: str, schema: Schema, kind: str = "application/json") -> dict[str, Any]:
    return {"description": why, "content": {kind: {"schema": schema}}}
