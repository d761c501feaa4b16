"""The paths that are served, in one table: the routes, who may ask for each, and the OpenAPI document come from it."""

import hashlib
import logging
from collections.abc import Awaitable, Callable
from importlib import resources

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mqks.logs import Entry
from mqks.values import POSITION
from mqks.web import schemas
from mqks.web.answers import Json
from mqks.web.api import Api
from mqks.web.asking import Accept, InPath, Key, Masks, Parameter, arguments, choice, count, json_body
from mqks.web.gate import KNOWN, OPEN, Gate, Needs
from mqks.web.guard import peer
from mqks.web.memory import HttpMemory
from mqks.web.openapi import Operation, document
from mqks.web.rows import SORTS

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

SEE = ("admin",)
READ = ("history",)
PEEK = ("admin", "history")
PUBLISH = ("publish",)
MANAGE = ("manage",)

QUEUE = Key("key", "the queue's name, percent-encoded: `key` of its row")
MANY = count("limit", "how many at most", 1000, 1, 1000)
STRANGERS_BODY = 4096  # bytes, as of a stranger's line on the broker's own port
EVENT_STREAM = "text/event-stream"
PAGES = {"index.html": "/", "login.html": "/login"}
FOR_LOGIN = {"login.html", "login.js", "api.js", "theme.js", "style.css", "icon.svg"}
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

OPERATIONS = (
    Operation(
        "GET", "/healthz", Api.healthz, "Whether messages are taken", OPEN, schemas.HEALTH, failing=schemas.HEALTH
    ),
    Operation(
        "GET",
        "/metrics",
        Api.metrics,
        "All figures, for Prometheus",
        SEE,
        kind="text/plain",
        parameters=(Accept("accept", "which of Prometheus' formats is wanted"),),
    ),
    Operation("GET", "/api/state", Api.state, "How everything is: what the dashboard shows", SEE, schemas.STATE),
    Operation("GET", "/api/live", Api.live, "The state each second, as server-sent events", SEE, kind=EVENT_STREAM),
    Operation(
        "GET",
        "/api/tail",
        Api.tail,
        "Messages as they come, as server-sent events; at most 200 a second, the others are counted",
        READ,
        kind=EVENT_STREAM,
        parameters=(Masks("mask", "events to show, by name or mask; without any: all"),),
    ),
    Operation(
        "GET",
        "/api/queues",
        Api.queues,
        "Queues, those in trouble first",
        SEE,
        schemas.QUEUES,
        parameters=(
            count("limit", "how many at most", 200, 1, 1000),
            count("offset", "how many to leave out before", 0, 0, 1_000_000_000),
            choice("sort", "what comes first", tuple(SORTS)),
            Parameter("name", "only queues whose name has this in it"),
        ),
    ),
    Operation(
        "GET", "/api/queues/{key}", Api.queue, "A queue with its events and consumers", SEE, schemas.QUEUE, (QUEUE,)
    ),
    Operation(
        "DELETE", "/api/queues/{key}", Api.delete, "Delete a queue and all in it", MANAGE, schemas.DELETED, (QUEUE,)
    ),
    Operation(
        "GET",
        "/api/queues/{key}/messages",
        Api.messages,
        "The next messages of a queue; they stay in it",
        PEEK,
        schemas.MESSAGES,
        parameters=(QUEUE, count("limit", "how many at most", 20, 1, 200)),
    ),
    Operation(
        "POST", "/api/queues/{key}/purge", Api.purge, "Drop all that waits in a queue", MANAGE, schemas.PURGED, (QUEUE,)
    ),
    Operation("GET", "/api/consumers", Api.consumers, "Consumers", SEE, schemas.CONSUMERS, (MANY,)),
    Operation("GET", "/api/connections", Api.connections, "Connections of clients", SEE, schemas.CONNECTIONS, (MANY,)),
    Operation(
        "GET",
        "/api/events",
        Api.events,
        "Events that someone listens to, the busiest first",
        SEE,
        schemas.EVENTS,
        parameters=(count("limit", "how many at most", 100, 1, 1000),),
    ),
    Operation("GET", "/api/journal", Api.journal, "What is on disk, and how safely", SEE, schemas.JOURNAL),
    Operation("GET", "/api/pipeline", Api.pipeline, "Spark's jobs, and what they counted", SEE, schemas.PIPELINE),
    Operation(
        "GET",
        "/api/messages/{position}",
        Api.message,
        "One message, whole",
        READ,
        schemas.MESSAGE,
        parameters=(InPath("position", "where it begins in the journal", POSITION),),
    ),
    Operation(
        "POST", "/api/publish", Api.publish, "Publish a message; answered when it is safe", PUBLISH, schemas.PUBLISHED,
        body=schemas.PUBLISH,
    ),
    Operation("GET", "/api/session", Api.session, "Who one is, and what one may", KNOWN, schemas.SESSION),
    Operation(
        "POST", "/api/session", Api.login, "Log in: a cookie for a token", OPEN, schemas.SESSION, body=schemas.LOGIN
    ),
    Operation("DELETE", "/api/session", Api.logout, "Log out", KNOWN, schemas.ENDED),
)  # fmt: skip


def application(api: Api, gate: Gate, memory: HttpMemory, *, max_body: int) -> ASGIApp:
    paths: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = operation
    app = Starlette(
        routes=[
            *(Route(path, _endpoint(api, gate, memory, by, max_body), methods=list(by)) for path, by in paths.items()),
            Route("/openapi.json", _openapi(gate)),
            *_page(gate),
        ],
        exception_handlers={HTTPException: _told, ClientDisconnect: _unread, Exception: _fault},
    )
    app.router.redirect_slashes = False
    return _as_sent(app)


def _as_sent(app: ASGIApp) -> ASGIApp:
    """Routes look at the path as it was sent: decoded, a name with a slash would be two parts, and bytes be lost."""

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        if "raw_path" in scope:
            scope["path"] = scope["raw_path"].decode("latin-1")
        try:
            await app(scope, receive, send)
        except Exception:  # it has been answered with a 500
            log.exception("a request over HTTP met a fault in the broker itself")

    return asked


def _endpoint(api: Api, gate: Gate, memory: HttpMemory, by_method: dict[str, Operation], max_body: int) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        operation = by_method["GET" if request.method == "HEAD" else request.method]
        caller = await gate.admit(request, operation.needs)
        given = arguments(request, operation.parameters)
        with memory.body() as take:
            if operation.body is not None:
                most = STRANGERS_BODY if operation.needs is None else max_body
                given["body"] = await json_body(request, most, take)
                caller = gate.admit_again(caller, operation.needs)  # a body may take its time, and a token go meanwhile
            answer = await operation.does(api, caller, **given)
        response = answer if isinstance(answer, Response) else Json(answer)
        memory.check_answer(len(response.body))
        return response

    return endpoint


def _openapi(gate: Gate) -> Endpoint:
    async def told(request: Request) -> Response:
        caller = await gate.admit(request, KNOWN)
        return Json(document(OPERATIONS, secured=gate.has_authority, cookie=caller.cookie))

    return told


# ── the page ──


def _page(gate: Gate) -> list[Route]:
    """Its files, read once: they are few and small. The browser asks each time whether they have changed."""
    routes = []
    for file in resources.files("mqks.web").joinpath("page").iterdir():
        if file.is_file() and not file.name.startswith("."):
            needs = OPEN if file.name in FOR_LOGIN else KNOWN
            serve = _file(gate, needs, file.read_bytes(), KINDS[file.name.rpartition(".")[2]])
            routes.append(Route(PAGES.get(file.name, f"/page/{file.name}"), serve))
    return routes


def _file(gate: Gate, needs: Needs, content: bytes, kind: str) -> Endpoint:
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'

    async def serve(request: Request) -> Response:
        try:
            await gate.admit(request, needs)
        except HTTPException as error:
            if error.status_code == 401 and request.url.path == PAGES["index.html"]:
                return RedirectResponse(PAGES["login.html"], 303)
            raise
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"etag": tag})
        return Response(content, media_type=kind, headers={"etag": tag})

    return serve


# ── what is wrong ──


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 403:
        said = "a request of {client} over HTTP, {method} {path!a}, is refused: {reason}"
        asked = {"client": peer(request.client), "method": request.method, "path": request.url.path[:200]}
        if name := getattr(request.state, "token", ""):
            said += " token={token!a}"
            asked["token"] = name
        log.warning(Entry(said, **asked, reason=error.detail))
    told = {
        "Not Found": "there is nothing at this path: /openapi.json tells what there is",
        "Method Not Allowed": f"this path does not take {request.method}: /openapi.json tells what it takes",
    }.get(error.detail, error.detail)
    return Json({"error": told}, error.status_code, headers=error.headers)


async def _unread(_: Request, __: Exception) -> Response:
    """The client went in the middle of its own request: nobody reads this."""
    return Response(status_code=400)


async def _fault(_: Request, __: Exception) -> Response:
    return Json({"error": "a fault in the broker itself: its log tells more"}, 500)
