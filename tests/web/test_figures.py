"""Figures of real brokers, as they are told over HTTP: while things happen, and after a restart."""

import json
import logging
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import mqks
import mqks.testing
from mqks.web.pipeline import LONGEST_SAID
from tests.web.asking import ask, stream
from tests.web.test_pipeline_figures import minute, progress


def this_minute() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:00Z")


def test_what_waits_and_what_the_pipeline_said_are_known_after_a_restart(durable: mqks.testing.Broker) -> None:
    said = progress(time=datetime.now(UTC).isoformat())
    with mqks.Client(durable.url) as client:
        client.rebind("mail", ["mail.wanted"])
        client.publish("mail.wanted", "x", confirm=True)
        client.publish("mqks.pipeline.progress", said.decode(), confirm=True)
        client.publish("mqks.stats.minute", minute("e1", 7, minute=this_minute()).decode(), confirm=True)
    durable.restart()
    with stream(durable, "/api/live") as live:
        while not (state := live.wait_for("state"))["pipeline"]["minutes"]:
            pass
    [row] = state["queues"]
    assert (row["name"], row["ready"], row["published"]) == ("mail", 1, 0)
    assert row["age"] is not None
    [job] = state["pipeline"]["jobs"]
    assert job.items() >= json.loads(said).items()
    assert [one["count"] for one in state["pipeline"]["minutes"]] == [7]


def test_what_is_read_back_is_bounded_as_what_is_heard(durable: mqks.testing.Broker) -> None:
    with mqks.Client(durable.url) as client:
        for job, more in {"long": 20_000, "longer": LONGEST_SAID, "short": 0}.items():
            client.publish("mqks.pipeline.progress", progress(job=job).decode() + " " * more, confirm=True)
        client.publish("mqks.stats.minute", minute("e1", 7, minute=this_minute()).decode(), confirm=True)
    durable.restart()
    with stream(durable, "/api/live") as live:
        while not (told := live.wait_for("state")["pipeline"])["minutes"]:
            pass
    assert [job["job"] for job in told["jobs"]] == ["short"]


@pytest.mark.parametrize("fault", [OSError("no connection"), RuntimeError("a fault")])
def test_what_cannot_be_read_back_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    async def fail(*_: object) -> None:
        raise fault

    caplog.set_level(logging.INFO, "mqks.web.server")
    monkeypatch.setattr("mqks.web.state.read_back", fail)
    with mqks.testing.broker(http=True, data=tmp_path / "data") as broker, stream(broker, "/api/live") as live:
        assert live.wait_for("state")
    [record] = [record for record in caplog.records if "could not be read back" in record.getMessage()]
    assert record.levelname == ("INFO" if isinstance(fault, OSError) else "ERROR")


def test_a_queue_without_a_consumer_is_named_and_logged_once(
    web: mqks.testing.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mqks.web.health")
    named = 0
    with mqks.Client(web.url) as client, stream(web, "/api/live") as live:
        client.rebind("mail", ["mail.wanted"])
        client.publish("mail.wanted", "x", confirm=True)
        while named < 3:
            state = live.wait_for("state")
            named += "`mail` has had no consumer for " in state["health"]["sentence"]
    assert state["health"]["level"] == state["queues"][0]["level"] == "warning"
    lines = [record.getMessage() for record in caplog.records if record.name == "mqks.web.health"]
    assert len(lines) == 1
    assert lines[0].startswith("incident no-consumer: `mail` has had no consumer for ")


def test_a_scrape_has_what_clients_did(web: mqks.testing.Broker) -> None:
    rng = random.Random(6)
    did: Counter[str] = Counter()
    with mqks.Client(web.url) as client:
        consumer = client.consume("mail", ["mail.wanted"], manual_ack=True).ready()
        for number in range(200):
            client.publish("mail.wanted", str(number), confirm=True)
            did["published"] += 1
        for message in consumer:
            did["delivered"] += 1
            if rng.random() < 0.3:
                message.reject()
                did["rejected"] += 1
            else:
                message.ack()
                did["acked"] += 1
                if did["acked"] == 200:
                    break
        client.ping()
        answer = ask(web, "/metrics")
    samples = {
        sample.name: sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
        if sample.labels in ({}, {"queue": "mail"})
    }
    assert did["rejected"] > 0
    for name, count in did.items():
        assert samples[f"mqks_{name}_total"] == samples[f"mqks_queue_{name}_total"] == count
    assert samples["mqks_queue_retried_total"] == did["rejected"]
    assert samples["mqks_queue_ready"] == samples["mqks_queue_unacked"] == 0
    assert samples["mqks_queue_consumers"] == samples["mqks_consumers"] == samples["mqks_connections"] == 1
