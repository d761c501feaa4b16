"""examples/spark_day.py runs as it is, once: it starts a Spark of its own."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_day.py"
TIMEOUT = 600.0
PNG = b"\x89PNG\r\n\x1a\n"


def tables(printed: str) -> list[list[list[str]]]:
    """The rows of each, the names of the columns first."""
    blocks = re.findall(r"(?:^[+|].*\n)+", printed, re.MULTILINE)
    return [[re.findall(r"[^| ]+", line) for line in block.splitlines() if line[0] == "|"] for block in blocks]


def test_a_day(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE)], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert ran.returncode == 0, ran.stderr
    (said,) = ran.stderr.splitlines()
    assert said.startswith("there is no checkpoint")
    written, archived, in_all = (int(number.replace(",", "")) for number in re.findall(r"^[\d,]+", ran.stdout, re.M))
    assert archived == written > 50_000
    assert in_all == written + 1
    hours, products, failures = tables(ran.stdout)
    assert hours[0] == ["from_hour", "views", "orders", "revenue"]
    assert [row[0] for row in hours[1:]] == ["0", "4", "8", "12", "16", "20"]
    assert [row[0] for row in products] == ["product", "table", "rug", "chair"]
    assert [row[0] for row in failures] == ["since", "13:00", "13:10", "13:20", "13:30"]
    assert sum(int(row[1]) for row in hours[1:]) < written
    assert {path.name for path in tmp_path.iterdir()} == {"spark_day.png"}
    assert (tmp_path / "spark_day.png").read_bytes().startswith(PNG)
