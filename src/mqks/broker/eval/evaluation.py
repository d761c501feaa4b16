"""`_eval`: the value of an expression over the broker, as text or as JSON. It only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqks.broker.errors import BadRequest
from mqks.broker.eval.original_names import WORKERS, ConfigView, OriginalStateView
from mqks.broker.eval.safe_eval import evaluate
from mqks.broker.eval.views import EvalError, to_json, to_text

if TYPE_CHECKING:
    from mqks.broker.broker import Broker


def _evaluate(broker: Broker, code: str) -> object:
    if not code.strip():
        raise BadRequest("expected an expression")
    try:
        return evaluate(code, {"state": OriginalStateView(broker), "config": ConfigView(broker), "WORKERS": WORKERS})
    except EvalError as error:
        raise BadRequest("the expression was refused", str(error)) from None


def evaluate_to_text(broker: Broker, code: bytes) -> bytes:
    try:
        source = code.decode()
    except UnicodeDecodeError:
        raise BadRequest("the expression is not UTF-8") from None
    result = _evaluate(broker, source)
    try:
        return to_text(result).encode("utf-8", "replace")
    except EvalError as error:
        raise BadRequest("the result was refused", str(error)) from None


def evaluate_to_json(broker: Broker, code: str) -> object:
    result = _evaluate(broker, code)
    try:
        return to_json(result)
    except EvalError as error:
        raise BadRequest("the result was refused", str(error)) from None
