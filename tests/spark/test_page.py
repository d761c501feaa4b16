"""docs/SPARK.md says what is true: its tables are those of the options, and its Python runs, from top to end."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mqks.pipeline.place import OWN, Place
from mqks.pipeline.progress import Figures
from mqks.pipeline.stats import SCHEMA
from mqks.testing import Broker, broker
from pyspark_mqks.arrow import TYPES
from pyspark_mqks.kinds import SIZE_IN_BYTES
from pyspark_mqks.lines import COLUMNS
from pyspark_mqks.options import OPTIONS, Option

PAGE = (Path(__file__).parents[2] / "docs" / "SPARK.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)
HEAD = "| Option | Value | Default | |\n|---|---|---|---|\n"


# ── tables ──


def shown(option: Option) -> str:
    """Its default, as one would write it."""
    if option.default is None or option.default == ():
        return ""
    if isinstance(option.default, bool):
        return f"`{str(option.default).lower()}`"
    assert isinstance(option.default, int | float)
    return f"`{option.default >> 20}m`" if option.kind is SIZE_IN_BYTES else f"`{option.default:g}`"  # type: ignore[operator]


def row(option: Option) -> str:
    value = option.kind.metavar.replace("|", r"\|")
    return f"| `{option.name}` | {value} | {shown(option)} | {option.help} |\n"


@pytest.mark.parametrize("what", OPTIONS)
def test_every_option_is_there_as_it_is(what: str) -> None:
    table = HEAD + "".join(map(row, OPTIONS[what]))
    assert table in PAGE, f"put this into docs/SPARK.md:\n{table}"


def test_how_each_value_is_written_is_told() -> None:
    kinds = {option.kind.metavar for options in OPTIONS.values() for option in options}
    plain = {"N", "URL", "DIR", "NAME", "true|false"}
    assert all(f"**{kind}**" in PAGE for kind in kinds - plain)


def columns_below(title: str) -> list[str]:
    part = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0].split("\n\n| Option")[0]
    return re.findall(r"^\| `(\w+)` \| ", part, re.MULTILINE)


def test_the_columns_are_those_that_there_are() -> None:
    assert columns_below("Columns") == list(TYPES)
    assert columns_below("The sink")[: len(COLUMNS)] == list(COLUMNS)
    names = [column.split()[0] for column in SCHEMA.split(", ")]
    assert f"`{', '.join(names)}`" in PAGE
    for field in Figures.__dataclass_fields__:
        assert f'"{field}": ' in PAGE
    assert all(f"`{event}`" in PAGE for event in OWN)


# ── code ──


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Broker]:
    with broker(data=tmp_path / "mqks-data") as made:
        yield made


def test_what_the_page_shows_works(
    spark: SparkSession,
    running: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All blocks one after the other, as one who reads would try them; what they print stands beside."""
    monkeypatch.setenv("MQKS_URL", running.url)
    here = {Place().broker: running.url}  # the shared session has a folder of its own: paths are made whole
    here |= {f'"{name}': f'"{tmp_path}/{name}' for name in ("mqks-data", "mqks-lake", "checkpoints")}
    known: dict[str, object] = {}
    for block in PYTHON.findall(PAGE):
        for told, meant in here.items():
            block = block.replace(told, meant)
        exec(compile(block, "docs/SPARK.md", "exec"), known)
        assert capsys.readouterr().out.splitlines() == PRINTED.findall(block), block
    assert known["spark"] is spark
