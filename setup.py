"""Builds what is compiled: the core, and the client's part for each message. All else is in pyproject.toml.

MQKS_SANITIZE=1 builds it with AddressSanitizer and UBSan, for `make test-asan`; MQKS_FUZZ=1 besides so that a fuzzer
is told which ways it takes (tests/fuzz/coverage.c), for `make fuzz`.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

fuzz = os.environ.get("MQKS_FUZZ") == "1"
sanitize = fuzz or os.environ.get("MQKS_SANITIZE") == "1"
jobs = os.cpu_count() or 1
flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"] if sanitize else ["-O3", "-g0"]
link = ["-fsanitize=address,undefined"] if sanitize else []
if fuzz:
    flags.append("-fsanitize-coverage=trace-pc,trace-cmp")

if __name__ == "__main__":  # Cython may start processes that import this file
    setup(
        ext_modules=cythonize(
            [
                Extension(
                    f"mqks.{source.parent.name}.{source.stem}",
                    [str(source)],
                    extra_compile_args=flags,
                    extra_link_args=link,
                )
                for source in sorted(Path("src/mqks").glob("*/*.pyx"))
            ],
            language_level=3,
            build_dir="build/cython",
            nthreads=jobs,
            compiler_directives={
                "boundscheck": False,
                "wraparound": False,
                "initializedcheck": False,
                "cdivision": True,
                "freethreading_compatible": False,
            },
        ),
        options={"build_ext": {"parallel": jobs}},
    )
