"""The pages for users of the clients say what is true: their Python runs, and their tables have what the code has."""

import dataclasses
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mqks
from mqks.client import errors, functions
from mqks.client.options import Options, OptionWords
from mqks.client.outbox import CREATE, Outbox
from mqks.testing import Broker

DOCS = Path(__file__).parents[2] / "docs"
CLIENTS = (DOCS / "CLIENTS.md").read_text(encoding="utf-8")
OUTBOX = (DOCS / "OUTBOX.md").read_text(encoding="utf-8")
README = (DOCS.parent / "README.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)

ORIGINAL = (  # the functions that the first client had
    *("connect", "publish", "consume", "rebind", "ack", "ack_all", "reject", "reject_all"),
    *("delete_consumer", "delete_queue", "ping", "_eval", "get_worker", "disconnect"),
)

BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page, text in (("readme", README), ("clients", CLIENTS), ("outbox", OUTBOX))
    for number, block in enumerate(PYTHON.findall(text), 1)
]


# A block in a process of its own, with `mq` where it makes none: of the asyncio client if it awaits something.
RUN = """
import ast, asyncio, inspect, sys
import mqks

code = compile(sys.argv[1], "<block>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

async def awaited():
    async with mqks.connect() as mq:
        await eval(code, {"mqks": mqks, "mq": mq})

if code.co_flags & inspect.CO_COROUTINE:
    asyncio.run(awaited())
else:
    with mqks.connect() as mq:
        exec(code, {"mqks": mqks, "mq": mq})
"""


@pytest.mark.parametrize("block", BLOCKS)
def test_what_a_page_shows_works(block: str, durable: Broker, tmp_path: Path) -> None:
    """What it prints stands in the comments beside."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, block],
        cwd=tmp_path,
        env={**os.environ, "MQKS_URL": durable.url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == PRINTED.findall(block)


def table(page: str, title: str) -> dict[str, str]:
    """First column → second column of the first table after the title."""
    part = re.split(r"^##+ ", page.split(f"## {title}\n")[1], flags=re.MULTILINE)[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in part.splitlines() if line[:1] == "|"]
    return {row[0].strip("`| "): row[1] for row in rows[2:]}


def test_the_options_are_those_that_there_are() -> None:
    fields = dataclasses.fields(Options)
    shown = {field.name: "nothing" if callable(field.default) else f"`{quoted(field.default)}`" for field in fields}
    assert table(CLIENTS, "Options") == shown
    assert OptionWords.__annotations__.keys() == shown.keys()


def test_the_options_of_the_outbox_are_those_that_there_are() -> None:
    parameters = list(inspect.signature(Outbox).parameters.values())
    assert table(OUTBOX, "Options") == {each.name: f"`{quoted(each.default)}`" for each in parameters}


def quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def test_every_error_is_in_the_table() -> None:
    ours = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert table(CLIENTS, "Errors").keys() == ours | {"TimeoutError", "ValueError"}


def test_every_verb_and_every_function_is_on_the_page() -> None:
    verbs = {name for kind in (mqks.Client, mqks.Consumer, mqks.Message) for name in vars(kind) if name[0] != "_"}
    missing = {name for name in verbs - {"address", "settle"} if not re.search(rf"\b{name}\b", CLIENTS)}
    assert not missing
    for name in ORIGINAL:
        assert callable(getattr(functions, name)) and f"`{name}`" in CLIENTS


def test_the_table_of_the_outbox_is_shown_as_it_is_made() -> None:
    assert f"```sql\n{CREATE.format(table='mqks_outbox')}\n```" in OUTBOX


def test_links_lead_somewhere() -> None:
    for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md", DOCS.parent / "examples" / "README.md"):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (page.parent / link).exists(), link
