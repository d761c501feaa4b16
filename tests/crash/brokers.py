"""Brokers on a folder that outlives them: started, killed, started again. `running_broker` is for those in memory."""

import os
import signal
import subprocess
from pathlib import Path

from tests.running import LISTENING, MQKSD, PATIENCE, RunningBroker

START = 60.0  # seconds that a start may take, recovery included


def start_broker(folder: Path, *flags: str, wait: bool = True, prefix: tuple[str, ...] = ()) -> RunningBroker:
    """`mqksd --data=folder` on a free port, when it listens; `prefix` is a command to run it under."""
    if not MQKSD.exists():
        raise FileNotFoundError(f"{MQKSD} is not there: run `make install`")
    process = subprocess.Popen(
        [*prefix, str(MQKSD), f"--data={folder}", "--port=0", "--http-port=0", *flags],
        env={name: value for name, value in os.environ.items() if not name.startswith("MQKS_")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    broker = RunningBroker(process)
    if wait:
        listening = broker.wait_for_log(LISTENING, START)
        if listening is None:
            kill(broker)
            raise AssertionError(f"mqksd did not say where it listens:\n{broker.log}")
        broker.port = int(listening[1])
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
