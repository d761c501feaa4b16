"""What systemd and the broker tell each other: readiness, a heartbeat, and sockets that systemd listens on.

Two small protocols, sd_notify(3) and sd_listen_fds(3): environment variables, datagrams of text, inherited descriptors.
Where there is no systemd the variables are missing, and all of this does nothing.
"""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager

from mqks.logs import Entry
from mqks.server.config import ConfigError

log = logging.getLogger(__name__)

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
FIRST_SOCKET = 3  # the descriptor after stdin, stdout and stderr
# The names that FileDescriptorName= gives, and whose sockets these are. A socket unit that gives none is named after
# itself, and what starts brokers without systemd may give no names at all.
OWNERS = {"mqks": "mqks", "mqksd.socket": "mqks", "unknown": "mqks", "": "mqks", "http": "http"}
TCP = (socket.AF_INET, socket.AF_INET6)

LONGER = 120  # seconds that a start or a stop may go on after each sign of life
EXTEND_EVERY = 30.0  # seconds, while it starts
STATUS_EVERY = 10.0  # seconds
PATIENCE = 1.0  # seconds, if systemd does not read


class Systemd:
    """The system's manager as this process sees it. Without arguments: there is none."""

    def __init__(
        self, address: str = "", watchdog: float = 0.0, sockets: Mapping[str, list[socket.socket]] | None = None
    ) -> None:
        """`watchdog`: so many seconds of silence, and systemd takes the broker for stuck."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = watchdog
        self._sockets = sockets or {}
        self._said = ""

    def sockets(self, owner: str) -> list[socket.socket]:
        """The sockets to listen on that systemd has made for the broker's port, `mqks`, or for the dashboard's."""
        return self._sockets.get(owner, [])

    # ── what it is told ──

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Meanwhile the start may take as long as the disk needs, whatever it is that takes long: a thread says so."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(EXTEND_EVERY):
                self._tell(EXTEND_TIMEOUT_USEC=LONGER * 1_000_000)

        beating = threading.Thread(target=beat, name="starting", daemon=True)
        if self._address:
            beating.start()
        try:
            yield
        finally:
            done.set()
            if self._address:
                beating.join()

    def recovering(self, done: int, total: int) -> None:
        """The start reads what was written."""
        percent = 100 * done // max(total, 1)
        self._tell(STATUS=f"reading the journal: {percent} % of {total >> 20} MB")

    def salvaging(self) -> None:
        self._tell(STATUS="looking for damage in the journal")

    def ready(self, status: Callable[[], str]) -> None:
        """Clients can connect. From now on, in the event loop, a heartbeat and what `status` says."""
        self._said = status()
        self._tell(READY=1, STATUS=self._said)
        if self._address:
            self._beat(status)

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """What is read again meanwhile is in use after it. The moment, in microseconds, tells systemd which reload."""
        self._tell(RELOADING=1, MONOTONIC_USEC=time.monotonic_ns() // 1000)
        try:
            yield
        finally:
            self._tell(READY=1)

    def stopping(self) -> None:
        self._address, address = "", self._address  # the heart beats no more
        Systemd(address)._tell(STOPPING=1, STATUS="stopping", EXTEND_TIMEOUT_USEC=LONGER * 1_000_000)

    def _beat(self, status: Callable[[], str]) -> None:
        if not self._address:
            return
        news: dict[str, object] = {"WATCHDOG": 1} if self._watchdog else {}
        if (said := status()) != self._said:
            self._said = news["STATUS"] = said
        if news:
            self._tell(**news)
        often = min(self._watchdog / 2 or STATUS_EVERY, STATUS_EVERY)
        asyncio.get_running_loop().call_later(often, self._beat, status)

    def _tell(self, **news: object) -> None:
        if not self._address:
            return
        text = "".join(f"{name}={value}\n" for name, value in news.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
                telling.settimeout(PATIENCE)
                telling.sendto(text.encode(), self._address)
        except OSError as error:
            log.warning(Entry("systemd could not be told {news}: {reason}", news=list(news), reason=error))


def from_environment(environ: MutableMapping[str, str], pid: int) -> Systemd:
    """Takes the variables out: what the broker might start is not meant by them. A ConfigError says what is wrong."""
    given = {name: environ.pop(name, "") for name in VARIABLES}
    watchdog = _number(given, "WATCHDOG_USEC") if given["WATCHDOG_PID"] in ("", str(pid)) else 0
    count = _number(given, "LISTEN_FDS") if given["LISTEN_PID"] == str(pid) else 0
    return Systemd(given["NOTIFY_SOCKET"], watchdog / 1_000_000, _take_sockets(count, given["LISTEN_FDNAMES"]))


def _number(given: Mapping[str, str], name: str) -> int:
    text = given[name] or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ConfigError(f"{name} is {text!r}, and should be a number: leave it to systemd, or unset it")
    return int(text)


def _take_sockets(count: int, names: str) -> dict[str, list[socket.socket]]:
    found: dict[str, list[socket.socket]] = {}
    each = dict(enumerate(names.split(":"), FIRST_SOCKET))
    for number in range(FIRST_SOCKET, FIRST_SOCKET + count):
        name = each.get(number, "")
        if name not in OWNERS:
            raise ConfigError(f"systemd gives a socket named {name!r}; name it mqks or http, by FileDescriptorName=")
        found.setdefault(OWNERS[name], []).append(_listener(number))
    return found


def _listener(number: int) -> socket.socket:
    try:
        listener = socket.socket(fileno=number)
        listens = listener.family in TCP and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:  # it is something else than a socket
        listens = False
    if not listens:
        raise ConfigError(f"systemd gives descriptor {number}, which does not listen on TCP; use ListenStream=25000")
    listener.set_inheritable(False)
    listener.setblocking(False)
    return listener
