"""The session in a thread: connects, sends, receives, pings and connects again, whatever the user's threads do.

One lock guards the session. Callers put their lines into it and, where it is worth it, send them themselves; what they
leave is sent by the thread, which also reads. No user code runs in that thread.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqks.client import forks
from mqks.client.address import Address
from mqks.client.bell import Bell
from mqks.client.errors import AuthRefused, BufferFull, ConnectionLost, MqksError, TlsFailed
from mqks.client.liveness import is_held_back
from mqks.client.options import Options, ReconnectLog, nothing, tell, unreachable
from mqks.client.reaching import connected, cut
from mqks.client.session import Session, log
from mqks.client.verbs import PIECE
from mqks.client.wanted import Wanted

if TYPE_CHECKING:
    from mqks.client.sealed import Sealed

CHUNK = 256 << 10  # bytes read at a time
LINGER = 0.001  # seconds in which publishes that nobody waits for gather
NEVER = float("inf")


class BlockingDriver:
    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options
        self.lock = threading.Lock()
        self.session = Session(ping=options.ping)
        self.closed: MqksError | None = None
        self._room = Bell(self.lock)
        self._access = options.access
        self._access.warn(address)
        self._coming: socket.socket | None = None  # the connection that is being made
        self._socket: socket.socket | None = None
        self._sealed: Sealed | None = None  # the same, where it speaks TLS
        self._blocked = False  # the socket takes no more for now
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._flushed = 0.0  # when
        self.due = NEVER  # when the thread is to flush
        self._stopping = threading.Event()
        self._leaving: deque[Wanted] = deque()
        self._thread = threading.Thread(target=self._run, name=f"client of {address}", daemon=True)
        try:
            self._start()
        except BaseException:
            self._waker.close()
            self._woken.close()
            raise
        self._thread.start()
        forks.watch(self)

    def _start(self) -> None:
        said, until = False, time.monotonic() + self.options.connect_timeout
        while True:
            try:
                return self._connect(self.options.try_seconds(until, time.monotonic()))
            except (AuthRefused, TlsFailed):  # trying again will not help
                raise
            except OSError as error:
                delay = self.session.connect_failed()
                if time.monotonic() + delay > until:
                    raise unreachable(self.address, error) from None
                if not said:
                    log.warning("%s; trying for %g s", unreachable(self.address, error), self.options.connect_timeout)
                    said = True
                time.sleep(delay)

    def stop(self) -> None:
        """What is not sent yet is not sent any more; nobody waits any more."""
        with self.lock:
            self.closed = self.closed or ConnectionLost("this client is closed")
        self._stopping.set()
        self.wake()
        if (coming := self._coming) is not None:
            cut(coming)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self.lock:
            self._give_up()
            self.session.end(self.closed)
            self._room.ring()
        self.session.write_notes()
        self._waker.close()
        self._woken.close()

    def room(self, timeout: float | None = None) -> None:
        """Waits for room in the buffer, or raises BufferFull, as the options have it. Without the lock."""
        with self.lock:
            self.flush()
            if self.options.when_full == "error" and self.session.size >= self.options.max_buffer:
                raise BufferFull(
                    f"{self.options.max_buffer} bytes of publishes wait already, since {self.address} is away or slow"
                )
        if not self._room.wait(lambda: self.closed or self.session.size < self.options.max_buffer, timeout):
            raise TimeoutError(f"no room in the buffer in {timeout} s, since {self.address} is away or slow")
        self.check_open()

    def forked(self) -> None:
        """In the child: an end, without a word to the broker."""
        self.lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does with its own
        self.closed = forks.in_the_child()
        for inherited in (self._socket, self._waker, self._woken):
            if inherited is not None:
                inherited.close()
        self._socket = None
        self.session.out.replace(())
        self.session.end(self.closed, fault=True)

    def nudge(self) -> None:
        """Something was put that nobody is about to send. Without the lock."""
        with self.lock:
            self.flush_soon()

    # For callers, all with the lock held

    def check_open(self) -> None:
        if self.closed is not None:
            raise self.closed

    def flush(self) -> None:
        """Send what there is to send, as far as the socket takes it; the thread goes on from there.

        With TLS only the thread sends: its steps are several, and Ctrl-C, which comes to the main one, may cut them.
        """
        if self._sealed is not None and threading.current_thread() is not self._thread:
            if self.due:
                self.due = 0.0
                self.wake()
            return
        self._flushed, self.due = time.monotonic(), NEVER
        if self._socket is not None:
            out = self.session.out
            self._blocked = not (self._sealed.send(out) if self._sealed else out.send(self._socket.fileno()))
            if self._blocked:  # it is full, or broken, and the thread finds out when it reads
                self.wake()
            self._room.ring()

    def flush_soon(self) -> None:
        """What comes alone leaves at once; of what comes close together, the thread sends the rest in one piece."""
        if self.session.out.size >= PIECE:
            self.flush()
        elif self.due == NEVER:
            now = time.monotonic()
            if now >= self._flushed + LINGER:
                self.flush()
            else:
                self.due = now + LINGER
                self.wake()

    def wake(self) -> None:
        """The thread; the lock need not be held."""
        with contextlib.suppress(OSError):  # full, so that it wakes anyway, or closed
            self._waker.send(b"!")

    def release(self, wanted: Wanted) -> None:
        """Nobody holds it any more: said in the middle of anything, maybe with the lock held."""
        if self.lock.acquire(blocking=False):
            try:
                self.session.unwant(wanted)
                self.flush_soon()
            finally:
                self.lock.release()
        else:
            self._leaving.append(wanted)
            self.wake()

    # The thread

    def _connect(self, within: float | None = None) -> None:
        try:
            made = connected(self.address, self._access, within=within, reached=self._reach)
        finally:
            self._coming = None
        made.setblocking(False)
        with self.lock:
            self._socket = made
            self._sealed = sealed(made) if self.address.tls else None
            self._blocked = False
            self.session.made()
            self.flush()

    def _reach(self, coming: socket.socket) -> None:
        self._coming = coming
        if self._stopping.is_set():  # whoever stops looks for it after that
            cut(coming)

    def _run(self) -> None:
        try:
            self._keep()
        except Exception as error:
            log.exception("the client of %s ends, by a fault of its own", self.address)
            with self.lock:
                self.closed = MqksError(f"this client has ended, by a fault of its own: {error!r}")
                self._give_up()
                self.session.end(self.closed, fault=True)
                self._room.ring()
            self.session.write_notes()

    def _tell(self, hook: Callable[[], object]) -> None:
        """The user's code, in a thread that the connection does not need."""
        if hook is not nothing:
            threading.Thread(target=tell, args=(hook,), daemon=True).start()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            self._serve()
            self.session.write_notes()
            if self._stopping.is_set():
                return
            log.warning("connection to %s lost, reconnecting", self.address)
            self._tell(self.options.on_disconnect)
            self._return()
            if self._socket is not None:
                log.warning("connected to %s again", self.address)
                self._tell(self.options.on_reconnect)

    def _return(self) -> None:
        """Until there is a connection again."""
        reports = ReconnectLog()
        while self._socket is None and not self._stopping.wait(self.session.connect_failed()):
            try:
                self._connect()
            except (AuthRefused, OSError) as error:
                reports.failed(error)

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
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._blocked else 0)
                if wanted != watched:
                    watched = wanted
                    selector.modify(connection, watched)
                ready = selector.select(max(0.0, min(beat, self.due) - time.monotonic()))
                for key, events in ready:
                    if key.fileobj is self._woken:
                        self._woken.recv(4096)
                    elif events & selectors.EVENT_READ:
                        self._read(connection)
                with self.lock:
                    while self._leaving:
                        self.session.unwant(self._leaving.popleft())
                        self.due = 0.0
                    if time.monotonic() >= beat and self._socket is connection:
                        beat = time.monotonic() + self.options.keep_alive
                        self.due = 0.0
                        self._beat(connection)
                    if time.monotonic() >= self.due or any(key.fileobj is connection for key, _ in ready):
                        self.flush()
                self.session.write_notes()

    def _read(self, connection: socket.socket) -> None:
        data = self._sealed.recv(CHUNK) if self._sealed else _received(connection)
        if data is None:
            return
        with self.lock:
            try:
                if data:
                    self.session.received(data)
                else:
                    self._give_up()
            except Exception as error:  # whatever it is that it says
                self.session.note("%s does not speak as a broker does: %r", self.address, error)
                self._give_up()

    def _beat(self, connection: socket.socket) -> None:
        if not self.session.tick() and not is_held_back(connection):
            log.warning("%s does not answer", self.address)
            self._give_up()

    def _give_up(self) -> None:
        if self._socket is not None:
            cut(self._socket)  # also for a child that has it too
            self._socket.close()
            self._socket = self._sealed = None
            self._blocked = False
            self.session.lost()


def sealed(connection: socket.socket) -> "Sealed":
    from mqks.client.sealed import Sealed  # with all of OpenSSL

    return Sealed(connection)


def _received(connection: socket.socket) -> bytes | None:
    """None: nothing is there. b"": the end."""
    try:
        return connection.recv(CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""
