"""The session in a thread: connects, sends, receives, pings and connects again, whatever the user's threads do.

One lock guards the session. Callers put their lines into it and, where it is worth it, send them themselves; what they
leave is sent by the thread, which also reads. No user code runs in that thread.
"""

import contextlib
import os
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from mqks.client.address import Address
from mqks.client.errors import BufferFull, ConnectionLost, MqksError, Refused
from mqks.client.liveness import is_held_back
from mqks.client.options import CONNECT_SECONDS, Options, tell, unreachable
from mqks.client.session import Session, log
from mqks.client.wanted import Wanted
from mqks.client.wire import Message

T = TypeVar("T")

PIECE = 64 << 10  # bytes that are worth a send of their own
CHUNK = 256 << 10  # bytes read at a time
LINGER = 0.001  # seconds in which publishes that nobody waits for gather
NEVER = float("inf")


class BlockingDriver:
    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options
        self.lock = threading.Lock()
        self.session = Session()
        self.closed: MqksError | None = None
        self._room = threading.Condition(self.lock)
        self._socket: socket.socket | None = None
        self._unsent = memoryview(b"")
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._flushed = 0.0  # when
        self._due = NEVER  # when the thread is to flush
        self._stopping = threading.Event()
        self.leaving: deque[Wanted] = deque()  # those that nobody holds any more; without the lock, which may be held
        try:
            self._start()
        except BaseException:
            self._waker.close()
            self._woken.close()
            raise
        self._thread = threading.Thread(target=self._run, name=f"client of {address}", daemon=True)
        self._thread.start()
        _open.add(self)

    def _start(self) -> None:
        until = time.monotonic() + self.options.connect_timeout
        while True:
            try:
                return self._connect()
            except OSError as error:
                delay = self.session.connect_failed()
                if time.monotonic() + delay > until:
                    raise unreachable(self.address, error) from None
                time.sleep(delay)

    def stop(self) -> None:
        """What is not sent yet is not sent any more; nobody waits any more."""
        with self.lock:
            self.closed = self.closed or ConnectionLost("this client is closed")
        self._stopping.set()
        self.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self.lock:
            self._give_up()
            self.session.end(self.closed)
            self._room.notify_all()
        self._waker.close()
        self._woken.close()
        _open.discard(self)

    def ask(self, request: str, timeout: float | None = None) -> str:
        answers = Answers(self)
        with self.lock:
            self.check_open()
            answers.add(self.session.ask(request, answers.done))
            return answers.wait(timeout=timeout)

    # For callers, all with the lock held

    def check_open(self) -> None:
        if self.closed is not None:
            raise self.closed

    def room(self) -> None:
        """Waits for room in the buffer, or raises BufferFull, as the options have it."""
        while self.session.size >= self.options.max_buffer:
            self.check_open()
            self.flush()
            if self.session.size < self.options.max_buffer:
                return
            if self.options.when_full == "error":
                raise BufferFull(
                    f"{self.options.max_buffer} bytes of publishes wait already, since {self.address} is away or slow"
                )
            self._room.wait()
        self.check_open()

    def flush(self) -> None:
        """Send what there is to send, as far as the socket takes it; the thread goes on from there."""
        self._flushed, self._due = time.monotonic(), NEVER
        while self._socket is not None:
            if not self._unsent:
                self._unsent = memoryview(self.session.outgoing())
                self._room.notify_all()
                if not self._unsent:
                    return
            try:
                sent = self._socket.send(self._unsent)
            except OSError:  # it is full, or broken, and the thread finds out when it reads
                self.wake()
                return
            self._unsent = self._unsent[sent:]

    def flush_soon(self) -> None:
        """What comes alone leaves at once; of what comes close together, the thread sends the rest in one piece."""
        now = time.monotonic()
        if now >= self._flushed + LINGER or self.session.out.size >= PIECE:
            self.flush()
        elif self._due == NEVER:
            self._due = now + LINGER
            self.wake()

    def wake(self) -> None:
        """The thread; the lock need not be held."""
        with contextlib.suppress(OSError):  # full, so that it wakes anyway, or closed
            self._waker.send(b"!")

    # The thread

    def _connect(self) -> None:
        made = socket.create_connection((self.address.host, self.address.port), CONNECT_SECONDS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        with self.lock:
            self._socket = made
            self._unsent = memoryview(b"")
            self.session.made()
            self.flush()

    def _run(self) -> None:
        try:
            self._keep()
        except Exception as error:
            log.exception("the client of %s ends, by a fault of its own", self.address)
            with self.lock:
                self.closed = MqksError(f"this client has ended, by a fault of its own: {error!r}")
                self._give_up()
                self.session.end(self.closed)
                self._room.notify_all()

    def _tell(self, hook: Callable[[], object]) -> None:
        """The user's code, in a thread that the connection does not need."""
        threading.Thread(target=tell, args=(hook,), daemon=True).start()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self._serve()
            if self._stopping.is_set():
                return
            log.warning("connection to %s lost, reconnecting", self.address)
            self._tell(self.options.on_disconnect)
            while self._socket is None and not self._stopping.wait(self.session.connect_failed()):
                with contextlib.suppress(OSError):
                    self._connect()
            if self._socket is not None:
                log.info("connected to %s again", self.address)
                self._tell(self.options.on_reconnect)

    def _serve(self) -> None:
        """Until the connection is gone."""
        connection = self._socket
        assert connection is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            watched = selectors.EVENT_READ
            selector.register(connection, watched)
            beat = time.monotonic() + self.options.keep_alive
            while self._socket is connection and not self._stopping.is_set():
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
                if wanted != watched:
                    watched = wanted
                    selector.modify(connection, watched)
                ready = selector.select(max(0.0, min(beat, self._due) - time.monotonic()))
                for key, events in ready:
                    if key.fileobj is self._woken:
                        self._woken.recv(4096)
                    elif events & selectors.EVENT_READ:
                        self._read(connection)
                with self.lock:
                    while self.leaving:
                        self.session.unwant(self.leaving.popleft())
                        self._due = 0.0
                    if time.monotonic() >= beat and self._socket is connection:
                        beat = time.monotonic() + self.options.keep_alive
                        self._due = 0.0
                        self._beat(connection)
                    if time.monotonic() >= self._due or any(key.fileobj is connection for key, _ in ready):
                        self.flush()

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        with self.lock:
            try:
                if data:
                    self.session.received(data)
                else:
                    self._give_up()
            except ValueError as error:
                log.error("%s does not speak as a broker does: %s", self.address, error)
                self._give_up()

    def _beat(self, connection: socket.socket) -> None:
        if not self.session.tick() and not is_held_back(connection):
            log.warning("%s does not answer", self.address)
            self._give_up()

    def _give_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._unsent = memoryview(b"")
            self.session.lost()


class Answers:
    """Answers that a thread waits for. Everything here happens with the driver's lock held."""

    def __init__(self, driver: BlockingDriver) -> None:
        self._driver = driver
        self._changed = threading.Condition(driver.lock)
        self.missing = 0
        self._last = ""
        self._error: MqksError | None = None
        self.asked: list[str] = []  # ids of the requests
        self.refused: list[Refused] | None = None  # a list takes what is refused, which then is no error

    def add(self, id: str) -> None:
        """This request was asked, with `done` to take its answer."""
        self.missing += 1
        self.asked.append(id)

    def done(self, result: str | MqksError) -> None:
        self.missing -= 1
        if self.refused is not None and isinstance(result, Refused):
            self.refused.append(result)
        elif isinstance(result, MqksError):
            self._error = self._error or result
        else:
            self._last = result
        self._changed.notify()

    def wait(self, missing: int = 0, timeout: float | None = None) -> str:
        """Until no more than this many are missing; answers the last one."""
        if self.missing > missing:
            self._driver.flush()
        timeout = self._driver.options.timeout if timeout is None else timeout
        if not self._changed.wait_for(lambda: self.missing <= missing, timeout):
            for id in self.asked:
                self._driver.session.forget(id)
            raise TimeoutError(
                f"no answer from {self._driver.address} in {timeout} s; what was asked may still be done"
            )
        if self._error is not None and not self.missing:
            raise self._error
        return self._last


class Stream(Generic[T]):
    """What comes for one consumer or history, between the session and the threads that take it."""

    def __init__(self, driver: BlockingDriver) -> None:
        self._driver = driver
        self._wanted: Wanted | None = None
        self.items: deque[T] = deque()
        self._size = 0
        self._changed = threading.Condition(driver.lock)
        self._ready = False
        self._over = False
        self._error: MqksError | None = None

    def open(self, wanted: Wanted) -> None:
        with self._driver.lock:
            self._driver.check_open()
            self._wanted = wanted
            wanted.ready = self._be_ready
            self._driver.session.want(wanted)
            self._driver.flush()

    def deliver(self, items: list[T], size: int) -> None:
        self.items.extend(items)
        self._size += size
        self._changed.notify_all()

    def _be_ready(self) -> None:
        self._ready = True
        self._changed.notify_all()

    def end(self, error: MqksError | None) -> None:
        self._over = True
        self._error = error
        self._changed.notify_all()

    def ready(self) -> None:
        timeout = self._driver.options.timeout
        with self._driver.lock:
            if not self._changed.wait_for(lambda: self._ready or self._over, timeout):
                raise TimeoutError(f"no answer from {self._driver.address} in {timeout} s")
            if self._error is not None:
                raise self._error

    def more(self, timeout: float | None = None) -> bool:
        """Waits until there is something in `items`. False: there will be no more. TimeoutError: nothing came yet."""
        with self._driver.lock:
            if self._size and not self.items:
                assert self._wanted is not None
                self._driver.session.taken(self._wanted, self._size)
                self._size = 0
                self._driver.flush()
            if not self._changed.wait_for(lambda: self.items or self._over, timeout):
                raise TimeoutError("nothing came in this time")
            if self.items:
                return True
            if self._error is not None:
                raise self._error
            return False

    def settle(self, message: Message | None, action: str, confirm: bool) -> bool:
        """Ack or reject a message, or with None all of them."""
        assert self._wanted is not None
        answers = Answers(self._driver) if confirm else None
        with self._driver.lock:
            sent = self._driver.session.settle(self._wanted, message, action, answers.done if answers else None)
            self._driver.flush_soon()
            if answers and sent:
                answers.add("")
                answers.wait()
        return sent

    def drop(self) -> int:
        """Forget what nobody has taken; answers how much it was."""
        left = len(self.items)
        self.items.clear()
        return left


_open: "weakref.WeakSet[BlockingDriver]" = weakref.WeakSet()


def _forked() -> None:
    """The child has no thread to serve them, and the sockets are its parent's."""
    for driver in list(_open):
        driver.lock = threading.Lock()
        driver.closed = ConnectionLost("this client was made before the process forked: make one in the child")
        driver.session.connected = False
        driver._socket = None
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
