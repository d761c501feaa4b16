"""A table on S3, played by moto, without a lock table: races are decided by the store."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import EndpointConnectionError
from pyarrow import fs, parquet

from mqks.pipeline.lake.commit import POSITION, AnotherWriter, append
from mqks.pipeline.lake.compaction import compact
from mqks.pipeline.lake.delta_table import Table
from mqks.pipeline.lake.location import Location
from tests.spark.tables import batch, new_table, opened, rows

BUCKET = "lake"
URL = f"s3a://{BUCKET}/t"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[fs.FileSystem]:
    """In a process of its own: Arrow and delta-rs may wait for an answer with Python's lock in their hands."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    try:
        make_bucket(endpoint)
        yield fs.S3FileSystem(access_key="test", secret_key="test", endpoint_override=endpoint, region="us-east-1")
    finally:
        server.kill()
        server.wait()


def make_bucket(endpoint: str) -> None:
    """When the store answers; the test's own time limit ends it."""
    while True:
        try:
            boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=BUCKET)
            return
        except EndpointConnectionError:
            continue


def writing(store: fs.FileSystem, start: int, end: int) -> Callable[[str], None]:
    def write(folder: str) -> None:
        path = f"{folder.removeprefix('s3a://')}/date=2026-01-31/part-0.parquet"
        parquet.write_table(rows(start, end), path, filesystem=store)

    return write


def archive(store: fs.FileSystem, table: Table, upto: int) -> None:
    table.refresh()
    while (at := table.progress(POSITION)) is None or at < upto:
        end = min((at or 0) + 10, upto)
        append(table, batch(at, end), writing(store, at or 0, end))


def positions(store: fs.FileSystem) -> list[int]:
    found: list[pa.Table] = [
        parquet.read_table(f"{BUCKET}/t/{one.path}", filesystem=store, columns=["position"], partitioning=None)
        for one in opened(URL, writing=False).files
    ]
    return sorted(position for one in found for position in one["position"].to_pylist())


def test_two_archives_race_on_s3(store: fs.FileSystem) -> None:
    assert Location(URL).delta == f"s3://{BUCKET}/t"
    new_table(URL)

    def run() -> None:
        table = opened(URL)
        while True:
            try:
                archive(store, table, 60)
                return
            except AnotherWriter:
                continue  # it is started again, and takes over in turn

    both = [threading.Thread(target=run) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert positions(store) == list(range(60))
    table = opened(URL)
    assert compact(table, 2) >= 6
    assert positions(store) == list(range(60))
    assert len(table.vacuum(hours=0, orphans=True)) >= 6
    assert positions(store) == list(range(60))
