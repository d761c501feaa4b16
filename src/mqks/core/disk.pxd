"""The disk as the core writes to it: see disk.pyx."""

cimport cython
from libc.stdint cimport uint64_t


cdef class Disk:
    cdef int pwrite(self, int file, const char* data, size_t size, uint64_t offset) except -1


cdef class FileDisk(Disk):
    cdef readonly dict names        # of the open files, for errors


@cython.final
cdef class PythonDisk(Disk):
    cdef object disk
