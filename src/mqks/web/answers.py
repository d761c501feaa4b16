"""JSON as it goes out, for answers and for streams: nothing else here makes any."""

import json
from typing import Any

from starlette.responses import JSONResponse


def dumps(value: Any) -> bytes:
    """Half of a surrogate pair, which JSON may hold and UTF-8 may not, goes out as the escape that it came as."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


class Json(JSONResponse):
    def render(self, content: Any) -> bytes:
        return dumps(content)
