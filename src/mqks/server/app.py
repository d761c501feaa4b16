"""The broker's life: start, run until told to stop, stop. `serve` is the life of a process, `run` that of a thread."""

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING

from mqks import __version__
from mqks.broker import Broker
from mqks.broker.auth.authentication import Authentication
from mqks.broker.limits import Limits
from mqks.journal.disk import RealDisk
from mqks.journal.errors import JournalError
from mqks.journal.salvage import salvage
from mqks.logs import Entry
from mqks.server import openness
from mqks.server.auth import Authority
from mqks.server.config import Config
from mqks.server.systemd import Systemd
from mqks.server.tcp import TcpServer, bind
from mqks.server.tls import Tls
from mqks.signals import stop_signals

log = logging.getLogger(__name__)

FILES_OF_OURS = 320  # open files beside connections: HTTP's connections and tails, segments that are read, logs
ID_MEMORY = 64  # bytes that a remembered id of --once costs at most
MOST_TAIL_MEMORY = 128 << 20  # bytes of the log that stay in memory; the system's own cache has more

if TYPE_CHECKING:
    from mqks.web.server import WebServer

Reload = Callable[[], None]
Started = Callable[[TcpServer, Callable[[], None], Reload], None]


class HttpError(OSError):
    """The dashboard's address cannot be listened on."""


def serve(config: Config, systemd: Systemd) -> int:
    """Run until a signal to stop, or until the disk fails; answers the exit code."""
    early: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: early.append(number))  # which else ends it while it recovers
    if systemd.sockets("http") and not config.http:
        log.warning(
            "systemd listens for the dashboard, but nobody will answer; disable mqksd-http.socket or use --http"
        )
    run(
        replace(config, max_connections=_raise_open_files(config.max_connections)),
        partial(_heed_signals, early),
        systemd,
    )
    return 0


def run(config: Config, started: Started, systemd: Systemd | None = None) -> None:
    """Run until told to stop, or until the disk fails; in any thread, since nothing of the whole process is touched.

    `started` is called in the event loop, when clients can connect, with the server, with what stops it, and with what
    reads its files again. What is wrong with these files now is a ConfigError.
    """
    disk = server = authority = None
    systemd = systemd or Systemd()
    openness.check(config, systemd)
    tls = Tls.of(config)
    reloaders: list[Reload] = [tls.reload] if tls else []
    try:
        with systemd.starting():
            if not config.memory:
                if config.salvage:
                    systemd.salvaging()
                    _salvage(config)
                disk = RealDisk(config.data)
            broker = _broker(config, disk)
            if config.auth_file:
                authority = Authority(config.auth_file, broker.authentication.failed)
                broker.authentication.require_tokens(authority.ask)
                reloaders.append(partial(_reload_tokens, authority, broker.authentication))
            broker.recover(grace=config.restart_grace, salvage=config.salvage, going_on=systemd.recovering)
        server = TcpServer(broker, disk.fileno() if disk else -1, tls)
        with asyncio.Runner(loop_factory=server.new_loop) as runner:
            runner.run(_run(config, broker, server, started, systemd, tls, authority, reloaders))
    finally:
        if authority:
            authority.close()
        if server:
            server.close()
        if disk:
            disk.stop()
    if broker.broken:
        raise JournalError(f"stopped, since the disk failed: {broker.broken}")


def _broker(config: Config, disk: RealDisk | None) -> Broker:
    mode, _, milliseconds = config.fsync.partition("=")
    return Broker(
        max_line=config.max_line,
        max_memory=config.max_memory,
        limits=_limits(config),
        dedup_window=config.dedup_window,
        dedup_count=_dedup_count(config),
        disk=disk,
        insecure=config.insecure,
        fsync=mode,
        interval=int(milliseconds or 1000) / 1000,
        segment_size=config.segment_size,
        tail_memory=min(MOST_TAIL_MEMORY, config.max_memory // 4),
        retain_bytes=config.retain_bytes,
        retain_age=config.retain_age,
        folder=str(config.data.absolute()),
        min_free=config.min_free_disk,
    )


def _limits(config: Config) -> Limits:
    """Each is an option of the same name."""
    return Limits(**{each.name: getattr(config, each.name) for each in fields(Limits) if each.init})


def _dedup_count(config: Config) -> int:
    """Ids must leave room for messages: they may have an eighth of the memory."""
    most = config.max_memory // 8 // ID_MEMORY
    if most < config.dedup_count:
        said = "at most {most} ids of --once are remembered, since they may have an eighth of --max-memory"
        log.info(Entry(said, most=most))
    return min(config.dedup_count, most)


def _salvage(config: Config) -> None:
    if not (config.data / "journal").is_dir():
        return
    for one in salvage(config.data):
        log.warning(
            Entry("segment {segment} was damaged: it is kept as {aside}", segment=one.segment, aside=str(one.aside))
        )
        for start, end, reason in one.lost:
            log.warning(Entry("positions {start} to {end} are lost: {reason}", start=start, end=end, reason=reason))


async def _run(
    config: Config,
    broker: Broker,
    server: TcpServer,
    started: Started,
    systemd: Systemd,
    tls: Tls | None,
    authority: Authority | None,
    reloaders: list[Reload],
) -> None:
    web = _web(config, broker, server, tls, authority) if config.http else None
    stopping = asyncio.Event()
    addresses = server.listen(config.host, config.port, stopping.set, systemd.sockets("mqks"))
    dashboards = await web.start(_http_sockets(config, systemd), addresses[0], config.http_name) if web else []
    started(server, stopping.set, partial(_reload, reloaders, systemd))
    kept = "memory" if config.memory else f"{config.data}, fsync {config.fsync}"
    listening = " and ".join(addresses)
    guarded = (" by TLS" if tls else "") + (" for who has a token" if authority else "")
    log.info(
        Entry(
            "mqksd {version} listening on {addresses}{guarded}, messages in {kept}",
            version=__version__, addresses=listening, guarded=guarded, kept=kept,
        )
    )  # fmt: skip
    for url in dashboards:
        log.info(Entry("dashboard at {url}", url=url))
    systemd.ready(lambda: _status(broker, listening))
    await stopping.wait()
    systemd.stopping()
    log.info("stopping")
    if web:
        try:
            await web.stop()
        except Exception:  # what only shows the broker must not keep it from a stop in order
            log.exception("the dashboard could not be stopped in order")
    await server.stop()
    broker.close()  # while signals are still ours: a second one must not cut this short
    if config.memory:
        _say_what_is_lost(broker)
    log.info("stopped")


def _web(
    config: Config, broker: Broker, server: TcpServer, tls: Tls | None, authority: Authority | None
) -> "WebServer":
    """Loading it takes a moment: only those who serve HTTP do, and before anybody can connect."""
    from mqks.web.server import WebServer

    return WebServer(broker, server, tls, authority=authority, insecure=config.insecure)


def _http_sockets(config: Config, systemd: Systemd) -> list[socket.socket]:
    try:
        return systemd.sockets("http") or bind(config.http_host, config.http_port)
    except OSError as error:
        raise HttpError(error.errno, error.strerror) from error


def _status(broker: Broker, listening: str) -> str:
    """For `systemctl status`: some words."""
    if broker.persistence.journal and (wrong := broker.persistence.journal.broken or broker.persistence.journal.full):
        return wrong
    return f"listening on {listening}; queues: {len(broker.queues.by_name)}, connections: {broker.connections.count}"


def _heed_signals(early: list[int], _: TcpServer, stop: Callable[[], None], reload: Reload) -> None:
    """A SIGHUP that came before is heeded now: some files had been read by then."""
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    if early:
        reload()


def _reload(reloaders: list[Reload], systemd: Systemd) -> None:
    """Read again what may have changed; connections stay. Each says in the log what came of it."""
    if not reloaders:
        log.info("SIGHUP: there is nothing to reload")
    with systemd.reloading():
        for each in reloaders:
            each()


def _reload_tokens(authority: Authority, authentication: Authentication) -> None:
    """Whose token is gone or means something else now learns of it at once."""
    if authority.reload():
        authentication.reconsider(authority.current)


def connections_within(files: int, wanted: int) -> int:
    """How many of the wanted connections there can be with so many open files."""
    if files == resource.RLIM_INFINITY or files >= wanted + FILES_OF_OURS:
        return wanted
    return max(files - FILES_OF_OURS, files // 4)


def _raise_open_files(connections: int) -> int:
    """Each connection is an open file; take what the system allows, and leave the journal its share. Answers how many
    connections that makes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES_OF_OURS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    most = connections_within(soft, connections)
    if most == connections:
        return connections
    said = "at most {most} connections, since the system allows {files} open files; raise `ulimit -n`"
    log.warning(Entry(said, most=most, files=soft))
    return most


def _say_what_is_lost(broker: Broker) -> None:
    left = {queue.name: queue.ready_count + queue.unsettled for queue in broker.queues.by_name.values()}
    if total := sum(left.values()):
        queues = sum(1 for count in left.values() if count)
        said = "gone, since they were in memory only: messages: {messages}, in queues: {queues}"
        log.warning(Entry(said, messages=total, queues=queues))
