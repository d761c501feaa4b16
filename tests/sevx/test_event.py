"""What a handler gets, without a broker."""

import copy
import json
import pickle
from datetime import datetime

import pytest

from sevx import Content, Event

TEXT = '{"src": "service1", "data": {"id": 42, "name": "Kate", "tags": [{"t": 1}]}, "items": 3}'
DTID = "20161231235959123456uN1q"


def test_what_it_says() -> None:
    event = Event(DTID, TEXT)
    assert event.id == DTID
    assert event.dt == datetime(2016, 12, 31, 23, 59, 59, 123456)
    assert event.json == TEXT
    assert event.retry == 0


def test_content_is_attributes_and_a_dict() -> None:
    content = Event(DTID, TEXT).content
    assert content.data.name == content["data"]["name"] == content.data["name"] == "Kate"
    assert content.data.tags[0].t == 1
    assert content == json.loads(TEXT)
    assert json.dumps(content) == TEXT
    assert content["items"] == 3 and ("src", "service1") in content.items()
    assert isinstance(copy.deepcopy(content).data, Content)
    assert pickle.loads(pickle.dumps(content)) == content


def test_what_is_not_there_says_what_is() -> None:
    content = Event(DTID, TEXT).content
    with pytest.raises(AttributeError, match=r"no 'nane' in this event, but: id, name, tags"):
        _ = content.data.nane
    assert getattr(content, "data2", None) is None
    with pytest.raises(AttributeError):
        content.data.name = "Jane"


@pytest.mark.parametrize("id", ["s1", "2016123123595912345uN1qq", "20161331235959123456uN1q", f"{DTID}x", ""])
def test_an_id_that_tells_no_time(id: str) -> None:
    assert Event(id, "{}").dt is None


@pytest.mark.parametrize(
    ("text", "retry"),
    [('{"retry": 7, "a": 1}', 7), ('{"retry": 12}', 12), ('{"a": {"retry": 3}}', 0), ('{"retry": "x"}', 0), ("{}", 0)],
)
def test_retry(text: str, retry: int) -> None:
    assert Event("s1", text).retry == retry


def test_the_brokers_retry_stands_before_the_senders() -> None:
    assert Event("s1", '{"retry": 1, "a": 1, "retry": 100}').retry == 1


@pytest.mark.parametrize("verb", ["ack", "ack_all", "reject", "reject_all"])
def test_without_manual_ack_there_is_nothing_to_settle(verb: str) -> None:
    event = Event(DTID, TEXT)
    with pytest.raises(RuntimeError, match="manual_ack=True"):
        getattr(event, verb)()
    assert not event.settled
