"""The specification of the broker in plain Python: every MQKS and SEVX action, on bytes, without any I/O.

It is what the compiled broker is compared with, so it is written to be read and believed: one short function
per action here, the state that they change in `model_queues.py`, the words they read in `model_words.py`.
It has the same door as `mqks.broker.Broker` (connect, feed, turn, pending, sent, disconnect, tick) and
imports nothing of mqks.

Left out: `_eval` and `stats` (they show the inside of the real broker), memory limits, and the error ids:
every error is answered with the same ERROR in place of an id.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.model_queues import Connection, Message, Queues
from tests.model_words import (
    LIMITS,
    MOST_VALUES,
    Bad,
    Flags,
    arguments,
    event_name,
    fields,
    is_early,
    is_legal,
    json_name,
    json_seconds,
    leading_flags,
    load,
    mask_matches,
    name,
    queue_and_events,
    sevx_data,
    values_in,
)

ERROR = b"E" * 24


class Model(Queues):
    def feed(self, connection: Connection, data: bytes) -> None:
        waits = bool(connection.unread)
        connection.unread += data
        if not waits:
            self.take(connection)

    def turn(self) -> None:
        self.resume()
        self.deliver()

    def resume(self) -> None:
        """Those who have read their replies are heard again."""
        waited, self.held_back = self.held_back, []
        for connection in waited:
            if connection in self.connections:
                self.take(connection)

    def take(self, connection: Connection) -> None:
        """Line by line, as long as the client reads its replies. A line that grows too long is answered at once; what
        follows up to its newline is skipped."""
        while connection.unread and len(connection.pending()) <= self.choked:
            line, newline, connection.unread = connection.unread.partition(b"\n")
            if connection.skipping:
                connection.skipping = not newline
                continue
            line = connection.received + line
            connection.received = b""
            if newline:
                self.request(connection, line.removesuffix(b"\r"))
            elif len(line.removesuffix(b"\r")) > self.max_line:
                self.request(connection, line)
                connection.skipping = True
            else:
                connection.received = line
        if connection.unread:
            self.held_back.append(connection)

    def request(self, connection: Connection, line: bytes) -> None:
        if not line:
            return
        request_id, _, rest = line.partition(b" ")
        too_long = len(line) > self.max_line
        action, _, data = rest.partition(b" ")
        flawed = too_long or b"\t" in line or b"\0" in line
        connection.early = connection.early and not flawed and is_early(action, data)
        if not is_legal(name, request_id) or (too_long and len(request_id) >= self.max_line):
            connection.write(b"-", b"error " + ERROR)
            return
        try:
            if flawed:
                raise Bad
            reply = self.action(action, data)(self, connection, request_id, data)
        except Bad:
            connection.write(request_id, b"error " + ERROR)
            return
        if reply is not None:
            connection.write(request_id, b"ok " + reply)

    def action(self, action: bytes, data: bytes) -> Action:
        first = next((word for word in data.split(b" ") if word and not word.startswith(b"--")), b"")
        table = SEVX if action in SEVX and (action not in MQKS or first.startswith(b"{")) else MQKS
        if action not in table:
            raise Bad
        return table[action]


Action = Callable[[Model, Connection, bytes, bytes], bytes | None]


# The actions: each returns what follows `ok `, or None for no reply


def confirmed(flags: Flags) -> bytes | None:
    return b"" if b"--confirm" in flags else None


def first_flag(data: bytes) -> tuple[Flags, bytes]:
    """`--confirm` as the first argument, and the data after it."""
    word, _, rest = data.partition(b" ")
    return ({b"--confirm": None}, rest) if word == b"--confirm" else ({}, data)


def publish(model: Model, _connection: Connection, msg_id: bytes, data: bytes) -> bytes | None:
    confirm, scope, data = leading_flags(data)
    event, _, payload = data.partition(b" ")
    event_name(event)
    try:
        value, value_json = load(payload), payload
    except ValueError:
        value = payload.decode(errors="replace")
        value_json = json.dumps(value).encode()
    text = event.decode(errors="replace")
    as_json = b'{"event": ' + json.dumps(text).encode() + b', "data": ' + value_json + b"}"
    size = len(b"%s publish %s%s %s\n" % (msg_id, as_kept(scope), event, payload))
    model.publish(Message(msg_id, event, payload, {"event": text, "data": value}, as_json, size), scope)
    return b"" if confirm else None


def as_kept(scope: bytes | None) -> bytes:
    """--once, as it stands in the line of a message."""
    return b"" if scope is None else b"--once=%s " % scope if scope else b"--once "


def consume(model: Model, connection: Connection, consumer_id: bytes, data: bytes) -> bytes | None:
    words, flags = arguments(data, b"--add", b"--delete-queue-when-unused", b"--manual-ack", b"--prefetch", *LIMITS)
    name, events = queue_and_events(words)
    before = model.texts(name)
    consumer = model.join(connection, consumer_id, name, False, b"--manual-ack" in flags, flags)
    queue = consumer.queue
    before.setdefault(consumer, model.text(consumer))
    model.limit(queue, flags)
    all_events = (set(events) or queue.events) | set(words.get(b"--add", []))
    model.change(queue, all_events, flags.get(b"--delete-queue-when-unused"))
    model.tell_changes(before, but=None if b"--add" in words else consumer)
    return confirmed(flags)


def rebind(model: Model, _connection: Connection, _request_id: bytes, data: bytes) -> bytes | None:
    words, flags = arguments(data, b"--remove", b"--remove-mask", b"--add", *LIMITS)
    name, replacement = queue_and_events(words)
    before = model.texts(name)
    queue = model.queue(name)
    model.limit(queue, flags)
    alone = len(words) == 1 and not flags.keys() & LIMITS  # then it removes all
    events = set(replacement) if replacement or alone else queue.events
    events = events - set(words.get(b"--remove", []))
    masks = words.get(b"--remove-mask", [])
    events = {event for event in events if not any(mask_matches(mask, event) for mask in masks)}
    model.change(queue, events | set(words.get(b"--add", [])), queue.when_unused)
    model.tell_changes(before)
    return confirmed(flags)


def subscribe(model: Model, _connection: Connection, _request_id: bytes, data: bytes) -> bytes | None:
    words, flags = arguments(data, *LIMITS)
    name, events = queue_and_events(words)
    if not events:
        raise Bad
    before = model.texts(name)
    queue = model.queue(name)
    model.limit(queue, flags)
    model.change(queue, set(events), queue.when_unused)
    model.tell_changes(before)
    return confirmed(flags)


def settle(reject: bool) -> Action:
    def ack_or_reject(model: Model, connection: Connection, _request_id: bytes, data: bytes) -> bytes | None:
        words, flags = arguments(data, b"--all")
        if len(words[b""]) + (b"--all" in flags) != 2:
            raise Bad
        consumer_id, *msg_ids = words[b""]
        if b"--confirm" in flags:
            model.check_not_elsewhere(connection, consumer_id)
        model.settle(connection, consumer_id, msg_ids[0] if msg_ids else None, reject)
        return confirmed(flags)

    return ack_or_reject


def pause(*, yes: bool) -> Action:
    def act(_model: Model, connection: Connection, _request_id: bytes, data: bytes) -> bytes | None:
        words, flags = arguments(data)
        if len(words[b""]) != 1:
            raise Bad
        if consumer := connection.consumers.get(name(words[b""][0])):
            consumer.paused = yes
        return confirmed(flags)

    return act


def delete_consumer(model: Model, connection: Connection, _request_id: bytes, data: bytes) -> bytes | None:
    words, flags = arguments(data)
    if len(words[b""]) != 1:
        raise Bad
    if b"--confirm" in flags:
        model.check_not_elsewhere(connection, words[b""][0])
    model.delete_consumer(connection, words[b""][0])
    return confirmed(flags)


def delete_queue(model: Model, _connection: Connection, _request_id: bytes, data: bytes) -> bytes | None:
    words, flags = arguments(data, b"--when-unused")
    if len(words[b""]) != 1:
        raise Bad
    queue = model.queues.get(words[b""][0])
    if queue and b"--when-unused" in flags:
        before = model.texts(queue.name)
        model.change(queue, queue.events, flags[b"--when-unused"], pin=True)
        model.tell_changes(before)
        if not queue.consumers:
            model.start_clock(queue)
    elif queue:
        model.delete_queue(queue.name)
    return confirmed(flags)


def ping(_model: Model, _connection: Connection, _request_id: bytes, data: bytes) -> bytes | None:
    return first_flag(data)[1]


def auth(_model: Model, _connection: Connection, _request_id: bytes, data: bytes) -> bytes | None:
    """Nobody asks here who one is: what is well said is fine."""
    token = first_flag(data)[1].strip(b" ")
    if not token or b" " in token:
        raise Bad
    return b""


def sevx_auth(_model: Model, _connection: Connection, _request_id: bytes, data: bytes) -> bytes:
    _, content, _ = sevx_data(data)
    fields(content, ["token"])
    json_name(content["token"])
    return b""


def sevx_send(model: Model, _connection: Connection, event_id: bytes, data: bytes) -> bytes:
    text, content, flags = sevx_data(data, b"--once")
    event = content.get("event")
    try:
        named = event_name(json_name(event))
    except Bad:
        named = b""
    scope = flags.get(b"--once")
    size = len(b"%s send %s%s\n" % (event_id, as_kept(scope), text))
    model.publish(Message(event_id, named, text, content, text, size), scope)
    return b""


def sevx_recv(model: Model, connection: Connection, receiver_id: bytes, data: bytes) -> bytes:
    _, content, flags = sevx_data(data, b"--prefetch", *LIMITS)
    fields(content, ["pattern", "queue"], ["manual_ack", "delete_queue_when_unused"])
    pattern, manual_ack = content["pattern"], content.get("manual_ack", False)
    when_unused = json_seconds(content.get("delete_queue_when_unused", True))
    if not isinstance(pattern, dict) or not isinstance(manual_ack, bool) or values_in(pattern) > MOST_VALUES:
        raise Bad
    before = model.texts(json_name(content["queue"]))
    receiver = model.join(connection, receiver_id, json_name(content["queue"]), True, manual_ack, flags)
    queue = receiver.queue
    model.limit(queue, flags)
    model.change_pattern(queue, pattern, but=receiver)
    model.change(queue, queue.events, when_unused)
    model.tell_changes(before)
    return b""


def sevx_settle(reject: bool) -> Action:
    def ack_or_reject(model: Model, connection: Connection, _request_id: bytes, data: bytes) -> bytes:
        _, content, _ = sevx_data(data)
        fields(content, ["receiver_id", "all" if "all" in content else "event_id"])
        if content.get("all", True) is not True:
            raise Bad
        event_id = None if "all" in content else json_name(content["event_id"])
        model.check_not_elsewhere(connection, json_name(content["receiver_id"]))
        model.settle(connection, json_name(content["receiver_id"]), event_id, reject)
        return b""

    return ack_or_reject


def sevx_delete_queue(model: Model, _connection: Connection, _request_id: bytes, data: bytes) -> bytes:
    _, content, _ = sevx_data(data)
    fields(content, ["queue"])
    model.delete_queue(json_name(content["queue"]))
    return b""


def sevx_delete_receiver(model: Model, connection: Connection, _request_id: bytes, data: bytes) -> bytes:
    _, content, _ = sevx_data(data)
    fields(content, ["receiver_id"])
    model.check_not_elsewhere(connection, json_name(content["receiver_id"]))
    model.delete_consumer(connection, json_name(content["receiver_id"]))
    return b""


def sevx_ping(_model: Model, _connection: Connection, _request_id: bytes, data: bytes) -> bytes:
    text, content, _ = sevx_data(data)
    fields(content, ["data"])
    return text


MQKS: dict[bytes, Action] = {
    b"auth": auth,
    b"publish": publish,
    b"consume": consume,
    b"rebind": rebind,
    b"subscribe": subscribe,
    b"ack": settle(reject=False),
    b"reject": settle(reject=True),
    b"pause": pause(yes=True),
    b"resume": pause(yes=False),
    b"delete_consumer": delete_consumer,
    b"delete_queue": delete_queue,
    b"ping": ping,
}
SEVX: dict[bytes, Action] = {
    b"auth": sevx_auth,
    b"send": sevx_send,
    b"recv": sevx_recv,
    b"ack": sevx_settle(reject=False),
    b"reject": sevx_settle(reject=True),
    b"delete_queue": sevx_delete_queue,
    b"delete_receiver": sevx_delete_receiver,
    b"_ping": sevx_ping,
}
