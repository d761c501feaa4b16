"""`_eval`: any text as an expression.

What must hold: it gives a value or is refused, and nothing else; it never reaches an attribute that begins with _, nor
one that is not in the table; what it makes stays within its budget, in printing too; and what comes out is one line
that UTF-8 and JSON can carry.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from mqks.broker.eval.safe_eval import evaluate
from mqks.broker.eval.views import EvalError, Table, View, to_json, to_text

MOST_STEPS, MOST_SIZE = 5_000, 20_000
SECRET = "the secret"


class Escaped(BaseException):
    """An expression has reached what it must not; nothing on its way may catch this."""


class Guarded(View):
    """Only what is in `fields` may be asked for, and by nobody else's code than Python's own."""

    fields: ClassVar[Mapping[str, str]] = {"name": "", "ready": "", "events": "", "queues": "", "odd": ""}
    methods: ClassVar[Mapping[str, str]] = {"qsize": "ready"}
    name = "q1"
    ready = 7
    events: ClassVar[list[str]] = ["e1", "e2", "é\ud800\n"]
    odd: ClassVar[list[Any]] = [b"bytes", 1.5, None, (1, (2,)), {"a": {1, 2}}, float("inf")]
    secret = SECRET
    _secret = SECRET

    def __getattribute__(self, name: str) -> object:
        if name not in ("fields", "methods", "__class__", *Guarded.fields):
            raise Escaped(name)
        return object.__getattribute__(self, name)

    @property
    def queues(self) -> Table:
        return Table({"q1": 1, "q2": 2}, lambda _: Guarded())


def letters(value: Any) -> int:
    """How large a result is when all of it is written out."""
    if isinstance(value, dict):
        return sum(letters(key) + letters(each) for key, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return 1 + sum(map(letters, value))
    return len(value) if isinstance(value, str) else 1


def evals(data: bytes) -> None:
    code = data.decode("utf-8", "replace")
    try:
        result = evaluate(code, {"state": Guarded(), "x": 3}, max_steps=MOST_STEPS, max_size=MOST_SIZE)
        text = to_text(result, max_size=MOST_SIZE)
        plain = to_json(result, max_size=MOST_SIZE)
    except EvalError as refused:
        assert str(refused).isprintable()
        return
    assert text.isprintable()
    assert len(text.encode()) <= 10 * MOST_SIZE
    assert letters(plain) <= 2 * MOST_SIZE
    said = text + json.dumps(plain, allow_nan=False)
    assert SECRET not in said
