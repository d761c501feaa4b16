"""The disk as the core writes to it: one call of C, whatever is behind it.

`FileDisk` is the system's files; RealDisk (mqks/journal/disk.py) is built on it and has all else that a disk does. `PythonDisk` passes
each write on to a disk that is written in Python, such as the simulator's. `disk_of` answers either for any disk.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint64_t

import os

cdef extern from "Python.h":
    int PyBUF_READ

cdef extern from "unistd.h" nogil:
    ssize_t write_at "pwrite" (int fd, const void* data, size_t size, int64_t offset)


cdef class Disk:
    cdef int pwrite(self, int file, const char* data, size_t size, uint64_t offset) except -1:
        """Write all of it at this offset of an open file. OSError, with the file's name: then a part may be written."""
        raise NotImplementedError

    def write(self, int file, data, int64_t offset):
        """The same, of any buffer."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.pwrite(file, <const char*>view.buf, view.len, <uint64_t>offset)
        finally:
            PyBuffer_Release(&view)


cdef class FileDisk(Disk):
    def __cinit__(self):
        self.names = {}

    cdef int pwrite(self, int file, const char* data, size_t size, uint64_t offset) except -1:
        cdef ssize_t written
        cdef int error
        while size:
            with nogil:
                written = write_at(file, data, size, <int64_t>offset)
                error = errno
            if written >= 0:
                data += written
                size -= written
                offset += written
            elif error != EINTR:
                raise OSError(error, os.strerror(error), self.names.get(file))
        return 0


@cython.final
cdef class PythonDisk(Disk):
    def __init__(self, disk):
        self.disk = disk

    cdef int pwrite(self, int file, const char* data, size_t size, uint64_t offset) except -1:
        self.disk.write(file, PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ), offset)
        return 0


def disk_of(disk):
    """This disk, as the core writes to it."""
    return disk if isinstance(disk, Disk) else PythonDisk(disk)
