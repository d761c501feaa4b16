"""Brokers on a folder that outlives them: started, killed, started again. `running_broker` is for those in memory."""

import signal
from pathlib import Path

from tests.running import PATIENCE, RunningBroker, launch

START = 60.0  # seconds that a start may take, recovery included


def start_broker(folder: Path, *flags: str, wait: bool = True, prefix: tuple[str, ...] = ()) -> RunningBroker:
    """`mqksd --data=folder` on a free port, when it listens; `prefix` is a command to run it under."""
    broker = launch(f"--data={folder}", *flags, prefix=prefix)
    if wait:
        try:
            broker.wait_until_it_listens(START)
        except AssertionError:
            kill(broker)
            raise
    return broker


def kill(broker: RunningBroker) -> int:
    """`kill -9`; answers the exit code, which is another one if it had ended before."""
    broker.process.kill()
    code = broker.process.wait()
    broker.stop()  # ends what reads the log
    return code


def end(broker: RunningBroker, ending: signal.Signals) -> None:
    if ending is signal.SIGTERM:
        broker.stop()
    else:
        kill(broker)


def refusal(broker: RunningBroker) -> str:
    """What a broker said that refused to start, or to go on."""
    assert broker.process.wait(PATIENCE) == 1, broker.log
    kill(broker)
    return broker.log
