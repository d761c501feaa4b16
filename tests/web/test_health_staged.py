"""Each thing that can be wrong, in a broker in process: found within seconds, and over when it is."""

import logging

import pytest

from mqks.broker import Broker
from mqks.broker.limits import Limits
from mqks.web import sampling
from mqks.web.detectors import OF_ALL, OF_QUEUES
from mqks.web.sampling import LATELY
from mqks.web.state import Figures
from tests.web.stage import HOST, Stage
from tests.web.test_pipeline_figures import progress


def test_no_consumer() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"r rebind mail e", b"m publish e x")
    stage.wait(4)
    assert stage.phrases["no-consumer"].startswith("`mail` has had no consumer for ")
    assert stage.queue("mail")["why"] == "no consumer for 4 s"
    stage.say(client, b"c1 consume mail")
    stage.wait()
    assert "no-consumer" not in stage.phrases
    assert stage.queue("mail")["level"] == "ok"


def test_poison() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"c1 consume mail e --manual-ack", b"m1 publish e x")
    for _ in range(6):
        stage.say(client, b"j reject c1 m1")
    stage.wait()
    assert stage.phrases["poison"] == "`mail` gives the same messages again and again: one came back 6 times."
    assert stage.queue("mail")["retries"] == 6
    stage.wait(20)
    assert "poison" in stage.phrases  # it may come back now and then only
    stage.say(client, b"a ack c1 m1")
    stage.wait(12)
    assert "poison" not in stage.phrases


def test_slow_consumer() -> None:
    stage = Stage()
    fast, slow = stage.connect(), stage.connect()
    stage.say(slow, b"c1 consume mail e --manual-ack --prefetch=1")
    stage.say(fast, *(b"m%d publish e x" % number for number in range(3)))
    stage.wait(5)
    assert stage.phrases["slow"] == (
        "`mail` has a slow consumer: `c1` of 127.0.0.1:5002 has settled nothing for 4 s and has 1 message."
    )
    stage.say(slow, b"a ack c1 m0")
    stage.wait()
    assert "slow" not in stage.phrases


def test_a_consumer_that_has_all_there_is_may_take_its_time() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"c1 consume mail e --manual-ack", b"m1 publish e x")
    stage.wait(30)
    assert stage.figures.state()["health"]["level"] == "ok"


def test_behind() -> None:
    stage = Stage()
    publisher, consumer = stage.connect(), stage.connect()
    stage.say(consumer, b"c1 consume mail e --manual-ack --prefetch=1")
    number = 0
    for _ in range(10):
        stage.say(publisher, *(b"m%d publish e x" % n for n in range(number, number + 5)))
        stage.say(consumer, b"a ack c1 --all")
        number += 5
        stage.wait()
    assert stage.phrases["behind"].startswith("`mail` falls behind: 5.0/s come and 1.0/s go, the oldest of ")


def test_deaf_client() -> None:
    stage = Stage()
    publisher, deaf = stage.connect(), stage.connect()
    stage.say(deaf, b"c1 consume mail e")
    stage.broker.feed(publisher, b"m1 publish e x\n")
    stage.serve(but=[deaf])
    stage.wait(5)
    assert stage.phrases["deaf"].startswith("Client 127.0.0.1:5002 has read nothing for 4 s")
    assert [row["level"] for row in stage.figures.connections(10)] == ["trouble", "ok"]  # the worst first
    stage.serve()
    stage.wait()
    assert "deaf" not in stage.phrases


def test_with_very_many_clients_none_that_reads_is_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their turn comes rarely: what they have read since then counts all the same."""
    monkeypatch.setattr(sampling, "CLIENTS_AT_ONCE", 2)
    stage = Stage()
    publisher = stage.connect()
    for number in range(10):
        stage.say(stage.connect(), b"c1 consume q%d e" % number)
    stage.broker.feed(publisher, b"".join([b"m publish e " + b"x" * 100 + b"\n"] * 100))
    stage.broker.turn()
    for _ in range(30):
        for client in stage.broker.connections.clients:
            stage.broker.sent(client, min(client.pending_size, 10))
        stage.wait()
        assert "deaf" not in stage.phrases


def test_a_client_that_reads_slowly_is_not_deaf() -> None:
    stage = Stage()
    publisher, reader = stage.connect(), stage.connect()
    stage.say(reader, b"c1 consume mail e")
    stage.broker.feed(publisher, b"m1 publish e %s\n" % (b"x" * 100))
    stage.serve(but=[reader])
    for _ in range(20):
        stage.broker.sent(reader, 1)
        stage.wait()
    assert "deaf" not in stage.phrases


def test_refused_clients() -> None:
    stage = Stage()
    for _ in range(3):
        stage.broker.limits.reached("max_connections")
    stage.wait()
    assert stage.phrases["refused"].startswith("3 clients were turned away")
    stage.wait(int(LATELY) + 2)
    assert "refused" not in stage.phrases


def test_a_limit_that_was_reached_lately() -> None:
    stage = Stage(limits=Limits(max_queues=1))
    stage.say(stage.connect(), *(b"r rebind q%d e" % number for number in range(3)))
    stage.wait()
    assert stage.phrases["limited"].startswith("A limit was reached 2 times: --max-queues is reached")
    stage.wait(int(LATELY) + 2)
    assert "limited" not in stage.phrases


@pytest.mark.parametrize("overflow", ["reject", "drop-oldest"])
def test_it_is_said_which_queue_is_full(overflow: str) -> None:
    stage = Stage(limits=Limits(max_length=1, overflow=overflow))
    stage.say(stage.connect(), b"r rebind mail e", b"m publish e 1", b"m publish e 2")
    stage.wait()
    assert stage.phrases["limited"].endswith("its --max-length is reached, the last time by 'mail'.")


def test_it_is_said_who_asks_too_often() -> None:
    stage = Stage(limits=Limits(max_rate=1))
    stage.say(stage.connect(), *[b"p ping"] * 5)
    stage.wait()
    assert stage.phrases["limited"].endswith("than --max-rate, the last time by 127.0.0.1:5001.")


def test_memory() -> None:
    stage = Stage(max_memory=1 << 20)
    client = stage.connect()
    stage.say(client, b"r rebind mail e", *[b"m publish e " + b"x" * 8192] * 200)
    stage.wait()
    assert "of the memory is used" in stage.phrases["memory"]


def test_stalled_job() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"m publish mqks.pipeline.progress " + progress())
    stage.wait()
    assert stage.phrases["job"] == "Spark archive is 2 s behind."
    stage.wait(10)
    assert stage.phrases["stalled"] == "Spark archive has said nothing for 10 s."
    [job] = stage.figures.pipeline()["jobs"]
    assert (job["level"], job["why"]) == ("warning", "has said nothing for 10 s")


def test_all_detectors_have_a_test() -> None:
    told = {
        *("no_consumer", "poison", "slow", "behind"),
        *("broken", "disk", "deaf", "memory", "refused", "limited", "stalled"),
    }
    assert {detector.__name__ for detector in (*OF_QUEUES, *OF_ALL)} == told


def test_no_consumer_is_told_from_when_the_last_one_left() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"r rebind never e", b"c1 consume left e")
    stage.wait(100)
    stage.say(client, b"d delete_consumer c1")
    stage.wait(50)
    stage.say(client, b"m publish e x")
    stage.wait()
    assert stage.queue("never")["why"] == "no consumer for 2 min"
    assert stage.queue("left")["why"] == "no consumer for 51 s"


def test_from_before_the_start_nobody_knows_how_long_there_was_no_consumer() -> None:
    now = 0.0
    broker = Broker(clock=lambda: now)
    client = broker.connect("127.0.0.1:5000")
    broker.feed(client, b"r rebind mail e\nm publish e x\n")
    broker.turn()
    now = 1.0
    figures = Figures(broker, HOST)
    now = 60.0
    figures.sample()
    assert (
        "`mail` has had no consumer since the start 60 s ago, 1 message waits." in figures.state()["health"]["sentence"]
    )


def test_poison_among_others_that_come_back_once() -> None:
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"c1 consume mail e --manual-ack", b"bad publish e x")
    for second in range(20):
        for number in range(3):
            name = b"m%d.%d" % (second, number)
            stage.say(client, b"%s publish e x" % name, b"j reject c1 bad", b"j reject c1 %s" % name)
            stage.say(client, b"a ack c1 %s" % name)
        stage.wait()
        if second >= 1:
            assert f"one came back {3 * second + 3} times" in stage.phrases["poison"]
    assert stage.queue("mail")["retrying"] == 60
    stage.say(client, b"a ack c1 bad")
    for second in range(int(LATELY) + 2):  # others that come back once are no reason to name it any longer
        stage.say(client, b"n%d publish e x" % second, b"j reject c1 n%d" % second, b"a ack c1 n%d" % second)
        stage.wait()
    assert "poison" not in stage.phrases


def test_a_queue_made_anew_has_incidents_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mqks.web.health")
    stage = Stage()
    client = stage.connect()
    stage.say(client, b"r rebind mail e", b"m publish e x")
    stage.wait(5)
    stage.now += 3  # no sample sees that there is none
    stage.say(client, b"d delete_queue mail", b"r rebind mail e", b"m publish e x")
    stage.now += 3
    stage.wait(30)
    assert stage.queue("mail")["level"] == "warning"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
