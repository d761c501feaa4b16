"""A user's own pipeline: what its file may be, what is said when it will not do, and where its rows go."""

import io
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import mqks
from mqks.pipeline import lake, watch
from mqks.pipeline.errors import PipelineError
from mqks.pipeline.place import Place
from mqks.pipeline.run import BadPipeline, check, functions, run
from mqks.pipeline.targets import BadTarget, Query, ToEvent, ToLake, noted, to_lake
from mqks.pipeline.template import TEMPLATE
from mqks.testing import broker
from tests.journal.making import Making

IMPORTS = "from mqks.pipeline import to_console, to_event, to_lake\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.py"
    file.write_text(IMPORTS + text)
    return file


# ── the file ──


def test_functions_and_their_targets(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("TABLE = 'b'\n")
    file = written(
        tmp_path,
        "from beside import TABLE\n"
        "@to_lake('a')\n@to_event('e.1', mode='append')\ndef one(events): return events\n"
        "def two(events): return events\n"
        "@to_lake(TABLE)\n@to_lake('c')\n@to_event('a/b')\n@to_event()\n@to_console()\n"
        "def three(events): return events\n"
        "again = three\n",
    )
    found = functions(file)
    assert [function.name for function in found] == ["one", "three"]
    assert [[target.kind for target in function.targets] for function in found] == [
        ["lake", "event"],
        ["lake", "lake", "event", "event", "console"],
    ]
    assert [function.checkpoint(target) for function in found for target in function.targets] == [
        "run-mine-one-lake-a",
        "run-mine-one-event-e.1",
        "run-mine-three-lake-b",
        "run-mine-three-lake-c",
        "run-mine-three-event-a_b",
        "run-mine-three-event",
        "run-mine-three-console",
    ]


def test_a_decorated_function_is_as_it_was() -> None:
    def function(events: int) -> int:
        return events + 1

    assert to_lake("a")(function) is function
    assert function(1) == 2
    assert noted(function) == [ToLake(table="a", mode="append", every=10.0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def one(events): return events\n", "no function says where its rows go"),
        ("def one(:\n", "line 2: SyntaxError"),
        ("x = 1\nx.y\n", "line 3: AttributeError: 'int' object has no attribute 'y'"),
        ("import json\n\ndef one():\n    json.loads('no')\none()\n", "line 5, one: JSONDecodeError"),
        ("@to_lake('Orders')\ndef one(events): return events\n", "line 2: a table's name is of small letters"),
        ("@to_lake('events')\ndef one(events): return events\n", "written by the pipeline itself"),
        ("@to_lake('a', mode='update')\ndef one(events): return events\n", "mode is append"),
        ("@to_event('two words')\ndef one(events): return events\n", "'two words' is no name of an event"),
        ("@to_event('order.*')\ndef one(events): return events\n", "no , and no * in its name: 'order.*'"),
        ("@to_event('a,b')\ndef one(events): return events\n", "no , and no * in its name: 'a,b'"),
        ("@to_console(mode='all')\ndef one(events): return events\n", "mode is one of append, update, complete"),
        ("@to_lake\ndef one(events): return events\n", "a table's name is of small letters"),
        (
            "@to_lake('a')\ndef one(events): return events\n@to_lake('a')\ndef two(events): return events\n",
            "line 4, two: the table 'a' is written by one already",
        ),
        ("@to_lake('a')\n@to_lake('a')\ndef one(events): return events\n", "the table 'a' is written by one already"),
        ("@to_console()\n@to_console()\ndef one(events): return events\n", "@to_console is written by one already"),
    ],
)
def test_what_is_said_of_a_bad_file(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(BadPipeline) as caught:
        functions(file)
    assert str(caught.value).startswith(str(file)) and said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_told_before_spark_runs(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline, match="no such file; `mqks pipeline init"):
        check(tmp_path / "none.py")
    with pytest.raises(BadPipeline, match="line 2: SyntaxError"):
        check(written(tmp_path, "def one(:\n"))
    check(written(tmp_path, "raise AssertionError('it is not run')\n"))


def test_the_template_is_a_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(TEMPLATE)
    assert [(one.name, [target.kind for target in one.targets]) for one in functions(file)] == [
        ("seen", ["console"]),
        ("orders", ["lake"]),
        ("per_minute", ["event"]),
    ]


# ── columns for events ──


@pytest.mark.parametrize(
    ("event", "columns", "expected"),
    [
        ("e", "'d' AS data", {"event": "e", "data": "d"}),
        (None, "'x' AS event, 'd' AS data, 'i' AS id", {"event": "x", "data": "d", "id": "i"}),
        ("e", "1 AS a, 'b' AS b, 7L AS position", {"event": "e", "data": '{"a":1,"b":"b"}', "position": 7}),
        ("e", "'x' AS event, 1 AS count", {"event": "e", "data": '{"event":"x","count":1}'}),
        (None, "'x' AS event, 1 AS count", {"event": "x", "data": '{"count":1}'}),
        ("e", "named_struct('a', 1) AS data", {"event": "e", "data": '{"a":1}'}),
        ("e", "parse_json('{\"a\": [1]}') AS data", {"event": "e", "data": '{"a":[1]}'}),
        ("e", "1.5D AS data", {"event": "e", "data": "1.5"}),
    ],
)
def test_rows_as_messages(spark: SparkSession, event: str | None, columns: str, expected: dict[str, object]) -> None:
    frame = spark.sql(f"SELECT {columns}")
    assert ToEvent(event=event, mode="update").messages(frame).collect()[0].asDict() == expected


@pytest.mark.parametrize(
    ("event", "columns", "said"),
    [
        (None, "1 AS total", "wants a column event; there are total"),
        ("e", "'x' AS event, 'd' AS data", "there is a column event"),
        ("e", "'d' AS data, 1 AS a, 2 AS b", "there is a, b too"),
        ("e", "'i' AS id", "no column to make data of; there are id"),
    ],
)
def test_columns_that_will_not_do(spark: SparkSession, event: str | None, columns: str, said: str) -> None:
    with pytest.raises(BadTarget, match=said):
        ToEvent(event=event, mode="update").messages(spark.sql(f"SELECT {columns}"))


# ── running ──


PIPELINE = """
from pyspark.sql import functions as F

@to_lake("orders")
@to_event("order.seen")
@to_console()
def orders(events):
    return events.where("event != 'other'").selectExpr("time", "data:total::int AS total", "event AS name")

@to_event("total", mode="complete")
def totals(events):
    return events.where("event = 'order.paid'").groupBy().agg(F.sum(F.expr("data:total::int")).alias("sum"))
"""


def test_a_pipeline_runs(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice, the second time over what came meanwhile: all reaches its targets once, and nothing comes back."""
    file = written(tmp_path, PIPELINE)
    with broker(data=tmp_path / "data", fsync="never") as running, mqks.Client(running.url) as client:
        place = Place(broker=running.url, data=str(tmp_path / "data"), lake=str(tmp_path / "lake"))
        for total in (1, 2):
            client.publish("order.paid", {"total": total}, confirm=True)
            client.publish("other", {"total": 100}, confirm=True)
            client.publish("left.out", {"total": 100}, confirm=True)
            client.publish("mqks.pipeline.progress", "{}", confirm=True)
            jobs = run(spark, place, file, available_now=True, options={"exceptEvents": "left.out"})
            assert [job.name for job in jobs] == ["run orders", "run totals"]
            # Spark 4.3 may fail streams that start at the same moment; who watches them starts them again.
            watch(spark, place, jobs, out=io.StringIO(), publish=False)
        told = [(record.event, json.loads(record.data)) for record in client.history(events=["order.seen", "total"])]
    rows = lake.table(spark, place, "orders").collect()
    paid = sorted(row["total"] for row in rows if row["name"] == "order.paid")
    assert paid == [1, 2]
    assert {f"{row['date']}" for row in rows} == {f"{row['time']:%Y-%m-%d}" for row in rows}
    assert sorted(data["total"] for event, data in told if event == "order.seen" and data["name"] == "order.paid") == [
        1,
        2,
    ]
    assert not [data for event, data in told if event == "order.seen" and data["name"] == "order.seen"]
    assert [data for event, data in told if event == "total"] == [{"sum": 1}, {"sum": 3}]
    changed = ToLake(table="orders", mode="append"), lake.dated(spark.sql("SELECT 'x' AS total"))
    with pytest.raises(PipelineError, match="the column total is string, and in the table it is integer"):
        changed[0].writer(changed[1], Query(place, "run-mine-orders-lake-orders"))
    assert "run-mine-orders-console, batch 0, rows 1:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "@to_console()\ndef one(events):\n    return events.select('nope')\n",
            "line 4, one: AnalysisException: .*`nope`",
        ),
        (
            "@to_console()\ndef one(events):\n    events.select('id')\n",
            "one: it returns NoneType.*is a `return` missing",
        ),
        ("@to_event()\ndef one(events):\n    return events.select('id')\n", "one, @to_event: .*wants a column event"),
        (
            "@to_lake('t')\ndef one(events):\n    return events.groupBy('event').count()\n",
            "one, @to_lake: AnalysisException: .*without watermark",
        ),
        (
            "@to_lake('t')\ndef one(events):\n    return events.withColumnRenamed('time', 'Date')\n",
            "one, @to_lake: a column cannot be named Date",
        ),
        (
            "@to_console()\ndef one(events):\n    return events.sparkSession.range(1)\n",
            "one: what it returns is not made from the events",
        ),
    ],
)
def test_what_is_said_of_a_bad_function(spark: SparkSession, tmp_path: Path, text: str, said: str) -> None:
    made = Making(tmp_path / "data")
    file = written(tmp_path, text)
    with pytest.raises(BadPipeline, match=said) as caught:
        run(spark, Place(data=str(made.folder), lake=str(tmp_path / "lake")), file, available_now=True)
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)
    assert not spark.streams.active
