"""Before a start: would other hosts be let in, to do all? That must be asked for. Only names of hosts are looked up."""

import logging
import socket

from mqks.broker.connections.client import is_loopback
from mqks.logs import Entry
from mqks.server.config import Config, ConfigError
from mqks.server.systemd import Systemd

log = logging.getLogger(__name__)


def check(config: Config, systemd: Systemd) -> None:
    """ConfigError: whoever can reach the broker could do all, and nobody has said that this is meant."""
    beyond = _beyond_loopback(systemd.sockets("mqks"), config.host, "--host")
    if config.http:
        beyond += _beyond_loopback(systemd.sockets("http"), config.http_host, "--http-host")
    if not beyond:
        return
    if config.auth_file is None and not config.insecure:
        raise ConfigError(
            f"{beyond[0]} lets other hosts in, and without --auth-file they may do all; "
            "make tokens (mqks token new) and use --auth-file, or say --insecure"
        )
    if config.auth_file is None:
        log.warning(Entry("{where} lets other hosts in, and they may do all: --insecure", where=beyond[0]))
    elif config.tls_cert is None:
        said = "{where} lets other hosts in without TLS: tokens can be read on the way; use --tls-cert"
        log.warning(Entry(said, where=beyond[0]))


def _beyond_loopback(given: list[socket.socket], host: str, flag: str) -> list[str]:
    """The addresses to listen on that other hosts can reach, each with where it comes from."""
    if given:
        hosts = {str(each.getsockname()[0]): "a socket of systemd on" for each in given}
    else:
        try:
            found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError:  # whoever binds says so
            return []
        hosts = {str(each[4][0]): flag for each in found}
    return [f"{where} {host}" for host, where in hosts.items() if not is_loopback(host)]
