"""A function that receives events: it stays a function, and a thread of its own calls it, one event after the other.

A handler that fails is logged and does not end the receiver. With manual ack its event goes back to the queue after a
pause that grows with each retry. The receiver goes on with the next event meanwhile, so that one bad event neither
spins nor holds up the good ones; only when many wait to go back, as when all fail, does the receiver pause too.
"""

import functools
import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from mqks.client.blocking import Consumer
from mqks.client.errors import MqksError
from sevx.event import Event
from sevx.loop import LoopThread

Result = TypeVar("Result")

log = logging.getLogger("sevx")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds
MOST_HELD = 100  # failed events of one receiver that wait to go back to the queue


def pause_before(retry: int) -> float:
    """Seconds for which an event that failed, after so many retries, is kept from coming again."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(retry, 10))


class Receiver(Generic[Result]):
    """What `@on` makes of a function. Called, it is that function."""

    def __init__(
        self,
        function: Callable[[Event], Result],
        consumer: Consumer,
        *,
        manual_ack: bool,
        loop: LoopThread,
        ended: Callable[["Receiver[Any]"], object],
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = getattr(function, "__qualname__", repr(function))
        self.queue = consumer.queue
        self.thread = threading.Thread(target=self._run, name=f"sevx {self.queue}", daemon=True)
        self._function = function
        self._consumer = consumer
        self._manual_ack = manual_ack
        self._loop = loop
        self._ended = ended
        self._ending = threading.Event()
        self._in_hand = threading.Lock()  # held while the function has an event
        self._held: set[Event] = set()

    def __call__(self, event: Event) -> Result:
        return self._function(event)

    def delete_queue(self) -> None:
        """Delete the queue, and with it this receiver; returns when the broker has done it."""
        self._ending.set()
        self._consumer.delete_queue()

    def delete(self) -> None:
        """No more events. Those that were not acked go back to the queue, also one that the function has in hand."""
        self._ending.set()
        self._consumer.delete()

    def finish(self) -> None:
        """The same, but an event in hand can still be acked: when the function is done with it, the thread ends."""
        self._ending.set()
        if self._in_hand.acquire(blocking=False):
            self._consumer.delete()
            self._in_hand.release()

    # The thread

    def _run(self) -> None:
        try:
            for message in self._consumer:
                with self._in_hand:
                    if not (self._manual_ack and self._ending.is_set()):  # else it comes again, to somebody
                        self._handle(Event(message.id, message.data, message if self._manual_ack else None))
                if self._ending.is_set():
                    self._consumer.delete()  # what has come without manual ack is settled, and still handled
        except MqksError as error:
            log.error("%s receives nothing: %s", self.name, error)
        else:
            if not self._ending.is_set():
                log.warning("%s receives no more: its queue %s was deleted", self.name, self.queue)
        finally:
            self._consumer.delete()
            self._ended(self)

    def _handle(self, event: Event) -> None:
        error = self._outcome(event)
        if error is None:
            return
        if not self._manual_ack:
            log.error("%s failed, and event %s is lost", self.name, event.id, exc_info=error)
        elif event.settled:
            log.error("%s failed after it had settled event %s", self.name, event.id, exc_info=error)
        else:
            seconds = pause_before(event.retry)
            what = "%s failed, and event %s goes back to the queue in %g s"
            log.error(what, self.name, event.id, seconds, exc_info=error)
            self._give_back(event, seconds)

    def _outcome(self, event: Event) -> BaseException | None:
        """What the function raised. Even SystemExit: in a thread it would end nothing but this receiver."""
        try:
            result = self._function(event)
            return self._loop.outcome(result) if inspect.isawaitable(result) else None
        except BaseException as error:
            return error

    def _give_back(self, event: Event, seconds: float) -> None:
        def now() -> None:
            self._held.discard(event)
            event.reject()

        self._held.add(event)
        if len(self._held) < MOST_HELD:
            self._loop.later(seconds, now)
        else:
            self._ending.wait(seconds)
            now()
