"""Each log call in src fills its template: what is logged has no `{name}` left in it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

SRC = Path(__file__).parent.parent / "src"
FILES = {str(path.relative_to(SRC)): path for path in sorted(SRC.rglob("*.py"))}
LOGS = {"debug", "info", "warning", "error", "exception", "critical"}
KEYS_OF_JSON = {"time", "level", "logger", "message", "exception"}  # a field of that name would replace them
PLACEHOLDER = re.compile(r"\{\w*[!:}]")


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, ast.AST]]:
    """Each call with the innermost function around it, or the module."""

    def visit(node: ast.AST, scope: ast.AST) -> Iterator[tuple[ast.Call, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call):
                yield child, scope
            inner = child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else scope
            yield from visit(child, inner)

    return visit(tree, tree)


def texts(expression: ast.AST) -> Iterator[str]:
    """All literals in an expression; of an f-string none, since it is filled already."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        yield expression.value
    elif not isinstance(expression, ast.JoinedStr | ast.Call):
        for child in ast.iter_child_nodes(expression):
            yield from texts(child)


def assigned(name: str, scope: ast.AST, before: int) -> list[ast.expr]:
    """The last value that a name gets before a line, and what is added to it there."""
    values: list[ast.expr] = []
    nodes = [node for node in ast.walk(scope) if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)]
    for node in sorted(nodes, key=lambda node: node.lineno):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value and node.lineno < before and any(isinstance(to, ast.Name) and to.id == name for to in targets):
            values = [*values, node.value] if isinstance(node, ast.AugAssign) else [node.value]
    return values


def constants(module: ast.Module) -> ast.Module:
    return ast.Module([node for node in module.body if isinstance(node, ast.Assign)], [])


def templates(call: ast.Call, scope: ast.AST, module: ast.Module) -> Iterator[str]:
    """The literals that the template of a call is made of, also by way of variables."""
    template = call.args[0]
    yield from texts(template)
    for node in ast.walk(template):
        if isinstance(node, ast.Name):
            for value in assigned(node.id, scope, call.lineno) or assigned(node.id, constants(module), call.lineno):
                yield from texts(value)


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


def faults(source: str) -> list[str]:
    module = ast.parse(source)
    found = []
    for call, scope in calls(module):
        if not call.args:
            continue
        if isinstance(call.func, ast.Name) and call.func.id == "Entry":
            fields = {keyword.arg for keyword in call.keywords}
            if None not in fields:  # with `**fields` they are known only when it runs
                known = list(templates(call, scope, module))
                if not known or set().union(*map(placeholders, known)) - fields:
                    found.append(f"line {call.lineno} does not fill {known}")
            if taken := fields & KEYS_OF_JSON:
                found.append(f"line {call.lineno} has fields that JSON has already: {taken}")
        elif isinstance(call.func, ast.Attribute) and call.func.attr in LOGS:
            value = call.func.value
            if isinstance(value, ast.Name) and value.id in ("log", "logger", "logging"):
                for template in texts(call.args[0]):
                    if PLACEHOLDER.search(template):
                        found.append(f"line {call.lineno} logs {template!r} without an Entry")
    return found


def test_every_call_fills_its_template() -> None:
    found = {name: faults(path.read_text()) for name, path in FILES.items()}
    assert {name: those for name, those in found.items() if those} == {}


@pytest.mark.parametrize(
    "source",
    [
        'log.info(Entry("a {b}"))',
        'log.info(Entry("a {b!a}", c=1))',
        'def f():\n    said = "a {b}"\n    said += " {c:,}"\n    log.info(Entry(said, b=1))',
        'SAID = "a {b}"\ndef f():\n    log.info(Entry(SAID))',
        'log.info(Entry("a" + " {b}"))',
        'log.info(Entry("a", message=1))',
        'log.info("a {b}")',
    ],
)
def test_a_fault_is_found(source: str) -> None:
    assert len(faults(source)) == 1


def test_what_is_filled_is_no_fault() -> None:
    assert faults('def f(more):\n    log.info(Entry("{a} {{b}} {c:,}" + f"{more}", a=1, c=2))\nlog.info("%s", 1)') == []
