"""The journal's CRC-32 for Python: so that a test can hold it against zlib's."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t


def checksum(data, uint32_t before=0, bint tables=False):
    """zlib.crc32(data, before) as the core computes it, or (tables) would on a processor that cannot fold."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return (crc32_by_tables if tables else crc32)(before, <const char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


globals()["crc32"] = checksum       # a `def` of that name would hide the C function
