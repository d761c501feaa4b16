from collections.abc import Callable, Sequence

NAMES: tuple[str, ...]

class Columns:
    rows: int
    why: str
    need: int
    def __init__(
        self,
        names: Sequence[str],
        *,
        start: int = ...,
        stop: int = ...,
        wants: Callable[[bytes], bool] | None = ...,
    ) -> None: ...
    @property
    def size(self) -> int: ...
    def feed(self, piece: bytes, position: int, stop: int = ...) -> int: ...
    def take(self) -> list[tuple[bytes, ...]]: ...
