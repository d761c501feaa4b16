"""The functions of the original client, so that its users move by changing an import:

    from mqks.client import functions as mqks

    mqks.connect()
    consumer_id = mqks.consume("q1", ["e1"], on_msg, manual_ack=True, confirm=True)

There is one connection, made by `connect` or by the first use. A consumer has a thread of its own, in which its
messages come one after the other, as dicts with id, event, data, retry, ack and reject. It keeps its consumer_id when
the connection is made anew, so `on_reconnect(old_consumer_id, new_consumer_id)` is called with the same one twice.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Unpack

from mqks.client.blocking import Client, Consumer
from mqks.client.options import OptionWords, tell
from mqks.client.wire import Ids

log = logging.getLogger("mqks.client")

Msg = dict[str, Any]


class _Running:
    """A consumer and its thread."""

    def __init__(self, consumer: Consumer, on_msg: Callable[[Msg], object]) -> None:
        self.consumer = consumer
        self._on_msg = on_msg
        threading.Thread(target=self._run, name=f"consumer of {consumer.queue}", daemon=True).start()

    def _run(self) -> None:
        try:
            for message in self.consumer:
                msg = {
                    "id": message.id,
                    "event": message.event,
                    "data": message.data,
                    "retry": message.retry,
                    "ack": partial(self.settle, "ack", message.id),
                    "reject": partial(self.settle, "reject", message.id),
                }
                try:
                    self._on_msg(msg)
                except Exception:
                    log.exception("on_msg of queue %s failed with message %s", self.consumer.queue, message.id)
        except Exception:
            log.exception("the consumer of queue %s ends", self.consumer.queue)

    def settle(self, action: str, msg_id: str | None, confirm: bool = False) -> None:
        """One message, or with None all of them."""
        if msg_id is None:
            self.consumer._stream.settle_taken(action, confirm)
        elif message := self.consumer._stream.taken.get(msg_id):
            self.consumer._stream.settle(message, action, confirm)


class _Original:
    """What the functions below share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._ids = Ids()
        self._running: dict[str, _Running] = {}
        self._on_disconnect: dict[str, Callable[[], object]] = {}
        self._on_reconnect: dict[str, Callable[[str, str], object]] = {}

    def client(self) -> Client:
        with self._lock:
            return self._client or self._connect(None)

    def connect(self, url: str | None = None, **options: Unpack[OptionWords]) -> None:
        """To the broker at the url, else at MQKS_URL, else on this machine; again: to that one from now on."""
        self.disconnect()
        with self._lock:
            self._connect(url, **options)

    def _connect(self, url: str | None, **options: Unpack[OptionWords]) -> Client:
        options.setdefault("on_disconnect", self._tell_disconnect)
        options.setdefault("on_reconnect", self._tell_reconnect)
        self._client = Client(url, **options)
        return self._client

    def disconnect(self) -> None:
        """Sends what is buffered, and ends all consumers."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
            self._tell_disconnect()
            for table in (self._running, self._on_disconnect, self._on_reconnect):
                table.clear()

    def _tell_disconnect(self) -> None:
        for hook in list(self._on_disconnect.values()):
            tell(hook)

    def _tell_reconnect(self) -> None:
        for consumer_id, hook in list(self._on_reconnect.items()):
            tell(partial(hook, consumer_id, consumer_id))

    def publish(self, event: str, data: object, confirm: bool = False) -> None:
        self.client().publish(event, data if isinstance(data, str | bytes) else str(data), confirm=confirm)

    def consume(
        self,
        queue: str,
        events: Iterable[str],
        on_msg: Callable[[Msg], object],
        on_disconnect: Callable[[], object] | None = None,
        on_reconnect: Callable[[str, str], object] | None = None,
        delete_queue_when_unused: bool | float = False,
        manual_ack: bool = False,
        add_events: bool = False,
        confirm: bool = False,
    ) -> str:
        """`events` replace the queue's, or with add_events are added to them. Answers the consumer_id."""
        consumer = self.client().consume(
            queue,
            () if add_events else events,
            add_events=events if add_events else (),
            delete_queue_when_unused=delete_queue_when_unused,
            manual_ack=manual_ack,
            prefetch=0,
        )
        if confirm:
            consumer.ready()
        consumer_id = self._ids()
        if on_disconnect:
            self._on_disconnect[consumer_id] = on_disconnect
        if on_reconnect:
            self._on_reconnect[consumer_id] = on_reconnect
        self._running[consumer_id] = _Running(consumer, on_msg)
        return consumer_id

    def rebind(
        self,
        queue: str,
        replace: Iterable[str] | None = None,
        remove: Iterable[str] | None = None,
        add: Iterable[str] | None = None,
        remove_mask: Iterable[str] | None = None,
        confirm: bool = False,  # noqa: ARG002 - always confirmed: it is asked again if the connection breaks
    ) -> None:
        self.client().rebind(queue, replace, remove=remove or (), add=add or (), remove_mask=remove_mask or ())

    def settle(self, action: str, consumer_id: str, msg_id: str | None, confirm: bool) -> None:
        if running := self._running.get(consumer_id):
            running.settle(action, msg_id, confirm)

    def delete_consumer(self, consumer_id: str, confirm: bool = False) -> None:
        self._on_disconnect.pop(consumer_id, None)
        self._on_reconnect.pop(consumer_id, None)
        if running := self._running.pop(consumer_id, None):
            running.consumer.delete()
            if confirm:
                self.client().ping()

    def delete_queue(self, queue: str, confirm: bool = False) -> None:  # noqa: ARG002 - as with rebind
        self.client().delete_queue(queue)

    def ping(self, worker: int = 0, data: str | None = None, confirm: bool = False) -> None:  # noqa: ARG002
        """`worker` is of no meaning here: there is one broker."""
        self.client().ping(data or log.name)

    def evaluate(self, code: str, worker: int = 0) -> str:
        return self.client().request("_eval", f"--worker={worker} {code}")


_original = _Original()

connect = _original.connect
disconnect = _original.disconnect
publish = _original.publish
consume = _original.consume
rebind = _original.rebind
delete_consumer = _original.delete_consumer
delete_queue = _original.delete_queue
ping = _original.ping
_eval = _original.evaluate


def ack(consumer_id: str, msg_id: str, confirm: bool = False) -> None:
    _original.settle("ack", consumer_id, msg_id, confirm)


def ack_all(consumer_id: str, confirm: bool = False) -> None:
    _original.settle("ack", consumer_id, None, confirm)


def reject(consumer_id: str, msg_id: str, confirm: bool = False) -> None:
    _original.settle("reject", consumer_id, msg_id, confirm)


def reject_all(consumer_id: str, confirm: bool = False) -> None:
    _original.settle("reject", consumer_id, None, confirm)
