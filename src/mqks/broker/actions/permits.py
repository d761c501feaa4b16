"""What a request may change of a queue: its limits, and when it goes."""

from mqks.broker.auth.access import Rights, permit
from mqks.broker.protocol.words import BYTES, LENGTH, OVERFLOW, Words
from mqks.broker.queues.bounds import NO_BOUNDS, Bounds
from mqks.broker.queues.queue import Queue


def stated(words: Words) -> bool:
    """Does a request say something about limits?"""
    return not words.flags.keys().isdisjoint((LENGTH, BYTES, OVERFLOW))


def permit_bounds(rights: Rights, name: bytes, queue: Queue | None, words: Words) -> Bounds:
    """The limits that the queue has from now on. They hold for all who use it, and one that is full stops those who
    publish: to change them is to manage it, also when it is made by that. To state what holds already is free: who
    consumes says it again at each start."""
    had = NO_BOUNDS if queue is None else queue.bounds
    bounds = had.changed(words.flags)
    if bounds != had:
        permit(rights.may_manage(name), "manage", name)
    return bounds


def permit_unused(rights: Rights, queue: Queue | None, stated: bool, seconds: float | None) -> float | None:
    """When the queue goes, from now on: whoever makes it says so. To change that later is to manage it; a consumer that
    may not, and says nothing about it, leaves it as it is."""
    if queue is None or queue.unused_is_sticky or queue.unused == seconds or rights.may_manage(queue.name):
        return seconds
    permit(not stated, "manage", queue.name)
    return queue.unused
