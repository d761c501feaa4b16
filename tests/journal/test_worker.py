"""The thread for syncs and reads: it needs no GIL, hears no signal, keeps the order, and ends when it should."""

import ctypes
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqks.core.worker import Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.stop()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    with path.open("rb+") as opened:
        yield opened.fileno()


def threads() -> set[str]:
    return {path.name for path in Path("/proc/self/task").iterdir()}


def wait_until_gone(ended: set[str]) -> None:
    """The kernel forgets a thread a little after it was joined."""
    while threads() & ended:
        os.sched_yield()


def test_signals_are_for_other_threads() -> None:
    before, mask = threads(), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    worker = Worker()
    (thread,) = threads() - before
    status = Path(f"/proc/self/task/{thread}/status").read_text("ascii")
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        assert blocked >> number - 1 & 1
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask
    worker.stop()
    wait_until_gone({thread})


def test_work_goes_on_while_python_keeps_the_gil(worker: Worker, file: int) -> None:
    class PollFd(ctypes.Structure):
        _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))

    waiting = PollFd(worker.fileno(), select.POLLIN, 0)
    worker.start_sync((file,), 1)
    assert ctypes.PyDLL(None).poll(ctypes.byref(waiting), 1, 60_000) == 1  # a PyDLL's functions do not let go of it
    assert worker.finished() == [(1, 0, b"")]


def test_a_stopped_worker_has_done_a_first_part(file: int) -> None:
    for _ in range(50):
        worker = Worker()
        for tag in range(100):
            worker.start_read(file, 10_000, 0, tag)
        worker.stop()
        tags = [tag for tag, _, _ in worker.finished()]
        assert tags == list(range(len(tags)))
        assert worker.finished() == []


def test_a_forgotten_worker_ends_by_itself(file: int) -> None:
    before = threads()
    for _ in range(50):
        worker = Worker()
        for tag in range(20):
            worker.start_read(file, 10_000, 0, tag)
        event, new = worker.fileno(), threads() - before
        del worker
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(event)
        wait_until_gone(new)


def test_workers_that_share_an_eventfd_end_in_any_order() -> None:
    for order in ((0, 1), (1, 0)):
        first = Worker()
        workers = [first, Worker(first.fileno())]
        workers[order[0]].stop()
        workers[order[1]].start_sync((), 1)
        select.select([workers[order[1]].fileno()], [], [])
        assert workers[order[1]].finished() == [(1, 0, b"")]
        workers[order[1]].stop()
    with pytest.raises(OSError, match="Bad file descriptor"):
        Worker(1 << 20)


def test_refuses_what_makes_no_sense(worker: Worker) -> None:
    with pytest.raises(TypeError):
        worker.start_sync((0, "1"), 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="less than nothing"):
        worker.start_read(0, -1, 0, 1)
    with pytest.raises(OverflowError):
        worker.start_read(0, 2**63 - 1, 0, 1)
    worker.start_sync((), 2)
    select.select([worker.fileno()], [], [])
    assert worker.finished() == [(2, 0, b"")]
