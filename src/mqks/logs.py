"""What a line of the log is made of: a text and the fields in it, given once.

    log.warning(Entry("client {client} did not take {bytes} bytes in time", client=peer, bytes=5))

As text the fields stand in their places, and what is not printable in them is escaped, whoever it came from: it would
begin a line or turn the direction of one. As JSON each one has a key of its own. The template tells lines of one kind
from those of another. Nothing is touched here: who shows lines, and where, is `mqks.cli.logs`' business.
"""


def printable(text: str) -> str:
    """Nothing in it begins a line, turns the direction of one or reaches a terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class Entry:
    """Give it to a logger as the message. Write `{reason!a}` for what clients said: it is quoted then, and ASCII."""

    __slots__ = ("fields", "template")

    def __init__(self, template: str, /, **fields: object) -> None:
        self.template = template
        self.fields = {
            name: value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
            for name, value in fields.items()
        }

    def __str__(self) -> str:
        return printable(self.template.format(**self.fields))
