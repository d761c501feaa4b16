"""The broker that a command talks to: its address and what it is shown, among the arguments, a client for it, and news
about the connection.

Commands import this and not the client: it is imported when a command connects, so that `--help` stays quick.
"""

import atexit
import logging
import threading
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import mqks
from mqks.cli.command import by_ctrl_c
from mqks.cli.output import complain

if TYPE_CHECKING:
    from mqks.client.access import Access
    from mqks.client.blocking import Client
    from mqks.client.errors import MqksError

T = TypeVar("T")

IN_A_HURRY = 0.2  # seconds for a broker to take what was sent, after an error
NOTHING = logging.CRITICAL + 1


def address(text: str) -> str:
    from mqks.client.address import find_address

    try:
        return str(find_address(text))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


ACCESS = {
    "--token-file": "a file with the token to show to the broker (default: what $MQKS_TOKEN has)",
    "--ca": "whose certificates are trusted with mqkss:// (default: $MQKS_CA, or else the system's)",
    "--cert": "a certificate to show to the broker (default: $MQKS_CLIENT_CERT)",
    "--key": "its key, if it is in another file (default: $MQKS_CLIENT_KEY)",
}


def add_url(parser: ArgumentParser) -> None:
    about = "the broker (default: $MQKS_URL, or else mqks://127.0.0.1:25000); mqkss://… for TLS"
    parser.add_argument("--url", metavar="URL", type=address, help=about)
    for flag, about in ACCESS.items():
        parser.add_argument(flag, metavar="FILE", help=about)


def access_of(args: Namespace) -> "Access":
    """What the flags name, and else the environment."""
    from mqks.client.access import Access

    token = None
    try:
        if args.token_file:
            token = Path(args.token_file).read_text(encoding="utf-8", errors="replace").strip()
        return Access(token, args.ca, args.cert, args.key).found()
    except OSError as error:
        raise args.parser.error(f"--token-file {args.token_file}: {error.strerror}") from None
    except ValueError as error:
        raise args.parser.error(str(error)) from None


class _Complaints(logging.Handler):
    """What the client logs, as lines of this command. That it tries on in vain, it tells `hopeless` instead."""

    hopeless: "Callable[[MqksError], None]"

    def emit(self, record: logging.LogRecord) -> None:
        from mqks.client.errors import AuthRefused, TlsFailed

        match record.args:
            case (AuthRefused() | TlsFailed() as error,):
                self.hopeless(error)
            case _:
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

    Then a broker that is back, and does not let it in any more, is the end too: the client would try on, as somebody
    may mend it, but whoever has typed a command wants to hear why.

    After Ctrl-C the client is not touched any more, since it may have come in the middle of its work, with a lock in an
    unknown state. The process ends, and the broker sees the connection go.
    """
    from mqks.client.address import find_address
    from mqks.client.errors import MqksError

    try:
        where = find_address(args.url)
    except ValueError as error:
        args.parser.error(str(error))
    access = access_of(args)
    if tell:
        warn_of(access, str(where))
    _complaints.setLevel(NOTHING)
    mq = meet(str(where), timeout, access)
    refusals: list[MqksError] = []

    def end(error: MqksError) -> None:
        refusals.append(error)
        mq.close(0)

    _complaints.hopeless = end
    _complaints.setLevel(logging.INFO if tell else NOTHING)
    try:
        yield mq
    except BaseException as error:
        if by_ctrl_c(error):
            atexit.unregister(mq.close)
            logging.getLogger("mqks.client").disabled = True  # a thread that still runs shall be quiet
        else:
            mq.close(IN_A_HURRY)
            if refusals and isinstance(error, MqksError):
                raise refusals[0] from None
        raise
    mq.close()
    if refusals:
        raise refusals[0]


def warn_of(access: "Access", url: str) -> None:
    """On stderr: what others on the way could do."""
    from mqks.client.address import find_address

    _complaints.setLevel(logging.WARNING)
    access.warn(find_address(url))
    _complaints.setLevel(NOTHING)


def meet(url: str, timeout: float, access: "Access") -> "Client":
    """There is one attempt: who types a command wants to hear at once that there is no broker, or that whoever is there
    is none."""
    return mqks.Client(
        url,
        token=access.token,
        ca=access.ca,
        cert=access.cert,
        key=access.key,
        connect_timeout=0,
        timeout=timeout,
    )


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
