"""What threads wait for: messages and records as they come, and answers to requests.

The session calls `deliver`, `end` and `done`, with the driver's lock held; the rest is for the user's threads.
"""

from mqks.client.bell import Bell
from mqks.client.blocking_driver import BlockingDriver
from mqks.client.errors import MqksError, Refused
from mqks.client.stream import BaseStream, T
from mqks.client.wanted import Wanted
from mqks.client.wire import Message


class Answers:
    """Answers that a thread waits for."""

    def __init__(self, driver: BlockingDriver) -> None:
        self._driver = driver
        self._bell = Bell(driver.lock)
        self._last = ""
        self._error: MqksError | None = None
        self._most = 0
        self.missing = 0
        self.asked: list[str] = []  # ids of the requests
        self.refused: list[Refused] | None = None  # a list takes what is refused, which then is no error

    def add(self, id: str) -> None:
        """This request was asked, with `done` to take its answer; the lock is held."""
        self.missing += 1
        self.asked.append(id)

    def done(self, result: str | MqksError) -> None:
        self.missing -= 1
        if self.refused is not None and isinstance(result, Refused):
            self.refused.append(result)
        elif isinstance(result, MqksError):
            self._error = self._error or result
        else:
            self._last = result
        if self.missing <= self._most:
            self._bell.ring()

    def wait(self, missing: int = 0, timeout: float | None = None) -> str:
        """Until no more than this many are missing; answers the last one."""
        timeout = self._driver.options.timeout if timeout is None else timeout
        self._most = missing
        with self._driver.lock:
            self._driver.flush()
        if not self._bell.wait(lambda: self.missing <= missing, timeout):
            self.forget()
            raise TimeoutError(
                f"no answer from {self._driver.address} in {timeout} s; what was asked may still be done"
            )
        if self._error is not None and not self.missing:
            raise self._error
        return self._last

    def forget(self) -> None:
        """Nobody waits any more: what is not answered is not asked again."""
        with self._driver.lock:
            self._driver.session.forget(*self.asked)


def ask(driver: BlockingDriver, request: str, timeout: float | None = None) -> str:
    """A request with one answer, and that answer."""
    answers = Answers(driver)
    with driver.lock:
        driver.check_open()
        answers.add(driver.session.ask(request, answers.done))
    return answers.wait(timeout=timeout)


class Stream(BaseStream[T, bool]):
    """What comes, between the session and the threads that take it."""

    sent = True
    _driver: BlockingDriver

    def __init__(self, driver: BlockingDriver) -> None:
        super().__init__(driver)
        self._bell = Bell(driver.lock)
        self._ready = False

    def open(self, wanted: Wanted) -> None:
        self._wanted = wanted
        wanted.ready = self._be_ready
        with self._driver.lock:
            self._driver.check_open()
            self._driver.session.want(wanted)
            self._driver.flush()

    def deliver(self, items: list[T], size: int) -> None:
        self.items.extend(items)
        self._size += size
        self._bell.ring()

    def _be_ready(self) -> None:
        self._ready = True
        self._bell.ring()

    def end(self, error: MqksError | None) -> None:
        self._over = True
        self._error = error
        self._bell.ring()
        if self._abandoned:
            self.abandon()

    def ready(self, timeout: float | None = None) -> None:
        timeout = self._driver.options.timeout if timeout is None else timeout
        if not self._bell.wait(lambda: self._ready or self._over, timeout):
            raise TimeoutError(f"no answer from {self._driver.address} in {timeout} s")
        if self._error is not None:
            raise self._error

    def wait_for_end(self) -> None:
        """Until the broker delivers nothing more to it."""
        self._bell.wait(lambda: self._over, None)

    def more(self, timeout: float | None = None) -> bool:
        """Waits until there is something in `items`. False: there will be no more. TimeoutError: nothing came yet."""
        with self._driver.lock:
            self._forget_stale()
            if self._size and not self.items:
                assert self._wanted is not None
                self._driver.session.taken(self._wanted, self._size)
                self._size = 0
            self._driver.flush()
        if not self._bell.wait(lambda: self.items or self._over, timeout):
            raise TimeoutError("nothing came in this time")
        if not self.items and self._error is not None:
            raise self._error
        return bool(self.items)

    def settle(self, message: Message | None, action: str, confirm: bool) -> bool:
        answers = Answers(self._driver) if confirm else None
        with self._driver.lock:
            sent = self._settle(message, action, answers.done if answers else None)
            self._driver.flush_soon()
            if answers and sent:
                answers.add(sent)
        if answers and sent:
            try:
                answers.wait()
            except BaseException:
                self._unsettle(message)
                raise
        return bool(sent)

    def leave(self) -> None:
        assert self._wanted is not None
        with self._driver.lock:
            self._driver.session.unwant(self._wanted)
            self._driver.flush()
