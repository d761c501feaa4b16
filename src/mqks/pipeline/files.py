"""Spark's files in the lake, such as checkpoints, wherever it is: by Hadoop's FileSystem, so that any URL works that
Spark takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LISTED = re.compile(r"path=\S.*/([^/\n]+); isDirectory=")
HIDDEN = ("_", ".")  # names that begin so are for Spark and for us, not for readers of a table


class Files:
    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()

    def names(self, folder: str) -> list[str]:
        """Of what is in the folder, in order; none where there is no folder."""
        path, system = self._find(folder)
        if not system.exists(path):
            return []
        # Joined over there: a call for each of thousands of files would take seconds.
        util = self._jvm.org.apache.hadoop.util
        found = util.functional.RemoteIterators.toList(system.listStatusIterator(path))
        return sorted(LISTED.findall(util.StringUtils.join("\n", found)))

    def delete(self, path: str) -> None:
        """A file or a folder with all that is in it; nothing where there is none."""
        found, system = self._find(path)
        system.delete(found, True)

    def read(self, path: str) -> str | None:
        """None where there is no such file."""
        found, system = self._find(path)
        if not system.exists(found):
            return None
        stream = system.open(found)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _find(self, path: str) -> tuple[Any, Any]:
        found = self._jvm.org.apache.hadoop.fs.Path(path)
        system = found.getFileSystem(self._conf)
        if system.getUri().getScheme() == "file":
            # Without the checksum files beside each file: after a kill the two may not fit.
            system = system.getRawFileSystem()
        return found, system
