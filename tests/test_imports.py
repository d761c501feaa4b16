"""Who may import whom: a table, so that the layers stay layers.

Read from the text of the sources (ast for Python, lines for Cython): nothing is imported to find out.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

# Package → those of our own packages that it may import, besides itself. `mqks` is what stands in the root and is for
# all (names, dtids, the version); `mqks.__init__` is the front door, which offers users what is in `mqks.client`.
MAY_IMPORT: dict[str, set[str]] = {
    "mqks": set(),
    "mqks.__init__": {"mqks.client"},
    "mqks.core": set(),
    "mqks.broker": {"mqks", "mqks.core", "mqks.journal"},
    "mqks.web": {"mqks", "mqks.core", "mqks.journal", "mqks.broker", "mqks.client"},
    "mqks.server": {"mqks", "mqks.core", "mqks.journal", "mqks.broker", "mqks.web"},
    "mqks.journal": {"mqks", "mqks.core"},
    "mqks.client": {"mqks"},
    "mqks.testing": {"mqks", "mqks.server"},
    "mqks.pipeline": {"mqks", "mqks.__init__", "mqks.journal", "mqks.client"},
    "mqks.cli": {"mqks", "mqks.__init__", "mqks.server", "mqks.journal", "mqks.client", "mqks.pipeline"},
    "pyspark_mqks": {"mqks", "mqks.__init__", "mqks.journal", "mqks.client"},
    "sevx": {"mqks", "mqks.client"},
}

CYTHON_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?c?import[ \t]+(\([^)]*\)|[^#\n;]+)", re.MULTILINE)
INCLUDED = {".py", ".pyi", ".pyx", ".pxd"}


def sources() -> list[Path]:
    return sorted(path for path in SRC.rglob("*") if path.suffix in INCLUDED)


def package(module: str) -> str | None:
    """`mqks.core.tail` → `mqks.core`; a name or module in the root → `mqks`; else not ours."""
    first, _, rest = module.partition(".")
    if not (SRC / first).is_dir():
        return None
    second = rest.partition(".")[0]
    return f"{first}.{second}" if second and (SRC / first / second).is_dir() else first


def package_of(path: Path) -> str:
    if path == SRC / "mqks" / "__init__.py":
        return "mqks.__init__"
    found = package(".".join(path.relative_to(SRC).parent.parts))
    assert found, f"{path} is in no package"
    return found


def absolute(path: Path, level: int, module: str) -> str:
    """The module that `from ..module import` in the file means."""
    parents = path.relative_to(SRC).parent.parts
    return ".".join((*parents[: len(parents) - level + 1], *filter(None, [module]))) if level else module


def python_imports(path: Path, text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute(path, node.level, node.module or "")
            yield from (f"{module}.{alias.name}" for alias in node.names)


def cython_imports(path: Path, text: str) -> Iterator[str]:
    for origin, names in CYTHON_IMPORT.findall(text):
        listed = [name.split()[0] for name in re.sub(r"[()\\]|#.*", " ", names).split(",") if name.strip()]
        dots = len(origin) - len(origin.lstrip("."))
        module = absolute(path, dots, origin.lstrip("."))
        yield from (f"{module}.{name}" if origin else name for name in listed)


def imported(path: Path, text: str) -> set[str]:
    """Our own packages that the source imports, its own one left out."""
    found = python_imports if path.suffix in {".py", ".pyi"} else cython_imports
    return {name for module in found(path, text) if (name := package(module))} - {package_of(path)}


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SRC)))
def test_imports_only_what_it_may(path: Path) -> None:
    own = package_of(path)
    assert own in MAY_IMPORT, f"{own} is new: say in MAY_IMPORT what it may import"
    extra = imported(path, path.read_text(encoding="utf-8")) - MAY_IMPORT[own]
    assert not extra, f"{own} may not import {', '.join(sorted(extra))}"


def test_no_circles() -> None:
    left = dict(MAY_IMPORT)
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    assert not left, f"these import each other: {sorted(left)}"


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("mqks/cli/x.py", "import mqks.server.config, os", {"mqks.server"}),
        ("mqks/cli/x.py", "from mqks import core, __version__", {"mqks", "mqks.core"}),
        ("mqks/cli/x.py", "from ..server import config", {"mqks.server"}),
        ("mqks/cli/x.py", "from .. import server", {"mqks.server"}),
        ("mqks/cli/x.py", "from . import logs\nfrom .logs import y", set()),
        ("mqks/cli/x.py", "def f() -> None:\n    from mqks.server.config import Config", {"mqks.server"}),
        ("mqks/cli/x.py", "import os, mqksx.server\nfrom pathlib import Path", set()),
        ("mqks/x.py", "from .server import config", {"mqks.server"}),
        ("mqks/core/x.pyx", "from mqks.server.config import Config", {"mqks.server"}),
        ("mqks/core/x.pyx", "cimport mqks.server as s  # why", {"mqks.server"}),
        ("mqks/core/x.pyx", "    from ..server cimport (a,\n    b)", {"mqks.server"}),
        ("mqks/core/x.pxd", "from .. cimport (\n    server,  # why\n)", {"mqks.server"}),
        (
            "mqks/core/x.pyx",
            "from libc.string cimport memcpy\nfrom .tail cimport Tail\n# import mqks.server",
            set(),
        ),
    ],
)
def test_the_finder_finds(file: str, text: str, found: set[str]) -> None:
    assert imported(SRC / file, text) == found
