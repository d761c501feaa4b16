"""Those who have not said who they are, and who of them goes first where there is no room: the oldest one of the
address that has most, or has had as many for the longest time. So who comes and says nothing keeps out only others
of its kind.

Whoever comes to a full broker makes us look: that takes as long for ten thousand addresses as for one.
"""

from mqks.broker.connections.client import Client, origin


class Strangers:
    def __init__(self) -> None:
        self._there: dict[str, dict[Client, None]] = {}  # by address, in the order in which they came
        self._crowds: list[dict[str, None]] = [{}]  # at n the addresses that have n; at 0 none, at the end some
        self.cost = 0  # bytes of memory that they have together

    def add(self, client: Client) -> None:
        address = origin(client.peer)
        there = self._there.setdefault(address, {})
        if client not in there:
            self._leave(address, len(there))
            there[client] = None
            self.cost += client.cost
            self._join(address, len(there))

    def discard(self, client: Client) -> None:
        address = origin(client.peer)
        there = self._there.get(address, {})
        if client in there:
            self._leave(address, len(there))
            del there[client]
            self.cost -= client.cost
            self._join(address, len(there))

    def first_to_go(self) -> Client | None:
        for address in self._crowds[-1]:
            return next(iter(self._there[address]))
        return None

    def _leave(self, address: str, count: int) -> None:
        self._crowds[count].pop(address, None)

    def _join(self, address: str, count: int) -> None:
        """It has one more, or one fewer, than before."""
        if count == len(self._crowds):
            self._crowds.append({})
        if count:
            self._crowds[count][address] = None
        else:
            del self._there[address]
        if len(self._crowds) > 1 and not self._crowds[-1]:
            self._crowds.pop()
