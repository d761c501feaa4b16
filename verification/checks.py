"""Decide the promises for a broker that has just come back: what it shows against what its former lives had promised.

The checker looks without taking: it reads `history`, consumes every queue with manual ack, acks nothing, and leaves.
"""

import json
import re
import time
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from verification.facts import Facts
from verification.process import DEADLINE, Broker, Line, Stuck
from verification.workload import LENGTH, QUEUES, queues_of

SECOND = 1.1  # seconds until errors have ids of their own again


@dataclass
class Seen:
    """What the broker shows."""

    history: list[tuple[str, str]] = field(default_factory=list)  # message id and its data, in order
    queues: dict[str, list[tuple[str, bool, str]]] = field(default_factory=dict)  # id, was it retried, data
    definitions: dict[str, list[str]] = field(default_factory=dict)  # events by queue


def look(broker: Broker, prefix: str, once: list[str]) -> Seen:
    """`once` are ids to publish again first: the broker must know them."""
    with closing(Line(broker.port)) as line:
        return _look(broker, line, prefix, once)


def _look(broker: Broker, line: Line, prefix: str, once: list[str]) -> Seen:
    seen = Seen()
    mark = f"mark{prefix}"
    line.send(*(f"{message} publish --once --confirm once {message}" for message in once))
    line.send(f"{mark} publish --confirm mark ")
    for _ in line.until(lambda reply: reply.startswith(f"{mark} ")):
        pass
    position = "earliest"
    errors: set[str] = set()
    while position:
        position = _read_history(broker, line, prefix, position, seen.history, errors)
    line.send(f"stop{prefix} delete_consumer history{prefix}")
    queues, _ = _queues(line, prefix)
    seen.definitions = {name: queue["events"] for name, queue in queues.items()}
    for name in QUEUES:
        seen.queues[name] = _read_queue(line, name, prefix) if name in queues else []
    return seen


def _queues(line: Line, prefix: str) -> tuple[dict[str, Any], list[str]]:
    """Every queue's counters, and the lines that came before them."""
    line.send(f"stats{prefix} stats")
    *before, last = line.until(lambda reply: reply.startswith(f"stats{prefix} "))
    if not last.startswith(f"stats{prefix} ok "):
        raise AssertionError(f"stats answers {last}")
    return json.loads(last.split(" ", 2)[2])["queues"], before


def _read_history(
    broker: Broker, line: Line, prefix: str, position: str, to: list[tuple[str, str]], errors: set[str]
) -> str:
    """Up to the mark. Where the journal has a gap, the log says where it goes on: that is answered. Many errors of one
    second share an id, and one line of the log: then the same position is tried again later."""
    before = len(to)
    line.send(f"history{prefix} history {position} --follow")
    ends = (f"history{prefix} error", f" mark{prefix} event=")
    for reply in line.until(lambda reply: any(end in reply for end in ends)):
        words = reply.split(" ", 5)
        if words[0] != f"history{prefix}":
            continue
        if words[1] == "error":
            if words[2] in errors:
                time.sleep(SECOND)
                del to[before:]
                return position
            errors.add(words[2])
            found = re.search(rf"{words[2]} .*goes on at (\d+)", broker.wait_for(words[2]))
            if found is None or found[1] == position:
                raise AssertionError(f"history {position} is refused")
            return found[1]
        if words[2].isdigit():
            to.append((words[3], words[5] if len(words) > 5 else ""))
    return ""


def _read_queue(line: Line, queue: str, prefix: str) -> list[tuple[str, bool, str]]:
    """All that the queue has. Its count of ready messages may be too high until the broker has found the lost ones."""
    consumer = f"{queue}/manual/look{prefix}"
    line.send(f"{consumer} consume {queue} --manual-ack")
    found = []
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        queues, lines = _queues(line, prefix)
        for reply in lines:
            if reply.startswith(f"{consumer} ok ") and " event=" in reply:
                _, _, message, properties, data = (*reply.split(" ", 4), "")[:5]
                found.append((message, ",retry=" in properties, data))
        if not queues[queue]["ready"]:
            return found
        time.sleep(0.01)
    raise Stuck(f"the broker does not deliver all messages of queue {queue}")


@dataclass(frozen=True)
class Allowed:
    """What may be missing, since the broker said that it is damaged."""

    messages: frozenset[str] = frozenset()
    acks: bool = False  # settled messages may come again
    queues: bool = False  # queues may be gone


NOTHING = Allowed()


def violations(facts: Facts, seen: Seen, allowed: Allowed = NOTHING, *, whole_history: bool) -> list[str]:
    """Promises that are broken. `whole_history`: retention has removed nothing."""
    if not facts.setup:
        return []
    found = list(facts.problems)
    positions: dict[str, int] = {}
    for at, (message, data) in enumerate(seen.history):
        if message in positions:
            found.append(f"history has {message} twice")
        positions[message] = at
        publish = facts.publishes.get(message)
        if publish is not None and publish.text != data:
            found.append(f"history has other data for {message}")
        if publish is not None and publish.refused:
            found.append(f"history has {message}, which was answered with an error")
    if whole_history:
        found += [
            f"history lacks {message}, which was confirmed"
            for message, publish in facts.publishes.items()
            if publish.confirmed and message not in positions and message not in allowed.messages
        ]
    if allowed.queues:
        return found
    for queue in QUEUES:
        found += _of_queue(queue, facts, seen, positions, allowed, whole_history)
    events = seen.definitions.get("bound", [])
    version = int(events[0].removeprefix("version.")) if events else 0
    if not facts.version_confirmed <= version <= facts.version_asked:
        found.append(f"queue bound has version {version}; confirmed was {facts.version_confirmed}")
    return found


def _of_queue(
    queue: str, facts: Facts, seen: Seen, positions: dict[str, int], allowed: Allowed, whole_history: bool
) -> list[str]:
    found = []
    if sorted(seen.definitions.get(queue, [])) != sorted(QUEUES[queue]):
        found.append(f"queue {queue} is not as it was bound: {seen.definitions.get(queue)}")
    of_queue = facts.queues[queue]
    present = [message for message, _, _ in seen.queues[queue]]
    there = set(present)
    found += [f"queue {queue} has {message} twice" for message in there if present.count(message) > 1]
    for message, _, data in seen.queues[queue]:
        publish = facts.publishes.get(message)
        if message in of_queue.settled and not allowed.acks:
            found.append(f"queue {queue} has {message}, whose ack was confirmed")
        if publish is not None and publish.refused:
            found.append(f"queue {queue} has {message}, which was answered with an error")
        if publish is not None and publish.text != data:
            found.append(f"queue {queue} has other data for {message}")
        if whole_history and message not in positions:
            found.append(f"queue {queue} has {message}, which is not in history")
    if queue == "newest":
        if whole_history and allowed == NOTHING:
            of_event = {message for message, publish in facts.publishes.items() if publish.event == "sample"}
            expected = [message for message, _ in seen.history if message in of_event][-LENGTH:]
            if present != expected:
                found.append(f"queue newest has {len(present)} messages, not the newest {len(expected)}")
        return found
    in_order = [positions[message] for message in present if message in positions and message not in of_queue.touched]
    if in_order != sorted(in_order) and not allowed.acks:
        found.append(f"queue {queue} is out of order")
    found += [
        f"queue {queue} lacks {message}, which was confirmed"
        for message, publish in facts.publishes.items()
        if publish.confirmed
        and queue in queues_of(publish.event)
        and message not in of_queue.may_be_settled
        and message not in there
        and message not in allowed.messages
    ]
    return found
