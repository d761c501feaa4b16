"""Looks for what a target fails with: `python -m tests.fuzz --seconds=60 [--target=lines …] [--seed=1] [--keep]`.

The time is shared by the targets, each of which runs in a process of its own (run.py) and begins with what is kept for
it. What makes one fail is cut down to what is needed for that, and stands then in `found/`, as corpora have it: a line
for `regressions/`, when the reason is known and mended. With --keep inputs that were worth it go to `corpus/`.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.minimise import minimise
from tests.fuzz.run import core_tells
from tests.fuzz.table import TARGETS

FOUND = corpus.HERE / "found"
MOST_KEPT = 27_000  # bytes of a corpus file
SLOW = 20  # seconds for one input, on a busy machine with sanitizers
STATUS = re.compile(r"#(\d+)\t(\w+) +cov: (\d+) ft: (\d+) corp: (\d+).*exec/s: (\d+)")


def say(text: str) -> None:
    print(text, flush=True)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together (default: 60)")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="one of them; may be given again")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first target; the next ones count on (default: any)"
    )
    parser.add_argument("--keep", action="store_true", help="put what is worth it into the corpus")
    return parser.parse_args()


def main() -> int:
    asked = options()
    if core_tells() is None:
        say("NOT FOLLOWED: the compiled parts, which were not built for it; `make fuzz` does that")
    names = asked.target or list(TARGETS)
    seed = asked.seed or random.randrange(1, 1 << 31)
    failed = [
        name for at, name in enumerate(names) if not fuzz(name, asked.seconds / len(names), seed + at, asked.keep)
    ]
    say(f"failed: {', '.join(failed)}" if failed else "nothing was found")
    return 1 if failed else 0


def fuzz(name: str, seconds: float, seed: int, keep: bool) -> bool:
    say(f"{name}: {seconds:.0f} s, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="mqks-fuzz-") as folder:
        begin, new = Path(folder, "begin"), Path(folder, "new")
        begin.mkdir()
        new.mkdir()
        for at, data in enumerate(corpus.inputs(name)):
            (begin / f"{at:06}").write_bytes(data)
        words = Path(folder, "words")
        words.write_text("".join(f'"{quoted(word)}"\n' for word in TARGETS[name].words))
        good = run(name, folder, [f"-seed={seed}", f"-max_total_time={max(1, round(seconds))}", str(new), str(begin)])
        for path in Path(folder).glob("*-*"):
            tell(name, path)
        if keep:
            keep_new(name, new)
    return good


def quoted(word: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "_-= " else f"\\x{ord(letter):02x}" for letter in word)


def run(name: str, folder: str, more: list[str]) -> bool:
    """Did it end well? What it says of its progress is passed on."""
    told = [
        f"-max_len={TARGETS[name].longest}",
        f"-timeout={SLOW}",
        f"-dict={folder}/words",
        f"-artifact_prefix={folder}/",
        "-rss_limit_mb=4096",
        "-print_final_stats=0",
    ]
    command = [sys.executable, "-m", "tests.fuzz.run", name, *told, *more]
    last: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as fuzzer:
        assert fuzzer.stdout
        for line in fuzzer.stdout:
            if (status := STATUS.match(line)) is None:
                last = [*last[-60:], line.rstrip()]
            elif status[2] in ("pulse", "INITED", "DONE"):
                say(f"  {status[1]} inputs, {status[3]} places, {status[5]} kept, {status[6]} a second")
    if fuzzer.returncode:
        say("\n".join(last))
    return fuzzer.returncode == 0


def tell(name: str, path: Path) -> None:
    """Keep what it failed with: as short as that still does."""
    data = path.read_bytes()
    short = minimise(TARGETS[name].function, data)
    FOUND.mkdir(exist_ok=True)
    kept = FOUND / f"{name}-{path.name[:24]}.txt"
    kept.write_text(f"# of {len(data)} bytes, seen as {path.name.partition('-')[0]}\n{corpus.escape(short)}\n")
    say(f"  found: {os.path.relpath(kept)}\n  {corpus.escape(short)}")


def keep_new(name: str, new: Path) -> None:
    """What libFuzzer found to take ways of its own, beside what there was; the longest go, if it is too much."""
    path = corpus.KEPT / f"{name}.txt"
    kept = sorted({*corpus.read(path), *(each.read_bytes() for each in new.iterdir())}, key=len)
    while sum(len(corpus.escape(data)) + 1 for data in kept) > MOST_KEPT:
        kept.pop()
    corpus.write(path, kept)


if __name__ == "__main__":
    sys.exit(main())
