"""The options of format("mqks"): what is taken, what is refused, and that the refusal says what to give."""

import pickle
from datetime import UTC, datetime

import pytest

from pyspark_mqks.options import OPTIONS, OptionError, SinkOptions, SourceOptions, Use

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_defaults() -> None:
    source = SourceOptions.parse({"path": "mqks-data"})
    assert source == SourceOptions(path="mqks-data")
    assert source.fail_on_data_loss
    assert source.starting_offsets is None
    assert source.max_bytes_per_trigger == 256 << 20
    sink = SinkOptions.parse({"url": "mqks://127.0.0.1"})
    assert (sink.url, sink.once, sink.scope, sink.rate) == ("mqks://127.0.0.1:25000", True, None, None)


def test_case_does_not_matter() -> None:
    given = {"PATH": "d", "startingoffsets": "earliest", "failOnDATALoss": "False"}
    assert SourceOptions.parse(given) == SourceOptions("d", starting_offsets="earliest", fail_on_data_loss=False)


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("startingOffsets", "earliest", "starting_offsets", "earliest"),
        ("startingOffsets", "Latest", "starting_offsets", "latest"),
        ("startingOffsets", "4711", "starting_offsets", 4711),
        ("startingOffsets", '{"position": 4711}', "starting_offsets", 4711),
        ("endingOffsets", "0", "ending_offsets", 0),
        ("startingTimestamp", "2026-01-31T12:00:00Z", "starting_timestamp", NOON),
        ("startingTimestamp", "2026-01-31 13:00+01:00", "starting_timestamp", NOON),
        ("startingTimestamp", "2026-01-31T12:00:00", "starting_timestamp", NOON),
        ("endingTimestamp", "1769860800000", "ending_timestamp", NOON),
        ("maxOffsetsPerTrigger", "10000", "max_offsets_per_trigger", 10000),
        ("maxBytesPerTrigger", "64m", "max_bytes_per_trigger", 64 << 20),
        ("maxBytesPerTrigger", "1GiB", "max_bytes_per_trigger", 1 << 30),
        ("maxPartitionBytes", "4096", "max_partition_bytes", 4096),
        ("minPartitions", "7", "min_partitions", 7),
        ("failOnDataLoss", "false", "fail_on_data_loss", False),
        ("subscribe", "order.new, order.paid", "subscribe", ("order.new", "order.paid")),
        ("subscribePattern", "order[.].*", "subscribe_pattern", "order[.].*"),
        ("events", "e1,order.*", "events", ("e1", "order.*")),
        ("exceptEvents", "mqks.*.*", "except_events", ("mqks.*.*",)),
        ("retryFor", "15m", "retry_for", 900.0),
        ("retryFor", "0", "retry_for", 0.0),
    ],
)
def test_source_takes(name: str, text: str, field: str, value: object) -> None:
    options = SourceOptions.parse({"path": "d", name: text})
    assert getattr(options, field) == value
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("text", "path"), [("/a/b", "/a/b"), ("file:/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("a", "a")]
)
def test_a_path_may_be_a_url_of_this_machine(text: str, path: str) -> None:
    assert SourceOptions.parse({"path": text}).path == path


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("startingOffsets", "yesterday", 'give earliest, latest, a position such as 4711, or {"position": 4711}'),
        ("startingOffsets", "-1", "give earliest"),
        ("startingOffsets", "true", "give earliest"),
        ("startingOffsets", '{"topic": {"0": 1}}', "give earliest"),
        ("endingOffsets", "1.5", "give earliest"),
        ("startingTimestamp", "noon", "milliseconds since 1970"),
        ("startingTimestamp", "9" * 18, "milliseconds since 1970"),
        ("startingTimestamp", "20260131", "which have 11 digits or more"),
        ("endingTimestamp", "1769860800", "which have 11 digits or more"),  # seconds
        ("maxOffsetsPerTrigger", "0", "from 1 on"),
        ("maxBytesPerTrigger", "much", "such as 64m"),
        ("minPartitions", "-3", "from 1 on"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("subscribe", "a,,b", "with a comma between"),
        ("subscribe", "order.*", "masks are for the option events"),
        ("subscribePattern", "(", "no regular expression"),
        ("retryFor", "ages", "in seconds"),
        ("url", "http://here", "no address of a broker"),
        ("path", "", "--data"),
        ("topic", "x", "there are path, url, startingOffsets"),
    ],
)
def test_source_refuses(name: str, text: str, why: str) -> None:
    with pytest.raises(OptionError) as refused:
        SourceOptions.parse({"path": "d", name: text})
    assert name in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "either path"),
        ({"path": "d", "url": "mqks://h"}, "either path"),
        (
            {"path": "d", "startingOffsets": "1", "startingTimestamp": "2026-01-31"},
            "startingOffsets or startingTimestamp",
        ),
        ({"path": "d", "endingOffsets": "1", "endingTimestamp": "2026-01-31"}, "endingOffsets or endingTimestamp"),
    ],
)
def test_what_does_not_go_together(given: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        SourceOptions.parse(given)


@pytest.mark.parametrize(
    ("name", "text", "use", "other"),
    [
        ("endingOffsets", "1", Use.BATCH, Use.STREAM),
        ("endingTimestamp", "2026-01-31", Use.BATCH, Use.STREAM),
        ("pushFilters", "true", Use.BATCH, Use.STREAM),
        ("maxOffsetsPerTrigger", "7", Use.STREAM, Use.BATCH),
        ("maxBytesPerTrigger", "1g", Use.STREAM, Use.BATCH),
    ],
)
def test_what_would_do_nothing_is_refused(name: str, text: str, use: Use, other: Use) -> None:
    options = SourceOptions.parse({"path": "d", name: text})
    options.check_use(use)
    with pytest.raises(OptionError, match=f"option {name} is for a {use.value}, and this is a {other.value}"):
        options.check_use(other)


def test_what_is_for_both() -> None:
    for use in Use:
        SourceOptions.parse({"url": "mqks://h", "startingOffsets": "1", "retryFor": "1", "events": "e"}).check_use(use)


def test_sink() -> None:
    given = {
        "url": "mqks://h:1",
        "scope": "s1",
        "once": "false",
        "rate": "2.5",
        "retryFor": "1",
        "checkpointLocation": "c",
        "queryName": "q",
    }
    assert SinkOptions.parse(given) == SinkOptions("mqks://h:1", "s1", False, 2.5, 1.0)
    for name, text in {"rate": "0", "scope": "two words", "once": "twice", "path": "d", "topic": "t"}.items():
        with pytest.raises(OptionError, match=name):
            SinkOptions.parse({"url": "mqks://h", name: text})
    with pytest.raises(OptionError, match="give url"):
        SinkOptions.parse({})


def test_every_option_says_what_it_is_for() -> None:
    for options in OPTIONS.values():
        names = [option.name for option in options]
        assert len({name.lower() for name in names}) == len(names)
        assert all(option.help for option in options)
