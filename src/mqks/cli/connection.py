"""The broker that a command talks to: its address among the arguments, a client for it, and news about the connection.

Commands import this and not the client: it is imported when a command connects, so that `--help` stays quick.
"""

import atexit
import logging
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import mqks
from mqks.cli.command import by_ctrl_c
from mqks.cli.output import complain

if TYPE_CHECKING:
    from mqks.client.blocking import Client

IN_A_HURRY = 0.2  # seconds for a broker to take what was sent, after Ctrl-C or an error


def address(text: str) -> str:
    from mqks.client.address import find_address

    try:
        return str(find_address(text))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def add_url(parser: ArgumentParser) -> None:
    about = "the broker (default: $MQKS_URL, or else mqks://127.0.0.1:25000)"
    parser.add_argument("--url", metavar="URL", type=address, help=about)


def add_json(parser: ArgumentParser, about: str = "for programs: one JSON object per line") -> None:
    parser.add_argument("--json", action="store_true", help=about)


class _Complaints(logging.Handler):
    """What the client logs, as lines of this command."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


@contextmanager
def _logging_to(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger("mqks.client")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    except BaseException as error:
        logger.disabled = by_ctrl_c(error)  # a thread that still runs shall be quiet
        raise
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def broker(args: Namespace, *, timeout: float = 10.0, tell: bool = True) -> Iterator["Client"]:
    """A client for the broker at the address. `tell` on stderr when the connection goes and comes again.

    After Ctrl-C the client is not touched any more, since it may have come in the middle of its work, with a lock in an
    unknown state. The process ends, and the broker sees the connection go.
    """
    from mqks.client.address import find_address

    try:
        url = find_address(args.url)
    except ValueError as error:
        args.parser.error(str(error))
    with _logging_to(_Complaints() if tell else logging.NullHandler()):
        # One attempt: who types a command wants to hear at once that there is no broker.
        mq = mqks.Client(str(url), connect_timeout=0, timeout=timeout)
        try:
            yield mq
        except BaseException as error:
            if by_ctrl_c(error):
                atexit.unregister(mq.close)
            else:
                mq.close(IN_A_HURRY)
            raise
        mq.close()
