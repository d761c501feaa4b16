"""Spark's own process, a Java: known from its first moment on, so that it can be ended whenever this one is to end.

pyspark begins it and knows it only when it has answered: whoever interrupts that before leaves it behind. And it says
on stderr how it does not like to be stopped, as do the Python processes below it: so what it says passes through here.
"""

from __future__ import annotations

import os
import signal
import subprocess  # nosec B404  # to know what pyspark starts
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, ClassVar

STDERR = 2


class Launched(subprocess.Popen[bytes]):
    """In a group of its own, with all that its scripts start until Java is there."""

    all: ClassVar[list[Launched]] = []
    hushed = False

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self._passing_on = Thread(target=self._pass_on, name="Spark's stderr", daemon=True)
        self.all.append(self)  # before it runs: an interrupt may come at any time
        super().__init__(command, stderr=subprocess.PIPE, process_group=0, **options)
        self._passing_on.start()

    def _pass_on(self) -> None:
        assert self.stderr is not None
        for line in self.stderr:
            if not self.hushed:
                os.write(STDERR, line)

    def end(self) -> None:
        """At once. What it has said is passed on."""
        if getattr(self, "pid", None) is None:  # it was not begun
            return
        with self:  # which closes its pipes and waits for it
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            if self._passing_on.is_alive():
                self._passing_on.join()


@contextmanager
def known() -> Iterator[None]:
    """What pyspark launches meanwhile can be ended by `kill`. If it is interrupted before it has it, nobody else can,
    and it is done here."""
    from pyspark import SparkContext, java_gateway

    launching: Any = java_gateway
    popen, launching.Popen = launching.Popen, Launched  # there is no other way to see it before it answers
    try:
        yield
    except BaseException as error:
        if SparkContext._gateway is None:
            if isinstance(error, KeyboardInterrupt):
                hush()
            kill()
        raise
    finally:
        launching.Popen = popen


def hush() -> None:
    """Nothing that it says is shown any more."""
    for launched in Launched.all:
        launched.hushed = True


def kill() -> None:
    """With all that is below it. What it keeps on disk meanwhile goes with the session's own folder."""
    while Launched.all:
        Launched.all.pop().end()
