"""The queue that a function has by default: its full path and its pattern, so that all workers of one type share it.

Nothing but the function and the pattern goes into the name, and two patterns never give the same one.
"""

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_KEY = re.compile(r"[\w-]+")  # without dots, or {"a": "b", "c": "d"} and {"a": "b.c=d"} would be hard to tell apart
_VALUE = re.compile(r"[\w.:@/+-]+")
_NOT_IN_NAMES = re.compile(r"[\s\x00-\x1f\x7f]")


def default_queue(function: Callable[..., Any], pattern: dict[str, Any]) -> str:
    """`opt.service2.events.test.on_event.act=updated.obj=user`"""
    name = ".".join([_path(function), *(f"{_key(key)}={_value(pattern[key])}" for key in sorted(pattern))])
    return _NOT_IN_NAMES.sub(lambda found: f"\\u{ord(found[0]):04x}", name)


def _path(function: Callable[..., Any]) -> str:
    function = inspect.unwrap(function)  # a decorator may live in another file
    code = getattr(function, "__code__", None)
    if code is None:
        raise TypeError(f"{function!r} has no file that could name its queue: say @on(…, queue=…)")
    name = function.__qualname__.replace("<locals>.", "")
    if code.co_filename.startswith("<"):  # typed into a shell
        return f"{function.__module__}.{name}"
    file = Path(code.co_filename).absolute().with_suffix("")
    return ".".join([*file.parts[1:], name])


def _key(key: str) -> str:
    return key if _KEY.fullmatch(key) else _json(key)


def _value(value: Any) -> str:
    """A word as it is, anything else as JSON: so 1 and "1" differ."""
    return value if isinstance(value, str) and _VALUE.fullmatch(value) and not _is_json(value) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
