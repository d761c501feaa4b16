"""A broker in a thread of this process. It touches a port, its thread, and the folder that it is given, if any.

The broker is the real one: what `mqksd` runs, without the signals and limits that belong to a whole process. Its log
goes to Python's logging as "mqks". Whatever goes wrong in the thread is raised by `stop`, at the latest at the end of
`with broker()`, so that no test passes on a broker that failed.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mqks.server.app import run
from mqks.server.config import OPTIONS, Config, ConfigError, unknown
from mqks.server.tcp import TcpServer, address_of

log = logging.getLogger(__name__)

OF_A_PROCESS = {"config", "log_level", "log_format"}
KNOWN = {option.name: option for option in OPTIONS if option.name not in OF_A_PROCESS}
T = TypeVar("T")
PATIENCE = 10.0  # seconds for what takes the broker microseconds


class Running(NamedTuple):
    thread: threading.Thread
    loop: asyncio.AbstractEventLoop
    server: TcpServer
    stop: Callable[[], None]
    reload: Callable[[], None]


class Broker:
    """Runs inside `with broker()`; it may be stopped and started again there, always on the same port."""

    def __init__(self, config: Config, address: str, http_address: str | None) -> None:
        self.host = config.host
        self.port = config.port
        self._s = "s" if config.tls_cert else ""
        self.url = f"mqks{self._s}://{address}"
        self._http_address = http_address
        self._config = config
        self._running: Running | None = None
        self._error: BaseException | None = None

    @property
    def http_url(self) -> str:
        if self._http_address is None:
            raise RuntimeError("this broker serves no HTTP: start it with http=True")
        return f"http{self._s}://{self._http_address}"

    def start(self) -> None:
        """Returns when clients can connect; raises what keeps the broker from it."""
        if self._running:
            raise RuntimeError("the broker is running already: stop it first, or use restart()")
        started: Future[Running] = Future()
        thread = threading.Thread(target=self._run, args=(started,), name=f"broker {self.url}", daemon=True)
        thread.start()
        try:
            self._running = started.result()
        except Exception:
            thread.join()
            raise

    def stop(self) -> None:
        """As SIGTERM does: clients get what is buffered, then their connections close. If it is not running, nothing.

        Raises what has gone wrong in the broker since the start.
        """
        if self._running:
            running, self._running = self._running, None
            with suppress(RuntimeError):  # the loop is closed: the broker has ended by itself
                running.loop.call_soon_threadsafe(running.stop)
            running.thread.join()
        if self._error:
            error, self._error = self._error, None
            raise error

    def restart(self) -> None:
        """What was in memory only is gone; what is in the folder `data` comes back."""
        self.stop()
        self.start()

    def drop_connections(self) -> int:
        """Close every connection, as a network that fails would, and go on; answers how many there were."""
        return self._call(self._running.server.drop_connections) if self._running else 0

    def reload(self) -> None:
        """As SIGHUP does: certificate and tokens are read again, and connections stay. What is wrong is in the log."""
        if self._running:
            self._call(self._running.reload)

    def _call(self, function: Callable[[], T]) -> T:
        """In the broker's thread."""
        assert self._running
        done: Future[T] = Future()

        def call() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        self._running.loop.call_soon_threadsafe(call)
        return done.result(PATIENCE)

    def _run(self, started: Future[Running]) -> None:
        def listening(server: TcpServer, stop: Callable[[], None], reload: Callable[[], None]) -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(self._note)
            started.set_result(Running(threading.current_thread(), loop, server, stop, reload))

        try:
            run(self._config, listening)
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            else:
                log.exception("the broker failed")
                self._error = error

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault that the broker goes on after."""
        loop.default_exception_handler(context)
        self._error = self._error or context.get("exception") or RuntimeError(context["message"])


@contextmanager
def broker(*, data: str | Path | None = None, **options: object) -> Iterator[Broker]:
    """A broker that runs while the block does: in memory, or durable in the folder `data`.

    Options are those of `mqksd`, named as in its TOML file, as values or as text: `max_line="64K"`, `fsync="never"`.
    Ports are free ones, unless they are given. With `http=True` the dashboard is served at `http_url`.
    """
    config = _configured({"port": 0, "http": False, "http_port": 0, "memory": data is None} | options, data)
    with ExitStack() as kept:
        port, address = kept.enter_context(_port_kept(config.host, config.port))
        config, http_address = replace(config, port=port), None
        if config.http:
            http_port, http_address = kept.enter_context(_port_kept(config.http_host, config.http_port))
            config = replace(config, http_port=http_port)
        running = Broker(config, address, http_address)
        running.start()
        try:
            yield running
        finally:
            running.stop()


def _configured(options: dict[str, object], data: str | Path | None) -> Config:
    values: dict[str, Any] = {} if data is None else {"data": Path(data)}
    for name, value in options.items():
        if name not in KNOWN:
            raise unknown("option", name, KNOWN)
        if value is None:  # as if it were not given
            continue
        option = KNOWN[name]
        values[name] = option.parse(value if isinstance(value, str) else option.kind.show(value), name)
    config = Config(**values)
    if data is None and not config.memory:
        raise ConfigError("memory=False needs a folder: give data=folder")
    return config


@contextmanager
def _port_kept(host: str, port: int) -> Iterator[tuple[int, str]]:
    """A socket that is bound but does not listen: nobody else gets the port while the broker is away."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, _, _, address = found[0]
    with socket.socket(family, kind) as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker's own socket does
        keeper.bind(address)
        bound = keeper.getsockname()
        yield bound[1], address_of(bound)
