"""The broker's life: start, run until told to stop, stop. `serve` is the life of a process, `run` that of a thread."""

import asyncio
import contextlib
import logging
import resource
import signal
from collections.abc import Callable
from dataclasses import replace

from mqks import __version__
from mqks.broker import Broker
from mqks.journal.disk import RealDisk
from mqks.journal.errors import JournalError
from mqks.journal.salvage import salvage
from mqks.server.config import Config
from mqks.server.tcp import TcpServer

log = logging.getLogger(__name__)

FILES_OF_OURS = 256  # open files beside connections: segments that are read, logs, listeners
ID_MEMORY = 64  # bytes that a remembered id of --once costs at most
MOST_TAIL_MEMORY = 128 << 20  # bytes of the log that stay in memory; the system's own cache has more

Started = Callable[[TcpServer, Callable[[], None]], None]


def serve(config: Config) -> int:
    """Run until SIGTERM or SIGINT, or until the disk fails; answers the exit code."""
    run(replace(config, max_connections=_raise_open_files(config.max_connections)), _heed_signals)
    return 0


def run(config: Config, started: Started) -> None:
    """Run until told to stop, or until the disk fails; in any thread, since nothing of the whole process is touched.

    `started` is called in the event loop, when clients can connect, with the server and with what stops it.
    """
    disk = server = None
    if not config.memory:
        if config.salvage:
            _salvage(config)
        disk = RealDisk(config.data)
    try:
        broker = _broker(config, disk)
        broker.recover(grace=config.restart_grace, salvage=config.salvage)
        server = TcpServer(broker, config.max_connections, disk.fileno() if disk else -1)
        with asyncio.Runner(loop_factory=server.new_loop) as runner:
            runner.run(_run(config, broker, server, started))
    finally:
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
        dedup_window=config.dedup_window,
        dedup_count=_dedup_count(config),
        disk=disk,
        fsync=mode,
        interval=int(milliseconds or 1000) / 1000,
        segment_size=config.segment_size,
        tail_memory=min(MOST_TAIL_MEMORY, config.max_memory // 4),
        retain_bytes=config.retain_bytes,
        retain_age=config.retain_age,
    )


def _dedup_count(config: Config) -> int:
    """Ids must leave room for messages: they may have an eighth of the memory."""
    most = config.max_memory // 8 // ID_MEMORY
    if most < config.dedup_count:
        log.info("at most %d ids of --once are remembered, since they may have an eighth of --max-memory", most)
    return min(config.dedup_count, most)


def _salvage(config: Config) -> None:
    if not (config.data / "journal").is_dir():
        return
    for one in salvage(config.data):
        log.warning("segment %s was damaged: it is kept as %s", one.segment, one.aside)
        for start, end, reason in one.lost:
            log.warning("positions %d to %d are lost: %s", start, end, reason)


async def _run(config: Config, broker: Broker, server: TcpServer, started: Started) -> None:
    stopping = asyncio.Event()
    addresses = server.listen(config.host, config.port, broken=stopping.set)
    started(server, stopping.set)
    kept = "memory" if config.memory else f"{config.data}, fsync {config.fsync}"
    log.info("mqksd %s listening on %s, messages in %s", __version__, " and ".join(addresses), kept)
    await stopping.wait()
    log.info("stopping")
    await server.stop()
    broker.close()  # while signals are still ours: a second one must not cut this short
    if config.memory:
        _say_what_is_lost(broker)
    log.info("stopped")


def _heed_signals(_: TcpServer, stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, log.info, "SIGHUP: there is nothing to reload")


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
    if soft == resource.RLIM_INFINITY or soft >= connections + FILES_OF_OURS:
        return connections
    most = max(soft - FILES_OF_OURS, soft // 4)
    log.warning("at most %d connections, since the system allows %d open files; raise `ulimit -n`", most, soft)
    return most


def _say_what_is_lost(broker: Broker) -> None:
    left = {queue.name: queue.ready_count + queue.unsettled for queue in broker.queues.values()}
    if total := sum(left.values()):
        queues = sum(1 for count in left.values() if count)
        log.warning("gone, since they were in memory only: messages: %d, in queues: %d", total, queues)
