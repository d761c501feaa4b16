"""A process behind a pipe: it says when it is ready, then answers order by order, or says what went wrong."""

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from benchmarks.contenders.base import BenchError
from benchmarks.server import STALL_SECONDS

T = TypeVar("T")


class Behind(Generic[T]):
    """`work` is called there with its end of the pipe; an answer that is a text is a failure. `with` ends it."""

    name: ClassVar[str]

    def __init__(self, work: Callable[..., None], *given: Any) -> None:
        self.pipe, self.child = multiprocessing.Pipe()
        fork = multiprocessing.get_context("fork")
        self.process = fork.Process(target=_run, args=(work, self.child, *given), daemon=True)

    def __enter__(self) -> Self:
        self.process.start()
        self.child.close()  # only the process holds it now: its death is seen here
        self.answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()

    def answer(self) -> T:
        if not self.pipe.poll(2 * STALL_SECONDS):
            raise BenchError(f"the {self.name} is stuck")
        try:
            answer: T | str = self.pipe.recv()
        except EOFError:
            answer = "it died"
        if isinstance(answer, str):
            raise BenchError(f"the {self.name} failed: {answer}")
        return answer


def _run(work: Callable[..., None], pipe: Connection, *given: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    work(pipe, *given)
