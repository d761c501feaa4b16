"""Files of the lake, wherever it is: only through Hadoop's FileSystem, so that any URL works that Spark takes."""

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

    def exists(self, path: str) -> bool:
        found, system = self._find(path)
        return bool(system.exists(found))

    def size(self, path: str) -> int:
        """Bytes of a file, or of all that is in a folder."""
        found, system = self._find(path)
        return int(system.getContentSummary(found).getLength())

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

    def write(self, path: str, text: str) -> None:
        """Whoever reads it finds the old text or the new one, also if this process is killed meanwhile."""
        found, system = self._find(path)
        if system.getUri().getScheme() == "file":
            aside = self._put(system, f"{path}.new", text)
            if not system.rename(aside, found):  # which replaces it, as POSIX has it
                raise OSError(f"cannot write {path}")
            return
        try:
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(system.getUri(), self._conf)
        except Exception:  # an object store: there a file appears, whole, when it is closed
            self._put(system, path, text)
            return
        aside = self._put(system, f"{path}.new", text)
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._jvm.java.lang.reflect.Array.newInstance(rename.OVERWRITE.getClass(), 1)
        options[0] = rename.OVERWRITE
        context.rename(aside, found, options)

    def _put(self, system: Any, path: str, text: str) -> Any:
        found = self._jvm.org.apache.hadoop.fs.Path(path)
        stream = system.create(found, True)
        try:
            stream.write(bytearray(text, "utf-8"))
        finally:
            stream.close()
        return found

    def _find(self, path: str) -> tuple[Any, Any]:
        found = self._jvm.org.apache.hadoop.fs.Path(path)
        system = found.getFileSystem(self._conf)
        if system.getUri().getScheme() == "file":
            # Without the checksum files beside each file: a kill between the two renames would leave a pair that does
            # not fit, and a marker that nobody can read.
            system = system.getRawFileSystem()
        return found, system
