"""Errors of a batch, as Spark can read them."""

from typing import Any

import pytest

from mqks.pipeline.batches import LONGEST, BatchFailed, each


class Py4JJavaError(Exception):
    pass


def test_an_error_without_its_frames() -> None:
    frames = "".join(f"\n\tat java.lang.Thread.run{n}(Thread.java:{n})" for n in range(1000))
    said = "An error occurred while calling o1.save.\n: java.lang.InterruptedException"
    text = f"{said}{frames}\nCaused by: it\n\t... 9 more"

    def write(batch: Any, number: int) -> None:
        assert (batch, number) == ("batch", 7)
        raise Py4JJavaError(text)

    with pytest.raises(BatchFailed) as caught:
        each(write)("batch", 7)  # type: ignore[arg-type]
    assert str(caught.value).endswith(f"Py4JJavaError: {said}\nCaused by: it")
    assert caught.value.__suppress_context__


def test_a_long_error_is_cut() -> None:
    def write(_batch: Any, _number: int) -> None:
        raise ValueError("x" * 10 * LONGEST)

    with pytest.raises(BatchFailed, match=r"^builtins.ValueError: x{1000}$"):
        each(write)("batch", 7)  # type: ignore[arg-type]
