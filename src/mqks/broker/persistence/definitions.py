"""What queues are, as lines of the journal: each is written when it changes, once there is a journal."""

from mqks.broker.capacity import Capacity
from mqks.broker.queues.queue import Queue
from mqks.core.hub import Core
from mqks.dtid import Dtids


class DefinitionLog:
    def __init__(self, core: Core, new_dtid: Dtids, capacity: Capacity) -> None:
        self._core = core
        self._new_dtid = new_dtid
        self._capacity = capacity
        self._is_open = False

    def open(self) -> None:
        """The journal takes lines from now on. What a start reads from it is not written again."""
        self._is_open = True

    def check_room(self) -> None:
        """May a queue that is there be written down anew?"""
        if self._is_open:
            self._capacity.check_room()

    def write(self, queue: Queue) -> None:
        """The queue is new or may have changed."""
        if not self._is_open:
            return
        definition = queue.definition()
        if definition != queue.kept:
            position = self._core.router.record(b"%s rebind %s\n" % (self._new_dtid(), definition))
            queue.kept = definition
            queue.birth = queue.birth or position

    def write_deletion(self, queue: Queue) -> None:
        """The queue is gone."""
        if self._is_open:
            self._core.router.record(b"%s delete_queue %s\n" % (self._new_dtid(), queue.name))
