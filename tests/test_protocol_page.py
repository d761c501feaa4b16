"""docs/PROTOCOL.md and the dialogues may not drift apart: what the page shows is what the tests play.

python -m tests.test_protocol_page      writes the dialogues anew into the page
"""

import re
from collections.abc import Mapping
from pathlib import Path

from mqks.broker.eval import inspection, original_names
from tests import dialogue

PAGE = Path(__file__).parent.parent / "docs" / "PROTOCOL.md"
BLOCK = re.compile(r"^```dialogue (?P<name>\S+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
FIELDS = re.compile(r"^<!-- fields of (?P<view>\w+) -->$.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
TABLES: dict[str, Mapping[str, str]] = {
    "StateView": inspection.StateView.fields,
    "QueueView": inspection.QueueView.fields,
    "ConsumerView": inspection.ConsumerView.fields,
    "ClientView": inspection.ClientView.fields,
    "NAMES": original_names.NAMES,
    "ConfigView": original_names.ConfigView.fields,
}
REPAIR = "run `python -m tests.test_protocol_page`"
TABLE = "# Every sentence and its dialogue"
ORIGINS = {"MQKS", "early", "SEVX", "ours"}


def shown_dialogue(name: str) -> str:
    return f"```dialogue {name}\n{dialogue.load(name).body}\n```"


def shown_fields(view: str) -> str:
    table = [("Field", "What it is"), ("---", "---"), *((f"`{name}`", what) for name, what in TABLES[view].items())]
    lines = "\n".join(f"| {name} | {what} |" for name, what in table)
    return f"<!-- fields of {view} -->\n\n{lines}\n\n<!-- end -->"


def filled(page: str) -> str:
    """The page with every dialogue as its file has it, and every field as the broker has it."""
    page = BLOCK.sub(lambda block: shown_dialogue(block["name"]), page)
    return FIELDS.sub(lambda fields: shown_fields(fields["view"]), page)


def rows(page: str) -> list[tuple[str, str, list[str]]]:
    """The table: where a sentence comes from, the sentence, its dialogues."""
    lines = page.split(TABLE)[1].split("\n")
    cells = [[cell.strip() for cell in line.split(" | ")] for line in lines if line.startswith("| ")]
    return [(row[0].strip("| "), row[1], re.findall(r"`([^`]+)`", row[2])) for row in cells[2:]]


def test_the_page_shows_the_dialogues_as_they_are_played() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("```dialogue ") == len(BLOCK.findall(page))
    for block in BLOCK.finditer(page):
        assert block[0] == shown_dialogue(block["name"]), f"{block['name']} differs: {REPAIR}"


def test_the_page_shows_the_fields_that_eval_has() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {fields["view"] for fields in FIELDS.finditer(page)} == TABLES.keys()
    for fields in FIELDS.finditer(page):
        assert fields[0] == shown_fields(fields["view"]), f"{fields['view']} differs: {REPAIR}"


def test_no_dialogue_is_shown_twice() -> None:
    shown = [block["name"] for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]
    assert len(shown) == len(set(shown))


def test_the_table_names_every_dialogue_and_no_other() -> None:
    named = {name for _, _, names in rows(PAGE.read_text(encoding="utf-8")) for name in names}
    assert named == set(dialogue.names())


def test_every_sentence_has_an_origin_and_a_dialogue() -> None:
    for origin, sentence, names in rows(PAGE.read_text(encoding="utf-8")):
        assert set(origin.split(", ")) <= ORIGINS, sentence
        assert names, f"no dialogue for: {sentence}"


def test_every_action_and_flag_has_its_place_on_the_page() -> None:
    """Each action, and each flag that changes what it does, is in a form that the text explains."""
    page = PAGE.read_text(encoding="utf-8")
    text = BLOCK.sub("", page.split(TABLE)[0])
    steps = [step.text for name in dialogue.names() for step in dialogue.load(name).steps if step.kind == ">"]
    actions = {
        "publish",
        "consume",
        "rebind",
        "subscribe",
        "ack",
        "reject",
        "delete_consumer",
        "delete_queue",
    }
    actions |= {"auth", "ping", "_eval", "stats", "send", "recv", "delete_receiver", "_ping"}
    used = {word for step in steps for word in step.split(" ")[1:2]}
    assert actions <= used
    for action in actions:
        assert re.search(rf"_id\}} {action}\b", text), f"no form of {action}"
    for flag in (
        "add",
        "manual-ack",
        "prefetch",
        "delete-queue-when-unused",
        "remove",
        "remove-mask",
        "worker",
        "once",
    ):
        assert f"[--{flag}" in text, f"no form with --{flag}"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
