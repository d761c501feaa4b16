"""Asks whether anything that is pinned is known to be vulnerable: `python -m tests.audit constraints.txt`, a part of
`make lint`.

A finding is an error. Where nobody can be asked (no network, an index that knows no advisories) that is said loudly and
is none: a machine without network shall be able to build and test.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMAND = ("--no-deps", "--disable-pip", "--progress-spinner=off", "--timeout=3", "--format=json")
PATIENCE = 60  # seconds for all of them
MOST_NAMED = 5  # packages

ACCEPTED: Mapping[str, str] = {}  # advisory → why it does not concern us


def report(pinned: Path) -> dict[str, Any] | str:
    """What pip-audit tells; or why it could not ask."""
    command = [sys.executable, "-m", "pip_audit", *COMMAND, f"--requirement={pinned}"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        told: dict[str, Any] = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        return f"no answer within {PATIENCE} s"
    except ValueError:
        return ended.stderr.strip().rpartition("\n")[2][:120]
    return told


def judge(told: dict[str, Any] | str, pinned: int, accepted: Mapping[str, str] = ACCEPTED) -> tuple[list[str], bool]:
    """What to say of so many pinned packages, and whether all is well."""
    if isinstance(told, str):
        return [f"NOT AUDITED: {pinned} of {pinned} pinned packages: {told}"], True
    packages = told["dependencies"]
    found = [
        f"{package['name']} {package['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'none'}"
        for package in packages
        for flaw in package.get("vulns", ())
        if flaw["id"] not in accepted
    ]
    unknown = [package["name"] for package in packages if "skip_reason" in package]
    if not unknown:
        return [*found, f"{len(packages)} pinned packages were audited"], not found
    named = ", ".join(unknown) if len(unknown) <= MOST_NAMED else "run this with an index that has them"
    missed = f"{len(unknown)} of {len(packages)} pinned packages, of which the index knows no advisories"
    return [*found, f"NOT AUDITED: {missed}: {named}"], not found


def main(pinned: Path) -> int:
    count = sum("==" in line.partition("#")[0] for line in pinned.read_text().splitlines())
    said, good = judge(report(pinned), count)
    print("\n".join(said))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
