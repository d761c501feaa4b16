"""The API fuzzed from its own OpenAPI document, with a token that may do all: whatever is sent, answers are those that
the document tells; and without the token, or with a wrong one, none is let in."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.failures import AcceptedNegativeData, FailureGroup
from schemathesis.core.result import Ok

import mqks.testing
from mqks.web.app import OPERATIONS
from mqks.web.asking import Accept, Key
from mqks.web.openapi import document
from tests.running import PATIENCE, Connection
from tests.web.asking import ask
from tests.web.logins import ALL, Tokens, bearer, guarded

TOKENS = Tokens(ALL)
ALLOWED = {"Authorization": bearer("all")}
BODIES: dict[str, Any] = {
    "POST /api/publish": {"event": "e1", "data": [1]},
    "POST /api/session": {"token": "all.secret"},
}
STREAMS = ("/api/live", "/api/tail")  # which do not end; test_live.py has them
EXAMPLES = 40
ODD = [
    b"r2 rebind --confirm q\xff e\xff",
    b"r3 rebind --confirm %s e1" % (b"long" * 1000),
    b"m1 publish --confirm e\xff d\xff",
    b'm2 publish --confirm mqks.pipeline.progress {"job": "archive", "state": "running", "batch": 1, "rows": 2}',
    b'm3 publish --confirm mqks.pipeline.progress {"job": "\\ud800", "state": "failed"}',
    b'm4 publish --confirm mqks.stats.minute {"minute": "2026-01-02T03:04Z", "kind": "event", "name": "e", "count": 1}',
]
SCHEMA = schemathesis.openapi.from_dict(
    document((each for each in OPERATIONS if each.path not in STREAMS), secured=True, cookie="mqks_session_80")
)
FOUND = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)}
TAKING = {  # something that can be wrong, which a key in the path cannot be
    f"{each.method} {each.path}"
    for each in OPERATIONS
    if each.body or not all(isinstance(one, Accept | Key) for one in each.parameters)
}
CASES = [
    *((label, GenerationMode.POSITIVE) for label in FOUND),
    *((label, GenerationMode.NEGATIVE) for label in FOUND if label in TAKING),
]


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[mqks.testing.Broker]:
    """A broker with all that an answer may tell of, names that are no text among it."""
    with (
        guarded(TOKENS) as broker,
        mqks.connect(broker.url) as client,
        closing(Connection(broker.port)) as wire,
    ):
        wire.send(b'r1 recv {"queue": "patterns", "pattern": {"a": {"$gt": 1}, "b": "\\ud800"}}\n')
        for request in ODD:
            wire.send(request + b"\n")
            assert b" ok " in wire.line()
        client.rebind("q1", ["e1", "e2"])
        client.publish_many(("e1", f"d{n}") for n in range(10))
        with client.consume("q2", ["e2"], manual_ack=True):
            yield broker
        assert ask(broker, "/healthz").json == {"status": "ok"}


@pytest.mark.parametrize(("label", "mode"), CASES)
def test_answers_are_as_documented(fuzzed: mqks.testing.Broker, label: str, mode: GenerationMode) -> None:
    @settings(max_examples=EXAMPLES, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(case=FOUND[label].as_strategy(generation_mode=mode))
    def answer(case: Any) -> None:
        try:
            case.call_and_validate(base_url=fuzzed.http_url, headers=ALLOWED)
        except FailureGroup as failures:
            if rest := failures.split(_is_too_large)[1]:
                raise rest from None

    answer()


def _is_too_large(failure: BaseException) -> bool:
    """A body that is refused for its size, 413, which schemathesis does not know as a refusal."""
    return isinstance(failure, AcceptedNegativeData) and failure.status_code == 413


def test_what_is_there_is_as_documented(tmp_path: Path) -> None:
    """The same with names that exist, which no fuzzer guesses; what changes something comes last."""
    with guarded(TOKENS, data=tmp_path) as durable, mqks.connect(durable.url) as client:
        client.rebind("q1", ["e1"])
        client.publish_many(("e1", f"d{n}") for n in range(3))
        with client.consume("q2", ["e1"], manual_ack=True) as consumer:
            client.publish("e1", "d3")
            assert consumer.get(timeout=PATIENCE)
            [message, *_] = ask(durable, "/api/queues/q1/messages", **ALLOWED).json["messages"]
            known = {"key": "q1", "position": message["position"]}
            for label in sorted(FOUND, key=lambda label: (label.startswith("DELETE"), label.startswith("POST"))):
                names = re.findall(r"{(\w+)}", label)
                case = FOUND[label].Case(path_parameters={name: known[name] for name in names})
                if label in BODIES:
                    case.body, case.media_type = BODIES[label], "application/json"
                answer = case.call_and_validate(base_url=durable.http_url, headers=ALLOWED)
                assert answer.status_code == 200, (label, answer.text)
