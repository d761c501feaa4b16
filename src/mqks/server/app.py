"""The broker's life: start, run until a signal, stop. Everything that a process owns is made and ended here."""

import asyncio
import contextlib
import logging
import resource
import signal

from mqks import __version__
from mqks.broker import Broker
from mqks.server.config import Config
from mqks.server.tcp import TcpServer

log = logging.getLogger(__name__)


def serve(config: Config) -> int:
    """Run until SIGTERM or SIGINT; answers the exit code."""
    broker = Broker(max_line=config.max_line, max_memory=config.max_memory)
    server = TcpServer(broker, config.max_connections)
    with asyncio.Runner(loop_factory=server.new_loop) as runner:
        runner.run(_serve(config, broker, server))
    return 0


async def _serve(config: Config, broker: Broker, server: TcpServer) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, log.info, "SIGHUP: there is nothing to reload")
    _raise_open_files(config.max_connections)
    addresses = server.listen(config.host, config.port)
    log.info("mqksd %s listening on %s, messages in memory", __version__, " and ".join(addresses))
    await stopping.wait()
    log.info("stopping")
    await server.stop()
    _say_what_is_lost(broker)


def _raise_open_files(connections: int) -> None:
    """Each connection is an open file; take what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 64
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _say_what_is_lost(broker: Broker) -> None:
    left = {queue.name: queue.ready_count + queue.unsettled for queue in broker.queues.values()}
    if total := sum(left.values()):
        queues = sum(1 for count in left.values() if count)
        log.warning("gone, since they were in memory only: messages: %d, in queues: %d", total, queues)
