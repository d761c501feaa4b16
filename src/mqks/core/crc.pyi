"""The types of the journal's CRC-32, for whoever calls it from Python: see crc.pyx."""

from typing_extensions import Buffer

def crc32(data: Buffer, before: int = 0, tables: bool = False) -> int: ...
