"""Kills a real broker with -9 under a client, again and again, and says what the client lost, invented or left deaf.

    python -m tests.client.kill --kills=100 [--client=asyncio] [--seed=N]

The seed decides when the broker dies and how long it is away; what everybody is doing at that moment is up to the
machine, so a seed repeats a run only nearly.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import mqks
from tests.client.loads import LOADS, Account, AsyncLoad, BlockingLoad
from tests.crash.brokers import kill, start_broker

LIFE = (0.05, 0.8)  # seconds
AWAY = (0.0, 0.0, 0.3, 1.0)


def kill_in_a_loop(folder: Path, client: str, kills: int, seed: int) -> Account:
    """What the client was told; AssertionError: it is not true."""
    rng = random.Random(seed)
    broker = start_broker(folder)
    url, port = f"mqks://127.0.0.1:{broker.port}", f"--port={broker.port}"
    account = Account()
    load = LOADS[client](url, account)
    pause = threading.Event()  # nobody sets it: time passes
    try:
        for _ in range(kills):
            pause.wait(rng.uniform(*LIFE))
            kill(broker)
            assert "Traceback" not in broker.log, broker.log
            pause.wait(rng.choice(AWAY))
            broker = start_broker(folder, port)
        load.quiet()
        settle(load, account, url)
    finally:
        load.close()
        broker.stop()
    check(account)
    return account


def settle(load: BlockingLoad | AsyncLoad, account: Account, url: str) -> None:
    """Everything wanted is alive: a last message comes everywhere, and so does all that was confirmed."""
    load.probe("the last one")
    assert account.wait(lambda: "the last one" in account.came), f"the consumer is deaf {account.failures}"
    assert account.wait(lambda: account.taken["the last one"] > 0), f"the other one is deaf {account.failures}"
    assert account.wait(lambda: account.came.keys() >= account.done), (
        f"lost: {sorted(account.done - account.came.keys())[:10]} {account.failures}"
    )
    with mqks.connect(url) as mq:
        truth = [record.position for record in mq.history("earliest")]
    assert account.wait(lambda: len(account.records) >= len(truth)), (
        f"{len(account.records)} of {len(truth)} records were read {account.failures}"
    )


def check(account: Account) -> None:
    """When all is quiet."""
    assert not account.failures, account.failures
    copies = Counter(record.data for record in account.records)
    positions = [record.position for record in account.records]
    assert positions == sorted(set(positions)), "a record was read twice, or out of order"
    came, taken = account.came.keys(), account.taken.keys()
    assert came | taken | copies.keys() <= account.published, "something came that nobody published"
    assert account.done <= copies.keys(), f"not in the journal: {sorted(account.done - copies.keys())[:10]}"
    for data, oks in account.confirmed.items():
        assert len(oks) <= copies[data], f"{data} was acked more often than it was there"
        assert len(oks) < copies[data] or account.came[data] < oks[-1], f"{data} came again after its ack"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.client.kill", description="kill -9 under both clients.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--client", choices=LOADS, action="append", help="(default: both)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    failed = False
    for client in options.client or LOADS:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mqks-kill-") as folder:
            try:
                account = kill_in_a_loop(Path(folder) / "data", client, options.kills, options.seed)
            except AssertionError as error:
                failed = True
                print(f"{client}, seed {options.seed}: {error}")
                continue
        copies = len(account.records) - len({record.data for record in account.records})
        print(
            f"{client}: {options.kills} kills in {time.monotonic() - started:.0f} s, seed {options.seed}; "
            f"confirmed {len(account.done):,}, none lost; sent twice, as allowed {copies:,}; "
            f"without confirm {len(account.published - account.done):,}, "
            f"of which lost {len(account.published - account.done - account.came.keys()):,}"
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())
