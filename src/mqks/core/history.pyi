"""The types of history.pyx."""

from collections.abc import Callable

def answers(
    data: bytes,
    position: int,
    prefix: bytes,
    start: int,
    stop: int,
    until: bytes,
    limit: int,
    room: int,
    wants: Callable[[bytes], bool] | None,
    name_of: Callable[[bytes], bytes],
) -> tuple[bytes, int, int, bool]: ...
