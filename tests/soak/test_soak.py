"""A soak of half a minute: the broker is killed and stalled, its disk fills up, it is read slowly and sent rubbish."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAULTS = "kill,stall,full disk,clients stall,clients drop,reload"
MUST_HAVE = (
    *("kill", "stall", "slow reader", "rubbish", "half-open", "slow writer", "publish --once", "recv", "hold"),
    *("to a full queue", "to many queues"),
)


def test_half_a_minute(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "report.md").write_text("of an older run")
    (folder / "mine").write_text("of somebody else")
    options = [
        "--minutes=0.35",
        "--connections=60",
        "--rate=300",
        f"--faults={FAULTS}",
        f"--report={folder}",
    ]
    command = [sys.executable, "-m", "tests.soak", *options]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (folder / "report.md").read_text()
    assert not [what for what in MUST_HAVE if what not in report], report
    assert (folder / "soak.png").stat().st_size > 10_000
    assert (folder / "mine").exists()
