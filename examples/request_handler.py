"""A web application that publishes an event for each request, and answers when the broker has it on disk.

It is plain ASGI, which FastAPI and Starlette are made of, so it runs as it is:

    uvicorn request_handler:app --app-dir examples
    curl -d '{"item": "book"}' localhost:8000

Run by hand, without a web server, it makes one such request of its own and prints the answer.

One client serves all requests; the lifespan of the application is that of its connection. In FastAPI, `start` and
`close` go into its `lifespan` function, and `handle` is the body of a route.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import mqks

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]


class App:
    mq: mqks.AsyncClient
    patience = 3.0  # seconds for the broker to answer, since somebody waits

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.live(receive, send)
        elif scope["type"] == "http":
            status, answer = await self.handle(await read_body(receive))
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def live(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        try:
            self.mq = await mqks.AsyncClient().start()
        except mqks.ConnectionLost as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
        await self.mq.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def handle(self, body: bytes) -> tuple[int, dict[str, str]]:
        try:
            order = json.loads(body)
        except ValueError:
            return 400, {"error": "this is not JSON"}
        try:
            async with asyncio.timeout(self.patience):
                return 202, {"id": await self.mq.publish("order.placed", order, confirm=True)}
        except TimeoutError:
            return 503, {"error": "no answer from the broker; the order may still be placed"}
        except mqks.Refused as error:
            return 503, {"error": error.error_id}


async def read_body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    return body


app = App()


async def main() -> None:
    """What a web server does: the lifespan around, and a request."""
    to_app: asyncio.Queue[Event] = asyncio.Queue()
    of_app: asyncio.Queue[Event] = asyncio.Queue()
    lifespan = asyncio.create_task(app({"type": "lifespan"}, to_app.get, of_app.put))
    await to_app.put({"type": "lifespan.startup"})
    started = await of_app.get()
    if started["type"] == "lifespan.startup.failed":
        raise SystemExit(started["message"])

    request: asyncio.Queue[Event] = asyncio.Queue()
    response: asyncio.Queue[Event] = asyncio.Queue()
    await request.put({"type": "http.request", "body": b'{"item": "book"}'})
    await app({"type": "http", "method": "POST", "path": "/"}, request.get, response.put)
    print((await response.get())["status"], (await response.get())["body"].decode())

    await to_app.put({"type": "lifespan.shutdown"})
    await lifespan


if __name__ == "__main__":
    asyncio.run(main())
