"""A user's own pipeline: a file with functions that take the events and return rows, decorated with where those go.

All functions of the file run in one session. Each is a job with checkpoints of its own, so that one can be changed,
removed or fail without the others. What is wrong is told with the user's own line, and then none of them runs.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from mqks.pipeline.errors import PipelineError
from mqks.pipeline.place import OWN, Place
from mqks.pipeline.targets import Query, Target, noted
from mqks.pipeline.watching import Job, started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SINCE = "earliest"
UNSAFE = re.compile(r"[^\w.-]")  # in the name of a folder
HINT = (
    "decorate functions with @to_lake(table), @to_event(event) or @to_console(); `mqks pipeline init` writes an example"
)


class BadPipeline(PipelineError):
    """The file will not do; the text says where and why."""


@dataclass(frozen=True)
class Function:
    """One decorated function of a file."""

    file: Path
    name: str
    call: Callable[[DataFrame], DataFrame]
    targets: list[Target]

    @property
    def place(self) -> str:
        line = getattr(getattr(self.call, "__code__", None), "co_firstlineno", 0)
        return f"{self.file}, line {line}, {self.name}"

    def checkpoint(self, target: Target) -> str:
        """By names alone, so that a target keeps it when others come and go."""
        name = f"run-{self.file.stem}-{self.name}-{target.kind}" + (f"-{target.named}" if target.named else "")
        return UNSAFE.sub("_", name)

    def rows(self, events: DataFrame) -> DataFrame:
        """What the function makes of the events."""
        from pyspark.sql import DataFrame

        try:
            result = self.call(events)
        except Exception as error:
            raise BadPipeline(f"{where(error, self.file) or self.place}: {reason(error)}") from error
        if not isinstance(result, DataFrame):
            raise BadPipeline(
                f"{self.place}: it returns {type(result).__name__}, not a DataFrame; is a `return` missing?"
            )
        if not result.isStreaming:
            raise BadPipeline(f"{self.place}: what it returns is not made from the events that it is given")
        return result

    def start(
        self, spark: SparkSession, place: Place, options: Mapping[str, str | int], available_now: bool
    ) -> list[StreamingQuery]:
        """What it publishes does not come back to it."""
        published = [target.named for target in self.targets if target.kind == "event" and target.named]
        rows = self.rows(place.events(spark, stream=True, leave_out=[*OWN, *published], **options))

        def start(target: Target) -> StreamingQuery:
            job = self.checkpoint(target)
            try:
                writer = target.writer(rows, Query(place, job)).outputMode(target.mode).queryName(job)
                writer = writer.option("checkpointLocation", place.checkpoint(job))
                now = writer.trigger(availableNow=True) if available_now else None
                return (now or writer.trigger(processingTime=f"{target.every} seconds")).start()
            except Exception as error:
                raise BadPipeline(f"{self.place}, @to_{target.kind}: {reason(error)}") from error

        return started(partial(start, target) for target in self.targets)


def run(
    spark: SparkSession,
    place: Place,
    file: str | Path,
    *,
    since: str = SINCE,
    available_now: bool = False,
    options: Mapping[str, str | int] | None = None,
) -> list[Job]:
    """A job for each decorated function of the file. `since` is where one begins that has no checkpoint yet: earliest,
    latest or a position. With available_now they end when they have done what is there. `options` are the source's."""
    told = {"startingOffsets": since, **(options or {})}
    jobs: list[Job] = []
    with ExitStack() as stopping:
        for function in functions(Path(file)):
            jobs.append(Job(f"run {function.name}", partial(function.start, spark, place, told, available_now)))
            stopping.callback(jobs[-1].stop)
        stopping.pop_all()
    return jobs


# ── the file ──


def functions(file: Path) -> list[Function]:
    """Those that are decorated, in the order of the file."""
    module = load(file)
    found: dict[int, Function] = {}
    for name, call in vars(module).items():
        if noted(call):
            found.setdefault(id(call), Function(file, name, call, noted(call)))
    if not found:
        raise BadPipeline(f"{file}: no function says where its rows go: {HINT}")
    writers: dict[str, str] = {}
    for function in found.values():
        for target in function.targets:
            # A table has one writer; other targets may have several functions, each once.
            writes = target.named if target.kind == "lake" else function.checkpoint(target)
            if writes in writers:
                what = f"the table {writes!r}" if target.kind == "lake" else f"@to_{target.kind}"
                raise BadPipeline(f"{function.place}: {what} is written by {writers[writes]} already")
            writers[writes] = function.name
    return list(found.values())


def check(file: Path) -> None:
    """What can be told before Spark runs: is it there, and is it Python? More cannot: a file may use Spark at once."""
    if not file.is_file():
        raise BadPipeline(f"{file}: there is no such file; `mqks pipeline init {file}` writes one")
    try:
        compile(file.read_bytes(), str(file), "exec")
    except (SyntaxError, ValueError) as error:
        raise BadPipeline(f"{where(error, file) or file}: {reason(error)}") from error


def load(file: Path) -> ModuleType:
    from pyspark.cloudpickle import register_pickle_by_value

    check(file)
    name = f"mqks_run_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise BadPipeline(f"{file}: a pipeline is a file of Python, FILE.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # no worker could import it by its name
    sys.path.insert(0, str(file.resolve().parent))  # as `python FILE.py` does: it may import what lies beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadPipeline(f"{where(error, file) or file}: {reason(error)}") from error
    finally:
        sys.path.pop(0)
    return module


def where(error: BaseException, file: Path) -> str | None:
    """The user's own line, the innermost one."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}, line {error.lineno}"
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_code.co_filename == str(file):
            scope = frame.f_code.co_name
            return f"{file}, line {line}" + (f", {scope}" if scope != "<module>" else "")
    return None


def reason(error: BaseException) -> str:
    """One line: Spark's errors go on with a plan."""
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    plain = isinstance(error, PipelineError)
    return text if plain else f"{type(error).__name__}: {text}"
