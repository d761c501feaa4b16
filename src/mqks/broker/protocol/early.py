"""The requests of the early spec, as its table shows them. A client that sends no others gets no --update."""

import re

_NAME = rb"(?!--|\{)[^ ]++"
# ping and auth do not count, whatever their form.
_FORMS: dict[bytes, bytes] = {
    b"ping": rb".*",
    b"auth": rb".*",
    b"publish": rb"(?!--).*",
    b"subscribe": rb" *+NAME(?: ++NAME)++ *",
    b"consume": rb" *+NAME(?: ++--manual-ack)? *",
    b"delete_consumer": rb" *+NAME *",
    b"delete_queue": rb" *+NAME(?: ++--when-unused(?:=[^ ]++)?)? *",
    b"ack": rb" *+NAME ++(?:NAME|--all) *",
    b"reject": rb" *+NAME ++(?:NAME|--all) *",
}
_EARLY = {action: re.compile(form.replace(b"NAME", _NAME), re.DOTALL) for action, form in _FORMS.items()}


def is_early(action: bytes, data: bytes) -> bool:
    form = _EARLY.get(action)
    return form is not None and form.fullmatch(data) is not None
