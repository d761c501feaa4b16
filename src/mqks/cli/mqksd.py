"""`mqksd`, the broker as a command: reads the configuration, starts the log, serves until told to stop.

Exit codes: 0 stopped by SIGTERM or SIGINT, 1 could not serve, 2 the configuration is wrong.
"""

import errno
import logging
import os
import socket
import sys

from mqks.cli import logs
from mqks.journal import JournalError
from mqks.server.app import HttpError, serve
from mqks.server.config import Config, ConfigError
from mqks.server.systemd import from_environment

ADVICE = {
    errno.EADDRINUSE: "port {port} on {host} is in use; stop the other broker or choose --port",
    errno.EACCES: "port {port} on {host} is not allowed to this user; choose a --port above 1023",
    errno.EADDRNOTAVAIL: "{host} is not an address of this machine; choose --host",
    errno.EMFILE: "too many open files for this process; raise `ulimit -n` or lower --max-connections",
}

HTTP_TROUBLE = {
    errno.EADDRINUSE: "is in use",
    errno.EACCES: "is not allowed to this user",
    errno.EADDRNOTAVAIL: "is not of this machine",
}

FOLDER_ADVICE = {
    errno.ENOENT: "{file} could not be made; choose another --data, or --memory",
    errno.EEXIST: "{file} is a file, but --data needs a folder",
    errno.ENOTDIR: "{file} is not in a folder; choose another --data",
    errno.EROFS: "{file} is on a disk that is read-only; choose another --data, or --memory",
    errno.EACCES: "{file} may not be written by this user; choose another --data, or --memory",
    errno.ENOSPC: "{file} cannot be written, since the disk is full; free some space, or choose another --data",
}


def explain(error: OSError | JournalError, config: Config) -> str:
    if isinstance(error, JournalError):
        return f"{config.data}: {error}"
    if isinstance(error, BlockingIOError) and error.filename:
        return f"{config.data} is {error.strerror}, another broker; stop it or choose --data"
    if isinstance(error, HttpError):
        why = HTTP_TROUBLE.get(error.errno or 0, f"cannot be listened on: {error.strerror}")
        where = f"port {config.http_port} on {config.http_host}"
        return f"{where}, for the dashboard, {why}; choose --http-port and --http-host, or --no-http"
    if isinstance(error, socket.gaierror):
        return f"{config.host} is not a host that can be found; choose --host"
    if error.filename and error.errno in FOLDER_ADVICE:
        return FOLDER_ADVICE[error.errno].format(data=config.data, file=error.filename)
    advice = None if error.filename else ADVICE.get(error.errno or 0)  # a file's error is not about the port
    return advice.format(port=config.port, host=config.host) if advice else f"cannot serve: {error}"


def main() -> int:
    try:
        config = Config.load(sys.argv[1:], os.environ)
        systemd = from_environment(os.environ, os.getpid())
    except ConfigError as error:
        print(f"mqksd: {error}", file=sys.stderr)
        return 2
    logs.set_up(config.log_level, config.log_format)
    try:
        return serve(config, systemd)
    except ConfigError as error:  # of addresses, and of files that it names
        logging.error(error)
        return 2
    except (OSError, JournalError) as error:
        logging.error(explain(error, config))
        logging.debug("where it happened", exc_info=True)
        return 1
    except Exception:
        logging.critical("the broker stops by a fault of its own", exc_info=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
