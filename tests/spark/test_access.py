"""Source and sink with a broker that speaks TLS and wants a token: from the driver's environment or from options."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mqks.client.access import ENVIRONMENT
from mqks.client.address import find_address
from mqks.client.errors import AuthRefused, TlsFailed
from mqks.server.tokens import Hash, new_token
from mqks.testing import Broker, broker
from pyspark_mqks.options import OptionError, SinkOptions, SourceOptions
from pyspark_mqks.publishing import Publisher
from pyspark_mqks.sink import Writer
from tests.certificates import Authority
from tests.spark.peers import PATIENCE
from tests.spark.scanning import batch_reader, read, scanned, schema

KEPT = {"retain_age": "3650d", "retain_bytes": "1G", "fsync": "never"}


class Guarded:
    """A broker, and what it wants to see."""

    def __init__(self, running: Broker, reads: str, publishes: str, ca: Path) -> None:
        self.url = running.url
        self.reads = {"url": running.url, "token": reads, "ca": str(ca)}
        self.publishes = {"url": running.url, "token": publishes, "ca": str(ca)}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    authority, reads, publishes = Authority(tmp_path), new_token("reads"), new_token("publishes")
    path = tmp_path / "auth.toml"
    path.write_text(
        f'[tokens.reads]\nhash = "{Hash.of(reads)}"\nhistory = ["**"]\n'
        f'[tokens.publishes]\nhash = "{Hash.of(publishes)}"\npublish = ["e1"]\n'
    )
    path.chmod(0o600)
    with broker(data=tmp_path / "data", tls_cert=authority.issue(), auth_file=path, **KEPT) as running:
        yield Guarded(running, reads, publishes, authority.file)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT.values():
        monkeypatch.delenv(name, raising=False)


def write(given: dict[str, str], count: int, size: int = 10) -> int:
    """By a writer that has gone through pickle, as to an executor, where the environment is another one."""
    writer = Writer(SinkOptions.parse(given), schema(("id", "event", "data")))
    there = pickle.dumps(writer)
    for name in ENVIRONMENT.values():
        os.environ.pop(name, None)
    ids = [f"m{number}" for number in range(count)]
    batch = pa.RecordBatch.from_pydict({"id": ids, "event": ["e1"] * count, "data": ["x" * size] * count})
    return int(pickle.loads(there).write(iter([batch])).rows)


def test_there_and_back(guarded: Guarded) -> None:
    """Much more than one record of TLS, and than a kernel takes at a time."""
    assert write(guarded.publishes, 100, 100_000) == 100
    assert [len(row["data"]) for row in scanned(guarded.reads, ["data"])] == [100_000] * 100


def test_the_drivers_environment_goes_to_the_tasks(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQKS_CA", guarded.publishes["ca"])
    monkeypatch.setenv("MQKS_TOKEN", guarded.publishes["token"])
    assert write({"url": guarded.url}, 3) == 3
    monkeypatch.setenv("MQKS_CA", guarded.reads["ca"])
    monkeypatch.setenv("MQKS_TOKEN", guarded.reads["token"])
    reader = batch_reader({"url": guarded.url})
    parts = reader.partitions()
    for name in ENVIRONMENT.values():
        monkeypatch.delenv(name, raising=False)
    assert sum(len(read(reader, part)) for part in parts) == 3


def test_who_is_not_let_in_is_told_at_once(guarded: Guarded) -> None:
    """`retryFor` is for brokers that are away."""
    wrong = {**guarded.reads, "token": "reads.wrong"}
    with pytest.raises(AuthRefused, match=r"reads\.…"):
        scanned(wrong)
    with pytest.raises(AuthRefused, match=r"reads\.…"):
        write(wrong, 1)
    with pytest.raises(TlsFailed, match="cannot trust"):
        scanned({"url": guarded.url})
    with pytest.raises(ConnectionError, match="cannot trust"):
        Publisher(find_address(guarded.url), retry_for=10 * PATIENCE)


def test_a_token_is_not_shown() -> None:
    for group in (SourceOptions, SinkOptions):
        options = group.parse({"url": "mqkss://h", "token": "name.secret"})
        assert options.token == "name.secret"
        assert "secret" not in f"{options} {options.access}"
        with pytest.raises(OptionError, match="a token is one word") as refused:
            group.parse({"url": "mqkss://h", "token": "name.secret two"})
        assert "secret" not in str(refused.value)


def test_under_spark(spark: SparkSession, guarded: Guarded, capfd: pytest.CaptureFixture[str]) -> None:
    made = spark.sql("SELECT 'e1' AS event, 'd1' AS data, 'm1' AS id")
    made.write.format("mqks").options(**guarded.publishes).mode("append").save()
    frame = spark.read.format("mqks").options(**guarded.reads).load()
    assert [(row["id"], row["data"]) for row in frame.collect()] == [("m1", "d1")]
    frame.explain(extended=True)
    said = capfd.readouterr()
    assert guarded.reads["token"] not in said.out + said.err
