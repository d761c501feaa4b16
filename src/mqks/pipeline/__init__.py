"""The data pipeline on Spark, to import and compose: `mqks pipeline` runs these very functions.

Each job is a function in the module of its name: `from mqks.pipeline.archive import archive`. What all of them share is
here, imported when it is named, so that Spark is not before it is wanted.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqks.pipeline.place import Place
    from mqks.pipeline.targets import to_console, to_event, to_lake
    from mqks.pipeline.watching import watch

_HOMES = {"Place": "place", "to_console": "targets", "to_event": "targets", "to_lake": "targets", "watch": "watching"}

__all__ = ["Place", "to_console", "to_event", "to_lake", "watch"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"mqks.pipeline.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'mqks.pipeline' has no attribute {name!r}")
