"""A service that speaks SEVX: events are JSON objects, and a receiver gets those that match its pattern.

Receivers of one function share a queue: start the service twice, and each event is processed once. The queue is deleted
with its last receiver, unless `@on` is told otherwise (`delete_queue_when_unused=False`).
"""

from queue import SimpleQueue

import sevx
from sevx import Event, on, send, send_prefix

greetings: SimpleQueue[str] = SimpleQueue()


@on({"obj": "user", "act": "created"}, queue="welcome", manual_ack=True, wait=True)
def welcome(event: Event) -> None:
    if event.retry == 0 and event.content.data.name == "Kate":
        event.reject()  # not now; it comes again, with retry 1
        return
    greetings.put(f"welcome, {event.content.data.name} from {event.content.src}! retry={event.retry}")
    event.ack()


def main() -> None:
    send_prefix({"src": "signup"})
    for name in ["Kate", "Bill"]:
        send({"obj": "user", "act": "created", "data": {"name": name}})
    send({"obj": "user", "act": "deleted", "data": {"name": "Bill"}})  # no pattern of ours
    for _ in range(2):
        print(greetings.get())
    sevx.disconnect()


if __name__ == "__main__":
    main()
