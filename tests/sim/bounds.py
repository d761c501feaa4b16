"""Queues with limits, as the oracle sees them: when one may refuse, what it has dropped, and how long it can be.

After a crash it is not known of some messages whether they are there (`doubtful`), so there is a least and a most.
"""

import sys

from mqks.broker import Broker
from mqks.broker.queues.queue import Queue as RealQueue
from tests.sim.disk import FakeDisk
from tests.sim.links import Violation
from tests.sim.truth import Bounds, Copy, Message, Queue, Truth


def _size(message: Message) -> int:
    return len(message.line) + 1


def may_refuse(queue: Queue, defaults: Bounds, message: Message) -> bool:
    limits = queue.definition.bounds.over(defaults)
    held = [_size(copy.message) for copy in queue.copies.values() if not copy.settled]
    is_long = limits.max_length and len(held) + queue.lost + 1 > limits.max_length
    is_large = limits.max_bytes and (queue.lost or sum(held) + _size(message) > limits.max_bytes)
    return bool(limits.overflow == "reject" and (is_long or is_large))


def check_refusal(truth: Truth, defaults: Bounds, message: Message) -> None:
    """What is published is refused only where a queue that wants it is full."""
    wanting = [queue for queue in truth.queues.values() if queue.definition.wants(message)]
    if not any(may_refuse(queue, defaults, message) for queue in wanting):
        raise Violation(f"refused, and no queue is full: {message.line!r}")


def ready(broker: Broker, disk: FakeDisk | None, queue: RealQueue, lost: int) -> set[bytes]:
    """The ids of what waits in it; so many may be lost. To look is no step of the broker: no fault comes from it."""
    faults = {} if disk is None else disk.faults.copy()
    if disk is not None:
        disk.faults.clear()
    positions = [position for position, _ in broker.core.delivery.peek(queue, sys.maxsize)]
    held = {position: broker.core.log.held_lines(position) for position in positions}
    lines = {position: found[1] for position, found in held.items() if found is not None and found[0] == position}
    on_disk = broker.persistence.read_lines([position for position in positions if position not in lines])
    lines |= {position: line for position, (line, _) in on_disk.items()}
    if disk is not None:
        disk.faults.update(faults)
    if not queue.ready_count - lost <= len(lines) <= queue.ready_count:
        raise Violation(f"of {queue.ready_count} messages in {queue.name!r} only {len(lines)} can be seen")
    return {line.split(b" ", 1)[0] for line in lines.values()}


def dropped(queue: Queue, left: set[bytes], count: int) -> list[Copy]:
    """Which messages it dropped: so many, and of those that nobody had seen the oldest."""
    waiting = [copy for copy in queue.copies.values() if not copy.settled and copy.holder is None]
    gone = [copy for copy in waiting if copy.message.id not in left]
    if not sum(not copy.doubtful for copy in gone) <= count <= len(gone) + queue.lost:
        raise Violation(f"{queue.name!r} dropped {count}: {[copy.message.id for copy in gone]} are not there")
    unseen = [copy for copy in queue.copies.values() if not copy.seen]
    first = [copy for copy in gone if not copy.seen]
    if unseen[: len(first)] != first:
        raise Violation(f"{queue.name!r} dropped {[copy.message.id for copy in first]}, not its oldest")
    queue.unseen += len(first)
    for copy in gone:
        copy.seen = True
    return gone


def check_length(queue: Queue, real: RealQueue, *, has_dropped: bool) -> None:
    """It has the messages it should have. If it has dropped some, those left are no more than it may have; what came
    back to it since, from consumers that went or by a reject, waits for the next drop, and one that was told meanwhile
    to refuse keeps what it has."""
    held = [copy for copy in queue.copies.values() if not copy.settled]
    certain = [copy for copy in held if not copy.doubtful]
    if not len(certain) <= real.length <= len(held) + queue.lost:
        raise Violation(f"{queue.name!r} has {real.length} messages, not {len(certain)} to {len(held)}")
    least, most = (sum(_size(copy.message) for copy in copies) for copies in (certain, held))
    if real.max_bytes and not queue.lost and not least <= real.bytes <= most:
        raise Violation(f"{queue.name!r} has {real.bytes} bytes, not {least} to {most}")
    is_long = real.max_length and real.length > real.max_length
    if (
        has_dropped
        and real.drops_oldest
        and any(not copy.seen for copy in certain)
        and (is_long or (real.max_bytes and real.bytes > real.max_bytes))
    ):
        raise Violation(f"{queue.name!r} is longer than it may be: {real.length} messages, {real.bytes} bytes")
