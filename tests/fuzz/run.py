"""One target under atheris, in a process of its own: `python -m tests.fuzz.run TARGET [libFuzzer's options] [folders]`.

Coverage is that of our Python modules, and where the compiled parts were built for it (`make fuzz`), theirs too.
"""

import ctypes
import importlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

LIBFUZZER = "atheris.core_with_libfuzzer"


def core_tells() -> Callable[[bytes], object] | None:
    """What makes the compiled parts tell libFuzzer of their ways, if coverage.c was loaded."""
    return getattr(ctypes.CDLL(None), "mqks_tell", None)


def main() -> None:
    import atheris  # type: ignore[import-untyped]

    if tell := core_tells():
        tell(os.fsencode(str(importlib.import_module(LIBFUZZER).__file__)))
    with atheris.instrument_imports(include=["mqks"]):
        from tests.fuzz.table import TARGETS
    logging.getLogger().addHandler(logging.NullHandler())
    program, name, *options = sys.argv
    atheris.Setup([program, *options], TARGETS[name].function)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
