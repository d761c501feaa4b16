"""The functions of the original client, so that its users move by changing an import:

    from mqks.client import functions as mqks

    mqks.connect()
    consumer_id = mqks.consume("q1", ["e1"], on_msg, manual_ack=True, confirm=True)

Functions return the id of their request: `publish` the message's, `consume` the consumer's. With `confirm` they wait
for the answer, for as long as it takes. A consumer that is restored on a new connection has a new id, as it has on the
wire: `on_reconnect(old_consumer_id, new_consumer_id)` tells it, and what came before cannot be acked any more.

Each consumer has a thread, which calls `on_msg` with one message after the other. A message is a dict with id, event,
data, ack and reject, and with retry, as text, if it was delivered before.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Unpack

from mqks.client import protocol, verbs
from mqks.client.blocking import Client, Consumer
from mqks.client.blocking_driver import BlockingDriver
from mqks.client.blocking_stream import Answers
from mqks.client.errors import ConnectionLost, MqksError, Refused, TlsFailed
from mqks.client.options import OptionWords, tell
from mqks.client.wire import Ids, Message

Msg = dict[str, Any]
OnMsg = Callable[[Msg], object]
OnDisconnect = Callable[[], object]
OnReconnect = Callable[[str, str], object]

ALL = "--all"
FOREVER = 365 * 86400.0  # seconds
BETWEEN_TRIES = 0.2  # seconds
WORKERS = 1  # there is one broker
DEFAULT_WORKERS = ["127.0.0.1:24000:25000"]

config: dict[str, Any] = {
    "workers": list(DEFAULT_WORKERS),  # host, port between workers (unused here), port for clients
    "logger_name": "mqks.client",
    "ping_seconds": 15,
    "reconnect_seconds": 1,  # without effect: the client has delays of its own
    "id_length": 24,  # without effect: ids are dtids
}


class EvalError(Refused):
    """The broker refused an `_eval`. The text is the broker's reply, as in the original."""

    def __init__(self, request: str, error_id: str) -> None:
        super().__init__(request, error_id)
        self.args = (f"{self.id} error {error_id}",)

    def __reduce__(self) -> tuple[type["EvalError"], tuple[str, str]]:
        return EvalError, (self.request, self.error_id)


class _Running:
    """A consumer, its hooks and its thread."""

    def __init__(
        self,
        consumer: Consumer,
        on_msg: OnMsg,
        on_disconnect: OnDisconnect | None,
        on_reconnect: OnReconnect | None,
    ) -> None:
        self.consumer = consumer
        self.wanted = consumer._wanted
        self.stream = consumer._stream
        self.driver: BlockingDriver = consumer._driver
        self.on_msg = on_msg
        self.on_disconnect = on_disconnect
        self.on_reconnect = on_reconnect
        self._in_hand: Counter[str] = Counter()  # with manual ack: ids of messages that on_msg got and nobody settled
        self._in_hand_of = ""  # the consumer_id of them all

    @property
    def text(self) -> str:
        """What a new connection asks for."""
        return self.wanted.request().removeprefix(protocol.CONSUME)

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"consumer of {self.wanted.queue}", daemon=True).start()

    def _run(self) -> None:
        items = self.stream.items
        try:
            while items or self.stream.more():
                message = items.popleft()
                if self._take(message):
                    self._handle(message)
        except Exception:
            _log().exception("the consumer of queue %s ends", self.wanted.queue)

    def _take(self, message: Message) -> bool:
        """False: the broker delivers it again, over a newer connection."""
        if not self.wanted.manual_ack:
            return True
        with self.driver.lock:
            if self.wanted.is_stale(message):
                return False
            if self._in_hand_of != message.consumer_id:
                self._in_hand_of = message.consumer_id
                self._in_hand.clear()
            self._in_hand[message.id] += 1
        return True

    def _handle(self, message: Message) -> None:
        msg = {
            "id": message.id,
            "data": message.data,
            "ack": partial(self.settle, "ack", message.consumer_id, message.id),
            "reject": partial(self.settle, "reject", message.consumer_id, message.id),
            "event": message.event,
        }
        if message.retry:
            msg["retry"] = str(message.retry)
        try:
            self.on_msg(msg)
        except Exception:
            _log().exception("on_msg of queue %s failed with message %s", self.wanted.queue, message.id)

    def settle(self, action: str, consumer_id: str, msg_id: str, confirm: bool = False) -> str | None:
        """One message, or all that on_msg got. Answers the id of the request; None: its connection is gone."""
        answers = Answers(self.driver) if confirm else None
        done = answers.done if answers else None
        with self.driver.lock:
            if self.wanted.id != consumer_id:
                return None
            *others, last = self._settled(msg_id) or [""]
            for id in others:
                self._send(action, id, None)
            if last:
                request_id = self._send(action, last, done)
            else:  # nothing to settle: a ping has an id too, and is answered after what was sent before
                request_id = self.driver.session.ask(verbs.ping(action), done or (lambda _: None), again=False)
            self.driver.flush_soon()
            if answers:
                answers.add(request_id)
        if answers:
            answers.wait(timeout=FOREVER)
        return request_id

    def _settled(self, msg_id: str) -> list[str]:
        if msg_id == ALL:
            ids = list(self._in_hand.elements()) if self._in_hand_of == self.wanted.id else []
            self._in_hand.clear()
            return ids
        if self._in_hand[verbs.name(msg_id)] > 1:
            self._in_hand[msg_id] -= 1
        else:
            self._in_hand.pop(msg_id, None)
        return [msg_id]

    def _send(self, action: str, msg_id: str, done: Callable[[str | MqksError], None] | None) -> str:
        message = Message(msg_id, "", "", 0, self.wanted.id)
        return self.driver.session.settle(self.wanted, message, action, done)


class _View(Mapping[str, Any]):
    """One fact of each consumer, by consumer_id; those that do not have it are left out."""

    def __init__(self, running: dict[str, _Running], fact: Callable[[_Running], Any]) -> None:
        self._running = running
        self._fact = fact

    def __getitem__(self, consumer_id: str) -> Any:
        fact = self._fact(self._running[consumer_id])
        if fact is None:
            raise KeyError(consumer_id)
        return fact

    def __iter__(self) -> Iterator[str]:
        return (id for id, running in list(self._running.items()) if self._fact(running) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


class _Original:
    """What the functions below share."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._client: Client | None = None
        self._disconnects = 0
        self._ids = Ids()
        self._running: dict[str, _Running] = {}
        self.state: dict[str, Any] = {
            "consumers": {0: _View(self._running, lambda running: running.text)},
            "workers": _View(self._running, lambda _: 0),
            "on_msg": _View(self._running, lambda running: running.on_msg),
            "on_disconnect": _View(self._running, lambda running: running.on_disconnect),
            "on_reconnect": _View(self._running, lambda running: running.on_reconnect),
            "auto_reconnect": False,
        }

    # The connection

    def connect(self, url: str | None = None, **options: Unpack[OptionWords]) -> None:
        """With a url or options: connect, as `mqks.Client` does. Without: the first request connects, and waits for the
        broker for as long as it takes. A connection that is there is closed."""
        self.disconnect()
        self.state["auto_reconnect"] = True
        if url is not None or options:
            with self._lock:
                self._connect(url, options)

    def client(self) -> Client:
        """Waits for the broker, for as long as it takes. The lock is free between two tries: `disconnect` ends it."""
        with self._lock:
            disconnects, said = self._disconnects, False
            while self._client is None:
                if self._disconnects != disconnects:
                    raise ConnectionLost("disconnect() was called while the client waited for the broker")
                try:
                    return self._connect(None, {"connect_timeout": 0})
                except TlsFailed:  # trying again will not help
                    raise
                except ConnectionLost as error:
                    if not said:
                        _log().warning("%s; trying until it answers", error)
                        said = True
                self._lock.wait(BETWEEN_TRIES)
            return self._client

    def _connect(self, url: str | None, options: OptionWords) -> Client:
        if config["ping_seconds"]:
            options.setdefault("keep_alive", config["ping_seconds"])
        options.setdefault("on_disconnect", self._tell_disconnect)
        options.setdefault("on_reconnect", self._tell_reconnect)
        self._client = Client(url or _configured(), **options)
        return self._client

    def disconnect(self) -> None:
        """Send what is buffered, and end all consumers."""
        with self._lock:
            client, self._client = self._client, None
            self._disconnects += 1
            self._lock.notify_all()
        self.state["auto_reconnect"] = False
        if client is not None:
            client.close()
            self._tell_disconnect()
            self._running.clear()

    def _tell_disconnect(self) -> None:
        for running in list(self._running.values()):
            if running.on_disconnect:
                tell(running.on_disconnect)

    def _tell_reconnect(self) -> None:
        for old, running in list(self._running.items()):
            with running.driver.lock:
                new = running.wanted.id
                if new in ("", old) or self._running.pop(old, None) is None:
                    continue
                self._running[new] = running
            if running.on_reconnect:
                tell(partial(running.on_reconnect, old, new))

    # Requests

    def request(self, request: str, confirm: bool) -> str:
        """Without confirm nobody waits: the request is repeated if its connection is lost, and an error is logged."""
        driver = self.client()._driver
        if confirm:
            return self._confirmed(driver, partial(driver.session.ask, request))[0]

        def done(answer: str | MqksError) -> None:
            if isinstance(answer, MqksError):
                driver.session.note("%s", answer)

        with driver.lock:
            driver.check_open()
            request_id = driver.session.ask(request, done)
            driver.flush_soon()
        return request_id

    def _confirmed(
        self, driver: BlockingDriver, put: Callable[[Callable[[str | MqksError], None]], str], timeout: float = FOREVER
    ) -> tuple[str, str]:
        """The id of the request, and its answer."""
        answers = Answers(driver)
        with driver.lock:
            driver.check_open()
            request_id = put(answers.done)
            answers.add(request_id)
        return request_id, answers.wait(timeout=timeout)

    def publish(self, event: str, data: object, confirm: bool = False) -> str:
        client, text = self.client(), data if isinstance(data, str | bytes) else str(data)
        if not confirm:
            return client.publish(event, text)
        driver = client._driver
        driver.room()
        return self._confirmed(driver, lambda done: driver.session.publish(event, text, done=done))[0]

    def consume(
        self,
        queue: str,
        events: Iterable[str],
        on_msg: OnMsg,
        on_disconnect: OnDisconnect | None = None,
        on_reconnect: OnReconnect | None = None,
        delete_queue_when_unused: bool | float = False,
        manual_ack: bool = False,
        add_events: bool = False,
        confirm: bool = False,
    ) -> str:
        """`events` replace the queue's, or with add_events are added to them. Returns the consumer_id."""
        consumer = self.client().consume(
            queue,
            () if add_events else events,
            add_events=events if add_events else (),
            delete_queue_when_unused=delete_queue_when_unused,
            manual_ack=manual_ack,
            prefetch=0,
        )
        running = _Running(consumer, on_msg, on_disconnect, on_reconnect)
        with running.driver.lock:  # so that no new connection comes between
            consumer_id = running.wanted.id or self._ids()
            self._running[consumer_id] = running
        if confirm:
            try:
                running.stream.ready(FOREVER)
            except BaseException:
                self.delete_consumer(consumer_id)
                raise
        running.start()
        return consumer_id

    def rebind(
        self,
        queue: str,
        replace: Iterable[str] | None = None,
        remove: Iterable[str] | None = None,
        add: Iterable[str] | None = None,
        remove_mask: Iterable[str] | None = None,
        confirm: bool = False,
    ) -> str:
        """An empty list is as none."""
        request = verbs.rebind(queue, replace or None, remove or (), remove_mask or (), add or (), {})
        return self.request(request, confirm)

    def settle(self, action: str, consumer_id: str, msg_id: str, confirm: bool) -> str | None:
        running = self._running.get(consumer_id)
        return running.settle(action, consumer_id, msg_id, confirm) if running else None

    def delete_consumer(self, consumer_id: str, confirm: bool = False) -> str | None:
        """None: there is no such consumer."""
        running = self._running.pop(consumer_id, None)
        if running is None:
            return None
        with running.driver.lock:
            request_id = running.driver.session.unwant(running.wanted)
            running.driver.flush()
        if request_id and confirm:
            running.stream.wait_for_end()
        return request_id or self._ids()

    def delete_queue(self, queue: str, confirm: bool = False) -> str:
        request, driver = verbs.delete_queue(queue, False), self.client()._driver
        with driver.lock:
            driver.session.delete_queue(queue)
        return self.request(request, confirm)

    def ping(self, worker: int = 0, data: str | None = None, confirm: bool = False) -> str:  # noqa: ARG002
        """`worker` has no meaning: there is one broker."""
        return self.request(verbs.ping(data or config["logger_name"]), confirm)

    def evaluate(self, code: str, worker: int = 0, timeout: float | None = None) -> str:
        """Returns the result. Raises EvalError, or TimeoutError after so many seconds."""
        driver = self.client()._driver
        put = partial(driver.session.ask, protocol.evaluate(code, f"--worker={worker}"))
        try:
            return self._confirmed(driver, put, FOREVER if timeout is None else timeout)[1]
        except Refused as refused:
            raise EvalError(refused.request, refused.error_id) from None


def _log() -> logging.Logger:
    return logging.getLogger(config["logger_name"])


def _configured() -> str | None:
    """The url of config["workers"], if somebody has set it."""
    if list(config["workers"]) == DEFAULT_WORKERS:
        return None
    try:
        (worker,) = config["workers"]
        host, _, port = worker.split(":")
    except ValueError:
        raise ValueError('config["workers"] is a list of one text, "host:port:port": there is one broker') from None
    return f"mqks://{host}:{port}"


_original = _Original()

state = _original.state
connect = _original.connect
disconnect = _original.disconnect
publish = _original.publish
consume = _original.consume
rebind = _original.rebind
delete_consumer = _original.delete_consumer
delete_queue = _original.delete_queue
ping = _original.ping
_eval = _original.evaluate


def get_worker(item: object) -> int:
    """Which worker serves this queue or event: always the one that there is."""
    return hash(item) % WORKERS


def ack(consumer_id: str, msg_id: str, confirm: bool = False) -> str | None:
    """Returns the id of the request. None: there is no such consumer, or not any more."""
    return _original.settle("ack", consumer_id, msg_id, confirm)


def ack_all(consumer_id: str, confirm: bool = False) -> str | None:
    return ack(consumer_id, ALL, confirm)


def reject(consumer_id: str, msg_id: str, confirm: bool = False) -> str | None:
    return _original.settle("reject", consumer_id, msg_id, confirm)


def reject_all(consumer_id: str, confirm: bool = False) -> str | None:
    return reject(consumer_id, ALL, confirm)
