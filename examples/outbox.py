"""Orders in a database, and an event for each that is committed: exactly one, whatever crashes in between."""

import sqlite3
import tempfile
import threading
from functools import partial
from pathlib import Path

import mqks
from mqks import Outbox

outbox = Outbox()


def place_order(database: sqlite3.Connection, item: str) -> None:
    with database:  # one transaction: the order and its message, or neither
        order = database.execute("INSERT INTO orders (item) VALUES (?)", [item])
        outbox.add(database, "order.created", {"id": order.lastrowid, "item": item})
        if item == "unicorn":
            raise ValueError("we have no unicorns")
    outbox.notify()  # so that the relay need not wait until it looks again


def main(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    outbox.create(database)
    stop = threading.Event()
    with mqks.connect() as mq, mq.consume("orders", ["order.created"], delete_queue_when_unused=True) as created:
        relay = threading.Thread(target=outbox.relay, args=(partial(sqlite3.connect, path), mq, stop))
        relay.start()
        for item in ["book", "unicorn", "lamp"]:
            try:
                place_order(database, item)
            except ValueError as error:
                print("rolled back:", error)
        for _ in range(2):
            print(next(created).data)
        stop.set()
        outbox.notify()
        relay.join()
    database.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder) / "orders.db")
