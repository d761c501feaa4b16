"""docs/HTTP.md is true: its table is that of the routes, and its commands do what it shows."""

import re
import subprocess
from pathlib import Path

import mqks.testing
from mqks.web.app import OPERATIONS

PAGE = (Path(__file__).parents[2] / "docs" / "HTTP.md").read_text()
SAMPLE = re.compile(r"^    \$ (?P<command>curl .+)\n(?P<shown>(?:    [^$].*\n)+)", re.MULTILINE)
DEFAULT = "http://127.0.0.1:25080"


def test_the_table_is_that_of_the_routes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\S+)` \| (.+) \|$", PAGE, re.MULTILINE)
    assert rows == [(each.method, each.path, each.about) for each in OPERATIONS]


def test_the_commands(tmp_path: Path) -> None:
    samples = list(SAMPLE.finditer(PAGE))
    assert samples
    with mqks.testing.broker(data=tmp_path, http=True) as broker:
        assert broker.http_url
        for sample in samples:
            ran = subprocess.run(
                ["sh", "-c", sample["command"].replace(DEFAULT, broker.http_url)], capture_output=True, text=True
            )
            shown = re.sub(r"^    ", "", sample["shown"], flags=re.MULTILINE).rstrip()
            pattern = ".*".join(re.escape(part) for part in shown.split("…"))
            assert re.match(pattern, ran.stdout), (sample["command"], ran)
