"""docs/GUARANTEES.md names the test behind each promise: all of them must exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "GUARANTEES.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def promises() -> list[tuple[str, str]]:
    """Each row of the table: the promise, and what proves it."""
    rows = [line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert all(len(row) == 3 for row in rows)
    return [(promise, proof) for _, promise, proof in rows[1:]]


def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_promise_has_a_test_that_exists() -> None:
    found = promises()
    assert len(found) > 15
    for promise, proof in found:
        named = TEST.findall(proof)
        assert named, f"nothing proves: {promise}"
        assert TEST.sub("", proof).strip(" ,|") == "", f"not the name of a test: {proof}"
        for file, test in named:
            assert test in functions_in(ROOT / file), f"{file} has no {test}"


def test_all_promises_are_there() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert [row[2] for row in rows if row[2].isdigit()] == list("12345678")
