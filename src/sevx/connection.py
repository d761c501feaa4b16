"""The verbs of SEVX over one connection that is made when it is first needed, and the receivers that live on it.

The lock is for making and ending the connection only. A handler may use the verbs at any time, also while `disconnect`
waits for it.
"""

import atexit
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

from mqks.client.blocking import Client, Consumer
from mqks.client.options import Options, OptionWords
from sevx.event import Event
from sevx.loop import LoopThread
from sevx.names import default_queue
from sevx.receiver import Receiver

Result = TypeVar("Result")

log = logging.getLogger("sevx")

KEEP_ALIVE = '_ping {"data": "sevx"}'


class Connection:
    def __init__(self) -> None:
        self._prefix: dict[str, Any] = {}
        self._url: str | None = None
        self._options: OptionWords = {}
        self.forked()

    def forked(self) -> None:
        """Nothing is connected: this is new, or in a child process, which has none of its parent's threads."""
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._receivers: set[Receiver[Any]] = set()
        self._loop = LoopThread()

    def connect(self, url: str | None = None, **options: Unpack[OptionWords]) -> None:
        """Connect now, and to this url; without one it is MQKS_URL, else the broker's default on this machine.

        Who does not call this is connected by the first use of anything else. Options are those of `mqks.connect`.
        """
        with self._lock:
            if self._client is not None:
                raise RuntimeError(f"sevx is connected to {self._client.address}: call sevx.disconnect() first")
            self._url, self._options = url, options
            self._open()

    def disconnect(self) -> None:
        """End all receivers, wait for the events they have in hand, send what is buffered, and close."""
        own = threading.current_thread() in {self._loop.thread, *(each.thread for each in list(self._receivers))}
        if not self._lock.acquire(blocking=not own):
            return  # a handler that asks for what is being done, and that is being waited for
        try:
            if self._client is None:
                return
            atexit.unregister(self.disconnect)
            seconds = Options(**self._options).timeout
            self._end_receivers(0 if own else seconds)
            self._client.close()
            self._loop.stop(seconds)
            self._client, self._loop = None, LoopThread()
            self._url, self._options = None, {}
        finally:
            self._lock.release()

    def send_prefix(self, prefix: Mapping[str, Any]) -> None:
        """What every event shall begin with, from now on. An event's own keys win."""
        self._prefix = dict(prefix)

    def send(self, event: Mapping[str, Any], *, wait: bool = False, once: bool | str = False) -> str:
        """Answers the event's id. With wait, the event is safe when this returns; `once` is that of `mqks`."""
        return self._connected().send({**self._prefix, **event}, confirm=wait, once=once)

    def on(
        self,
        pattern: Mapping[str, Any],
        *,
        queue: str | None = None,
        delete_queue_when_unused: bool | float = True,
        manual_ack: bool = False,
        wait: bool = False,
        prefetch: int = 0,
    ) -> Callable[[Callable[[Event], Result]], Receiver[Result]]:
        """Have the function called, sync or async, with each event that has all that the pattern has."""
        wanted = json.loads(json.dumps(pattern))  # a copy, as the broker will see it
        if not isinstance(wanted, dict):
            raise TypeError(f"a pattern is a dict, not {pattern!r}")

        def receive(function: Callable[[Event], Result]) -> Receiver[Result]:
            consumer = self._connected().recv(
                default_queue(function, wanted) if queue is None else queue,
                wanted,
                manual_ack=manual_ack,
                prefetch=prefetch,
                delete_queue_when_unused=delete_queue_when_unused,
            )
            if wait:
                _be_ready(consumer)
            receiver = Receiver(
                function, consumer, manual_ack=manual_ack, loop=self._loop, ended=self._receivers.discard
            )
            self._receivers.add(receiver)
            receiver.thread.start()
            return receiver

        return receive

    def ping(self, data: object = "") -> Any:
        """The broker says the same."""
        return json.loads(self._connected().request("_ping", json.dumps({"data": data})))["data"]

    def eval(self, code: str) -> Any:
        """What the broker says of itself: see `_eval` in the protocol."""
        return json.loads(self._connected().request("_eval", json.dumps({"code": code})))["result"]

    def _connected(self) -> Client:
        client = self._client
        if client is None:
            with self._lock:
                client = self._client or self._open()
        return client

    def _open(self) -> Client:
        self._options.setdefault("ping", KEEP_ALIVE)
        self._client = Client(self._url, **self._options)
        atexit.register(self.disconnect)  # after the client's own close, and so called before it
        return self._client

    def _end_receivers(self, seconds: float) -> None:
        """And wait so long for the events that they have in hand."""
        receivers = list(self._receivers)
        until = time.monotonic() + seconds
        for receiver in receivers:
            receiver.finish()
        for receiver in receivers if seconds else ():
            receiver.thread.join(max(0.0, until - time.monotonic()))
            if receiver.thread.is_alive():
                log.warning("%s is still busy with an event; not waiting for it any more", receiver.name)


def _be_ready(consumer: Consumer) -> None:
    try:
        consumer.ready()
    except BaseException:
        consumer.delete()
        raise
