"""Do the tools find bugs? Plant each bug of planted_bugs.py in a copy of the broker, and run the tools on that copy.

The tool that is expected to catch a bug runs first, then the others. Each has a budget of cases. A bug that no tool
catches is a gap in the tools.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from verification.planted_bugs import BUGS, Bug

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
FAILED = re.compile(r"^FAILED (.*)", re.M)
RAISED = re.compile(r"^(\w+: .*)", re.M)
SHOWN = 100  # letters of a violation


@dataclass(frozen=True)
class Checker:
    """A tool that looks for violations: how it is run, what tells the number of cases up to the first one, and
    what tells the violation."""

    unit: str
    budget: int
    module: str
    flags: str  # with {count}, {seed} and {end}
    found: re.Pattern[str]
    reason: re.Pattern[str]


def _tool(name: str, unit: str, budget: int) -> Checker:
    found = re.compile(rf"^{name}: (\d+) {unit} .* [1-9]\d* violations", re.M)
    return Checker(unit, budget, "verification", f"{name} --count={{count}} --seed={{seed}}", found, FAILED)


def _simulation(budget: int, module: str) -> Checker:
    found = re.compile(r"(\d+) of .* [1-9]\d* failed")
    return Checker("seeds", budget, module, "--seeds={seed}:{end} --most=1", found, RAISED)


CHECKERS = {
    "sim": _simulation(3000, "tests.sim"),
    "client": _simulation(1500, "tests.client.simulation"),
    "power": _tool("power", "images", 300),
    "history": _tool("history", "faults", 150),
    "damage": _tool("damage", "damages", 100),
}


@dataclass(frozen=True)
class Caught:
    tool: str
    count: int
    unit: str
    violation: str


class Uncaught(Exception):
    """No tool finds a violation."""


def plant(bug: Bug, source: Path) -> None:
    """Change this copy of the source."""
    path = source / "mqks" / bug.file
    text = path.read_text()
    if (count := text.count(bug.old)) != 1:
        raise ValueError(
            f"{bug.name}: its text stands {count} times in {bug.file}, not once; bring verification/planted_bugs.py "
            f"up to date:\n{bug.old}"
        )
    path.write_text(text.replace(bug.old, bug.new))


def catch(bug: Bug, seed: int) -> Caught:
    """Which tool catches the bug, and after how many cases?"""
    with tempfile.TemporaryDirectory(prefix="mqks-mutation-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
        plant(bug, source)
        if bug.file.endswith(".pyx"):
            _build(Path(folder))
        environment = os.environ | {"PYTHONPATH": str(source), "TMPDIR": folder}
        _check_loaded(bug, source, environment)
        for name in sorted(CHECKERS, key=lambda name: name != bug.tool):
            if caught := _run(name, seed, environment):
                return caught
    raise Uncaught


def _build(folder: Path) -> None:
    """Compile what has changed in this copy."""
    shutil.copy2(ROOT / "setup.py", folder)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    if (ROOT / "build/cython").is_dir():
        shutil.copytree(ROOT / "build/cython", folder / "build/cython")
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the changed core cannot be built:\n{done.stderr}")


def _check_loaded(bug: Bug, source: Path, environment: dict[str, str]) -> None:
    module = "mqks." + bug.file.rpartition(".")[0].replace("/", ".")
    code = f"import {module} as module; print(module.__file__)"
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    if not Path(loaded.stdout.strip()).is_relative_to(source):
        raise AssertionError(f"{bug.name}: Python loads {loaded.stdout.strip()}, not the changed copy")


def _run(name: str, seed: int, environment: dict[str, str]) -> Caught | None:
    checker = CHECKERS[name]
    flags = checker.flags.format(count=checker.budget, seed=seed, end=seed + checker.budget)
    command = [sys.executable, "-m", checker.module, *flags.split(" ")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if found := checker.found.findall(done.stdout):
        violation = checker.reason.search(done.stdout)
        return Caught(name, int(found[-1]), checker.unit, violation[1][:SHOWN] if violation else "")
    if done.returncode:
        print(f"  {' '.join(command[1:])} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return None


def main(only: str | None, seed: int) -> int:
    bugs = [bug for bug in BUGS if only is None or only in bug.name]
    if not bugs:
        print(f"no planted bug has {only!r} in its name:\n" + "\n".join(bug.name for bug in BUGS))
        return 2
    print("| planted bug | promise | caught by | after | violation |\n|---|---|---|---|---|", flush=True)
    uncaught = 0
    begun = time.monotonic()
    for bug in bugs:
        try:
            caught = catch(bug, seed)
            after = f"{caught.tool} | {caught.count} {caught.unit} | {caught.violation}"
            print(f"| {bug.name} | {bug.promise} | {after} |", flush=True)
        except Uncaught:
            uncaught += 1
            print(f"| {bug.name} | {bug.promise} | nothing | | |", flush=True)
    print(
        f"{len(bugs)} planted bugs, {uncaught} not caught, seed {seed}, {time.monotonic() - begun:.0f} s; "
        "* was a violation of an earlier version"
    )
    return 1 if uncaught else 0
