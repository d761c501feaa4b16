"""`mqks up`: a broker and its pipeline with one command and one Ctrl-C.

They are two processes below this one, so that what happens to Spark does not happen to the broker. When all ends the
pipeline goes first: it still has something to tell the broker.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import shlex
import signal
import socket
import subprocess  # nosec B404  # to start our own modules
import sys
import time
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mqks.cli.command import Command, add_conf
from mqks.cli.connection import address
from mqks.cli.output import complain
from mqks.signals import stop_signals

if TYPE_CHECKING:
    from mqks.server.config import Config

LOOK_AGAIN = 0.05
PATIENCE = 30.0  # seconds for the pipeline to end what it is at
DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG


def arguments(parser: ArgumentParser) -> None:
    from mqks.pipeline.place import LAKE
    from mqks.server.config import OPTIONS
    from mqks.values import SWITCH

    parser.add_argument("--lake", metavar="DIR", default=LAKE, help=f"folder or URL of the lake (default: {LAKE})")
    parser.add_argument("--master", metavar="URL", default="local[*]", help="the Spark cluster (default: local[*])")
    add_conf(parser)
    parser.add_argument("--run", metavar="FILE.py", action="append", default=[], help="a pipeline of yours, too")
    parser.add_argument(
        "--pipeline", action=argparse.BooleanOptionalAction, default=True, help="archive and stats beside the broker"
    )
    about = "run this first, while the broker works already: the pipeline starts when it has succeeded"
    parser.add_argument("--before-pipeline", metavar="COMMAND", type=shlex.split, default=[], help=about)
    about = (
        "how the pipeline reaches the broker (default: as --host and --port say), if its certificate has another name"
    )
    parser.add_argument("--url", metavar="URL", type=address, help=about)
    broker = parser.add_argument_group("the broker's own, as `mqksd --help` tells them")
    for option in OPTIONS:
        if option.kind is SWITCH:
            broker.add_argument(option.flag, action=argparse.BooleanOptionalAction, default=None)
        else:
            broker.add_argument(option.flag, metavar=option.kind.metavar)


def flags_for_broker(args: Namespace) -> list[str]:
    from mqks.server.config import OPTIONS
    from mqks.values import SWITCH

    flags = []
    for option in OPTIONS:
        value = getattr(args, option.name)
        if value is None:
            continue
        if option.kind is SWITCH:
            flags.append(option.flag if value else option.flag.replace("--", "--no-", 1))
        else:
            flags.append(f"{option.flag}={value}")
    return flags


def run(args: Namespace) -> int:
    from mqks.server.config import Config, ConfigError

    flags = flags_for_broker(args)
    try:
        config = Config.load(flags, os.environ)
    except ConfigError as error:
        args.parser.error(str(error))
    if config.port == 0:
        args.parser.error("mqks up needs a --port that the pipeline can be told")
    with Children() as children:
        children.start("mqks.cli.mqksd", *flags)
        while children.should_run and not is_listening(config):
            time.sleep(LOOK_AGAIN)
        if children.should_run and args.pipeline:
            start_pipeline(args, config, children)
        return children.wait()


def is_listening(config: Config) -> bool:
    with suppress(OSError), socket.create_connection((reachable(config), config.port), timeout=1):
        return True
    return False


def reachable(config: Config) -> str:
    """Where a broker that listens everywhere is met on its own machine."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # nosec B104  # looked for, not bound
    return everywhere.get(config.host, config.host)


def url_of(config: Config) -> str:
    """For clients on its own machine. What they show the broker, and trust, is in the environment."""
    from mqks.client.address import Address

    return str(Address(reachable(config), config.port, tls=config.tls_cert is not None))


def start_pipeline(args: Namespace, config: Config, children: Children) -> None:
    reason = config_error(config) or before_pipeline_error(args.before_pipeline, children) or spark_error()
    if not children.should_run:
        return
    if reason:
        complain(f"no pipeline: {reason}. The broker runs on without it")
    else:
        children.start("mqks.cli.mqks", "pipeline", *pipeline_arguments(args, config))


def pipeline_arguments(args: Namespace, config: Config) -> list[str]:
    where = [
        f"--url={args.url or url_of(config)}",
        f"--data={config.data}",
        f"--lake={args.lake}",
        f"--master={args.master}",
    ]
    settings = [f"--conf={name}={value}" for name, value in args.conf]
    return ["run", "archive", "stats", *args.run, *where, *settings]


def config_error(config: Config) -> str | None:
    """Which setting does not allow a pipeline."""
    if config.memory:
        return "with --memory there is no journal to read"
    if config.auth_file and "MQKS_TOKEN" not in os.environ:
        return "with --auth-file it needs a token of its own in MQKS_TOKEN (docs/CLI.md, mqks up)"
    return None


def before_pipeline_error(command: list[str], children: Children) -> str | None:
    """How the command before the pipeline fails."""
    if not command:
        return None
    complain(f"the broker takes connections. The pipeline starts after: {shlex.join(command)}")
    try:
        code = children.run_to_end(command)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return f"{shlex.join(command)} ended with exit code {code}" if code else None


def spark_error() -> str | None:
    """What Spark lacks here."""
    from mqks.pipeline.session import CannotStart, check

    importlib.invalidate_caches()  # it may have been installed just now
    try:
        check()
    except CannotStart as error:
        return str(error)
    return None


class Children:
    """The broker, then its pipeline: ended in the other order, and with this process if it is killed."""

    def __enter__(self) -> Children:
        self._running: list[subprocess.Popen[bytes]] = []
        self._signals = 0
        self._before = {number: signal.signal(number, self._heed) for number in stop_signals()}
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        for signals, child in enumerate(reversed(self._running), 2):
            self._end(child, in_a_hurry=signals)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def should_run(self) -> bool:
        """Does the broker run, and has nobody asked to stop?"""
        return not self._signals and self._running[0].poll() is None

    def _heed(self, *_: object) -> None:
        self._signals += 1

    def _pass_on(self, number: int, _: object) -> None:
        """To the broker, which reads its certificate and its tokens again."""
        for broker in self._running[:1]:
            broker.send_signal(number)

    def _end(self, child: subprocess.Popen[bytes], in_a_hurry: int) -> None:
        """Asks it to end; after that many signals, or when it takes too long, it has to."""
        child.terminate()
        until = time.monotonic() + PATIENCE
        while child.poll() is None:
            if self._signals >= in_a_hurry or time.monotonic() > until:
                child.kill()
                child.wait()
            time.sleep(LOOK_AGAIN)

    def start(self, module: str, *arguments: str) -> None:
        self._begin([sys.executable, "-m", module, *arguments])

    def _begin(self, command: list[str]) -> subprocess.Popen[bytes]:
        # In a session of its own: Ctrl-C is for this process alone, which passes it on in its order.
        child = subprocess.Popen(  # nosec B603  # our own module, or what the user has asked for
            command, start_new_session=True, preexec_fn=die_with_parent
        )
        self._running.append(child)
        return child

    def run_to_end(self, command: list[str]) -> int:
        """The exit code of this command. If all is to end, it is ended, with all that it has started."""
        child = self._begin(command)
        while self.should_run and child.poll() is None:
            time.sleep(LOOK_AGAIN)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
            self._end(child, in_a_hurry=2)
        self._running.remove(child)
        return child.returncode

    def wait(self) -> int:
        """Until the broker has ended, which is said, or Ctrl-C; answers the exit code of all."""
        broker, *others = self._running
        while not self._signals and broker.poll() is None:
            for child in others:
                if child.poll() is not None:
                    others.remove(child)
                    complain(f"the pipeline has ended (exit code {child.returncode}). The broker runs on without it")
            time.sleep(LOOK_AGAIN)
        if self._signals:
            return 0
        code = broker.wait()
        complain(how_it_ended(code) + ("; the pipeline is stopped" if others else ""))
        return code if code >= 0 else 128 - code  # as shells have it


def how_it_ended(code: int) -> str:
    """The broker, by the exit code that Python tells: below 0 for a signal."""
    if code >= 0:
        return f"the broker ended (exit code {code})"
    names = {one.value: f" ({one.name})" for one in signal.Signals}
    return f"the broker was ended by signal {-code}{names.get(-code, '')}"


def die_with_parent() -> None:
    if Path("/proc").exists():  # Linux
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)


COMMAND = Command(
    "run a broker and its pipeline together", arguments, run, "mqks up --data=./mqks-data --lake=./mqks-lake"
)
