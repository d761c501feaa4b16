"""The last word of each job on Spark is known after a start, however the broker ended and whatever came after it."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import mqks
import mqks.testing
from mqks.broker import Broker
from mqks.broker.protocol import jsons
from mqks.journal.disk import RealDisk
from mqks.web import readback
from mqks.web.lastwords import FILE, LastWords
from mqks.web.pipeline import PROGRESS, Jobs, Pipeline
from tests.web.asking import stream
from tests.web.test_pipeline_figures import NOW, progress


@contextmanager
def kept(folder: Path, wall: Callable[[], float] = lambda: NOW) -> Iterator[tuple[Pipeline, LastWords]]:
    disk = RealDisk(folder)
    broker = Broker(disk=disk, wall=wall)
    broker.recover()
    pipeline = Pipeline(NOW)
    try:
        yield pipeline, LastWords(broker, pipeline.jobs)
    finally:
        broker.close()
        disk.stop()


def known(folder: Path, now: float = NOW) -> dict[str, tuple[str, float | None]]:
    with kept(folder, lambda: now) as (pipeline, words):
        words.read()
        rows = pipeline.state(now, {})["jobs"]
        return {row["job"]: (row["state"], row["rows"]) for row in rows}


def test_a_new_job_and_another_state_are_written_at_once_and_the_rest_each_minute(tmp_path: Path) -> None:
    file = tmp_path / FILE
    with kept(tmp_path) as (pipeline, words):
        words.read()
        words.step(0)
        assert not file.exists()
        said: list[tuple[int, dict[str, Any], int]] = [
            (0, {"rows": 1}, 1),
            (1, {"rows": 2}, 1),
            (60, {"rows": 3}, 3),
            (61, {"state": "failed"}, 1000),
        ]
        for second, figures, expected in said:
            pipeline.take(PROGRESS, progress(**figures), NOW + second)
            words.step(second)
            jobs = Jobs(NOW)
            jobs.restore(jsons.loads(file.read_bytes()), NOW + second)
            assert [row["rows"] for row in jobs.rows(NOW + second, {})] == [expected]
        before = file.stat().st_mtime_ns
        words.step(1000)
        words.write()
        assert file.stat().st_mtime_ns == before  # nothing is new


def test_what_was_said_last_is_known_after_a_start_with_its_time(tmp_path: Path) -> None:
    with kept(tmp_path) as (pipeline, words):
        pipeline.take(PROGRESS, progress(state="failed"), NOW)
        pipeline.take(PROGRESS, progress(job="\ud800", rows=5), NOW)
        words.write()
    assert known(tmp_path) == {"archive": ("failed", 1000), "\\ud800": ("running", 5)}
    with kept(tmp_path, lambda: NOW + 100) as (pipeline, words):
        words.read()
        assert [row["age"] for row in pipeline.state(NOW + 100, {})["jobs"]] == [100, 100]
    with kept(tmp_path, lambda: NOW - 100) as (pipeline, words):  # a clock that was set back
        words.read()
        assert [row["age"] for row in pipeline.state(NOW - 100, {})["jobs"]] == [0, 0]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"7", b"{}", b"[7, {}]", b'[{"told": 7}]', b'[{"said": "x", "told": {"job": 1}}]']
)
def test_a_file_that_makes_no_sense_is_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert known(tmp_path) == {}


def test_a_file_that_cannot_be_written_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).mkdir()
    with kept(tmp_path) as (pipeline, words):
        pipeline.take(PROGRESS, progress(), NOW)
        words.step(0)
        words.step(1)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the last words of the jobs on Spark could not be written"
    ]
    assert known(tmp_path) == {}


@pytest.mark.parametrize("by_the_stop", [True, False])
def test_what_could_not_be_written_is_written_when_the_disk_takes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, by_the_stop: bool
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with kept(tmp_path) as (pipeline, words):
        words.read()
        pipeline.take(PROGRESS, progress(state="failed"), NOW)
        with monkeypatch.context() as patch:
            patch.setattr(RealDisk, "write", full)
            for second in range(1000, 1050):
                words.step(second)
        assert len(caplog.records) == 1  # not each second
        if by_the_stop:
            words.write()
        else:
            words.step(1060)
    assert known(tmp_path) == {"archive": ("failed", 1000)}


def test_a_job_that_failed_is_named_after_a_restart_whatever_came_after_it(
    durable: mqks.testing.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readback, "MOST_READ_BACK", 1000)
    with mqks.Client(durable.url) as client, stream(durable, "/api/live") as live:
        client.publish("mqks.pipeline.progress", progress(state="failed").decode(), confirm=True)
        while "Spark archive has failed." not in live.wait_for("state")["health"]["sentence"]:
            pass
        for _ in range(20):
            client.publish("other", "x" * 1000, confirm=True)
    durable.restart()
    with stream(durable, "/api/live") as live:
        assert "Spark archive has failed." in live.wait_for("state")["health"]["sentence"]
