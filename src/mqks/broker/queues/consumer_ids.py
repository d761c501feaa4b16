"""All consumers of the broker by their id, which several connections may use at once. Each step is O(1).

Each consumer that is here is charged as memory.
"""

from collections.abc import Iterable, Iterator, Mapping

from mqks.broker.capacity import Reserve
from mqks.core.parts import Consumer

CONSUMER_COST = 600  # bytes of memory, beside the id; measured, and rounded up


def consumer_cost(consumer_id: bytes) -> int:
    """The core has the id twice, once as the beginning of replies."""
    return CONSUMER_COST + 2 * len(consumer_id)


class ConsumerIds(Mapping[bytes, Consumer]):
    def __init__(self, readers: Reserve) -> None:
        self._readers = readers
        # An id that several consumers have, which is rare, has them as keys of a dict.
        self._consumers: dict[bytes, Consumer | dict[Consumer, None]] = {}

    def __len__(self) -> int:
        return len(self._consumers)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._consumers)

    def __contains__(self, consumer_id: object) -> bool:
        return consumer_id in self._consumers

    def __getitem__(self, consumer_id: bytes) -> Consumer:
        """The one that came first."""
        found = self._consumers[consumer_id]
        return next(iter(found)) if isinstance(found, dict) else found

    def having(self, consumer_id: bytes) -> Iterable[Consumer]:
        """All that have this id."""
        found = self._consumers.get(consumer_id, {})
        return found if isinstance(found, dict) else (found,)

    def add(self, consumer: Consumer) -> None:
        found = self._consumers.setdefault(consumer.id, consumer)
        if isinstance(found, dict):
            found[consumer] = None
        elif found is not consumer:
            self._consumers[consumer.id] = {found: None, consumer: None}
        self._readers.charge(consumer_cost(consumer.id))

    def remove(self, consumer: Consumer) -> None:
        found = self._consumers[consumer.id]
        if isinstance(found, dict):
            del found[consumer]
        if not isinstance(found, dict) or not found:
            del self._consumers[consumer.id]
        self._readers.charge(-consumer_cost(consumer.id))
