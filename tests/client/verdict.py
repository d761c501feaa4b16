"""What must hold in the end of a simulated run: who is alive, and whether the ledger agrees with the journal."""

import json
from collections import Counter
from typing import TYPE_CHECKING

from tests.client.users import Reader
from tests.sim import journal
from tests.sim.links import Violation

if TYPE_CHECKING:
    from tests.client.simulation import Simulation


def alive(sim: "Simulation") -> None:
    """The broker has each wanted consumer, on the connection that the session believes in."""
    for driver in sim.drivers:
        if driver.wire is None or not driver.session.connected or driver.wire.client not in sim.server.wires:
            raise Violation(f"{driver.name} is not connected")
    for handler in sim.handlers:
        assert handler.driver.wire is not None
        consumers = handler.driver.wire.client.consumers or {}
        consumer = consumers.get(handler.wanted.id.encode())
        if consumer is None or consumer.queue is not sim.server.broker.queues.by_name.get(handler.name.encode()):
            raise Violation(f"{handler.driver.name} is connected, and deaf for {handler.name}")


def agrees(sim: "Simulation") -> None:
    copies = Counter(line.split(b" ", 1)[0].decode() for line in journal.lines(sim.server.disk, b"publish", b"send"))
    publishes(sim, copies)
    for plan in {handler.name: handler.plan for handler in sim.handlers}.values():
        if plan.safe:
            reached(sim, plan.name, plan.events, manual_ack=plan.manual_ack)
        never_again(sim, plan.name, copies)
        if sum(handler.name == plan.name for handler in sim.handlers) == 1:
            in_order(sim, plan.name, copies)
    for reader in sim.readers:
        read_all(sim, reader)
    (answer,) = sim.server.ask("s stats", b"s ok ")
    for name, queue in json.loads(answer.split(" ", 2)[2])["queues"].items():
        if name in {handler.name for handler in sim.handlers} and (queue["ready"] or queue["unacked"]):
            raise Violation(f"the queue {name} is not empty: {queue}")


def publishes(sim: "Simulation", copies: Counter[str]) -> None:
    for publisher in sim.publishers:
        if publisher.session.size:
            raise Violation(f"{publisher.name} has not sent all")
    published = [sent for sent in sim.ledger.sent.values() if sent.publisher != "probe"]
    missing = [sent for sent in published if not sent.waits and not copies[sent.id]]
    if len(missing) > sim.ear.at_risk and not sim.server.power_losses:
        raise Violation(f"{len(missing)} publishes are missing, {sim.ear.at_risk} were said to be at risk: {missing}")
    for sent in published:
        if not sent.connection:
            raise Violation(f"never left: {sent}")
        if sent.done and not copies[sent.id]:
            raise Violation(f"reported as done, and not in the journal: {sent}")
        if sent.once and copies[sent.id] != 1:
            raise Violation(f"{copies[sent.id]} of what was published once: {sent}")
        if sent.waits and not sent.done:
            raise Violation(f"never answered: {sent}")


def reached(sim: "Simulation", queue: str, events: tuple[str, ...], *, manual_ack: bool) -> None:
    """What was confirmed got there; with manual ack it was acked too, as was all that anybody was given. Without, it
    may be lost with the connection that it was sent over."""
    came = {one.id for _, one in sim.ledger.came.get(queue, [])}
    swallowed = set() if manual_ack else lost_on_the_way(sim, queue)
    for sent in sim.ledger.sent.values():
        confirmed = sent.done and sent.event in events
        if not manual_ack:
            if confirmed and sent.id not in came | swallowed:
                raise Violation(f"{queue} never had {sent}")
            continue
        due = confirmed or (sent.id in came and not sim.server.power_losses)
        if due and not sim.ledger.acked.get((queue, sent.id)):
            raise Violation(f"{queue} has lost {sent}, which {'was' if sent.id in came else 'was never'} given")


def lost_on_the_way(sim: "Simulation", queue: str) -> set[str]:
    ids = {id for handler in sim.handlers if handler.name == queue for id in handler.ids}
    lines = [line.decode().split(" ", 3) for wire in sim.server.all_wires for line in wire.lost.splitlines()]
    return {line[2] for line in lines if line[0] in ids and len(line) > 2}


def never_again(sim: "Simulation", queue: str, copies: Counter[str]) -> None:
    """A message whose ack was confirmed, as often as it is in the journal, does not come after that."""
    last: dict[str, int] = {}
    for _, one in sim.ledger.came.get(queue, []):
        if not one.late:
            last[one.id] = one.when
    for (name, id), oks in sim.ledger.confirmed.items():
        if name == queue and len(oks) > copies[id]:
            raise Violation(f"{queue}: {id} is {copies[id]} times in the journal, and was acked {len(oks)} times")
        if name == queue and len(oks) == copies[id] and last.get(id, 0) > oks[-1]:
            raise Violation(f"{queue}: {id} came again after its ack was confirmed")


def in_order(sim: "Simulation", queue: str, copies: Counter[str]) -> None:
    """What one publisher sent over one connection, by one life of the broker, at the first time. What was sent again is
    out of order by itself, and so is what a dead consumer had that the broker did not know to be dead."""
    seen: set[str] = set()
    newest: dict[tuple[int, str, int], int] = {}
    for handler, one in sim.ledger.came.get(queue, []):
        sent = sim.ledger.sent[one.id]
        alone = one.life not in sim.witnesses[handler.driver].crowded
        if alone and one.id not in seen and not one.retry and copies[one.id] == 1:
            key = one.life, sent.publisher, sent.connection
            if newest.get(key, 0) > sent.number:
                raise Violation(f"{queue}: {sent} came after number {newest[key]}")
            newest[key] = sent.number
        seen.add(one.id)


def read_all(sim: "Simulation", reader: Reader) -> None:
    """The history, as the broker tells it now, is what its reader was told: nothing twice, nothing missing."""
    lines = [line.split(" ", 5)[2:] for line in sim.server.ask("h history earliest", b"h ok --end ")[:-1]]
    truth = [(int(place), id) for place, id, *_ in lines if int(place) >= reader.pinned]
    read = [(record.position, record.id) for record in reader.records]
    if read != truth:
        at = next((n for n, (one, other) in enumerate(zip(read, truth, strict=False)) if one != other), None)
        raise Violation(f"{reader.name}: {len(read)} of {len(truth)} records read; the first other one is number {at}")
