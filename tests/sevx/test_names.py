"""The default queue: the name that the specification gives, one for all workers of a type, no two for one pattern."""

import functools
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqks.names import is_name
from sevx.names import default_queue
from tests.sevx.spec import FILE


def defined(code: str, file: str = FILE, name: str = "on_event") -> Callable[..., Any]:
    namespace: dict[str, Any] = {"__name__": "service", "functools": functools}
    exec(compile(code, file, "exec"), namespace)
    found: Callable[..., Any] = namespace[name]
    return found


ON_EVENT = defined("def on_event(event): pass")
PATH = "opt.service2.events.test.on_event"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ({"obj": "user", "act": "updated"}, ".act=updated.obj=user"),
        ({}, ""),
        ({"event": "user.updated"}, ".event=user.updated"),
        ({"who": "kate@example.com", "at": "12:30", "Ключ": "знач-1"}, ".at=12:30.who=kate@example.com.Ключ=знач-1"),
        ({"n": 1, "t": True, "x": None, "f": 1.5}, ".f=1.5.n=1.t=true.x=null"),
        ({"n": "1", "t": "true", "x": "null", "f": "1.5"}, '.f="1.5".n="1".t="true".x="null"'),
        ({"name": "Kate Bush"}, r'.name="Kate\u0020Bush"'),
        ({"name": "a\tb\n\u2028"}, r'.name="a\tb\n\u2028"'),
        ({"name": ""}, '.name=""'),
        ({"a": "x.b=y"}, '.a="x.b=y"'),
        ({"a.b": "c"}, '."a.b"=c'),
        ({"data": {"name": "Kate", "id": 42}}, '.data={"id":42,"name":"Kate"}'),
        ({"tags": ["a", {"b": "c d"}]}, r'.tags=["a",{"b":"c\u0020d"}]'),
    ],
)
def test_the_pattern_in_the_name(pattern: dict[str, Any], text: str) -> None:
    assert default_queue(ON_EVENT, pattern) == PATH + text


def test_the_order_of_keys_does_not_count() -> None:
    pattern = {"a": {"x": 1, "y": {"p": 1, "q": 2}}, "b": 2, "c": [{"m": 1, "n": 2}]}
    other = {"c": [{"n": 2, "m": 1}], "b": 2, "a": {"y": {"q": 2, "p": 1}, "x": 1}}
    assert default_queue(ON_EVENT, pattern) == default_queue(ON_EVENT, other)


@pytest.mark.parametrize(
    ("code", "file", "queue"),
    [
        ("def on_event(event): pass", "/opt/a.b/c.d.py", "opt.a.b.c.d.on_event"),
        ("def on_event(event): pass", "/opt/my service/test.py", r"opt.my\u0020service.test.on_event"),
        ("def on_event(event): pass", "/opt/worker", "opt.worker.on_event"),
        ("def on_event(event): pass", "<stdin>", "service.on_event"),
        ("async def on_event(event): pass", FILE, PATH),
        ("class A:\n  def on_event(event): pass\non_event = A.on_event", FILE, "opt.service2.events.test.A.on_event"),
        (
            "def make():\n  def on_event(event): pass\n  return on_event\non_event = make()",
            FILE,
            "opt.service2.events.test.make.on_event",
        ),
    ],
)
def test_the_path_in_the_name(code: str, file: str, queue: str) -> None:
    assert default_queue(defined(code, file), {}) == queue


def test_a_file_that_is_named_relatively(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    relative = defined("def on_event(event): pass", "test.py")
    absolute = defined("def on_event(event): pass", str(tmp_path / "test.py"))
    assert default_queue(relative, {}) == default_queue(absolute, {})


def test_a_decorated_function_keeps_its_own_path() -> None:
    decorated = functools.wraps(ON_EVENT)(lambda event: ON_EVENT(event))
    assert default_queue(decorated, {}) == PATH


def test_what_has_no_path_needs_a_queue() -> None:
    with pytest.raises(TypeError, match="queue="):
        default_queue(functools.partial(ON_EVENT, None), {})


texts = st.one_of(st.sampled_from(["a", "b", "a=b", "a.b", "1", "true", 'a"', "a.b=a", "\\u0020", " "]), st.text())
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
patterns = st.dictionaries(texts, values, max_size=4)


@given(pattern=patterns)
def test_every_pattern_gives_a_legal_name(pattern: dict[str, Any]) -> None:
    queue = default_queue(ON_EVENT, pattern)
    assert is_name(queue.encode())
    assert not any(character.isspace() for character in queue)


@given(several=st.lists(patterns, min_size=2, max_size=4))
def test_two_patterns_have_two_names(several: list[dict[str, Any]]) -> None:
    for one, other in itertools.combinations(several, 2):
        same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
        assert (default_queue(ON_EVENT, one) == default_queue(ON_EVENT, other)) == same
