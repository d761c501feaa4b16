"""The broker that a command talks to: its address among the arguments, a client for it, and news about the connection.

Commands import this and not the client: it is imported when a command connects, so that `--help` stays quick.
"""

import atexit
import logging
import threading
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import mqks
from mqks.cli.command import by_ctrl_c
from mqks.cli.output import complain

if TYPE_CHECKING:
    from mqks.client.blocking import Client

T = TypeVar("T")

IN_A_HURRY = 0.2  # seconds for a broker to take what was sent, after an error
NOTHING = logging.CRITICAL + 1


def address(text: str) -> str:
    from mqks.client.address import find_address

    try:
        return str(find_address(text))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def add_url(parser: ArgumentParser) -> None:
    about = "the broker (default: $MQKS_URL, or else mqks://127.0.0.1:25000)"
    parser.add_argument("--url", metavar="URL", type=address, help=about)


class _Complaints(logging.Handler):
    """What the client logs, as lines of this command."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(record.getMessage())


_complaints = _Complaints(NOTHING)


@contextmanager
def client_log() -> Iterator[None]:
    """For as long as a command runs: nothing that the client logs gets to stderr by another way."""
    logger = logging.getLogger("mqks.client")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(_complaints)
    try:
        yield
    finally:
        logger.removeHandler(_complaints)
        logger.setLevel(level)


@contextmanager
def broker(args: Namespace, *, timeout: float = 10.0, tell: bool = True) -> Iterator["Client"]:
    """A client for the broker at the address. `tell` on stderr when the connection goes and comes again.

    After Ctrl-C the client is not touched any more, since it may have come in the middle of its work, with a lock in an
    unknown state. The process ends, and the broker sees the connection go.
    """
    from mqks.client.address import find_address

    try:
        url = str(find_address(args.url))
    except ValueError as error:
        args.parser.error(str(error))
    _complaints.setLevel(NOTHING)
    mq = meet(url, timeout)
    _complaints.setLevel(logging.INFO if tell else NOTHING)
    try:
        yield mq
    except BaseException as error:
        if by_ctrl_c(error):
            atexit.unregister(mq.close)
            logging.getLogger("mqks.client").disabled = True  # a thread that still runs shall be quiet
        else:
            mq.close(IN_A_HURRY)
        raise
    mq.close()


def meet(url: str, timeout: float) -> "Client":
    """A client that has heard from its broker. There is one attempt: who types a command wants to hear at once that
    there is no broker, or that whoever is there is none."""
    from mqks.client.errors import ConnectionLost

    made, met = threading.Event(), threading.Event()

    def lost() -> None:
        made.wait()
        if not met.is_set():
            mq.close(IN_A_HURRY)

    mq = mqks.Client(url, connect_timeout=0, timeout=timeout, on_disconnect=lost)
    made.set()
    try:
        mq.ping()
    except ConnectionLost:
        raise ConnectionLost(f"no MQKS broker answers at {url}") from None
    except BaseException as error:
        if not by_ctrl_c(error):
            mq.close(IN_A_HURRY)
        raise
    met.set()
    return mq


def apart(work: Callable[[], T]) -> T:
    """In a thread of its own: Ctrl-C comes to the main one, and so never in the middle of what a client does."""
    results: list[T] = []
    errors: list[Exception] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="apart", daemon=True).start()
    done.wait()
    for error in errors:
        raise error
    return results[0]
