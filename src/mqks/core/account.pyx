"""What all parts of the core count: the memory that they take, with its limits, and the work that they do.

Each part has these two objects. They know no part, and decide nothing.
"""

cimport cython


@cython.final
cdef class Account:
    def __init__(self, size_t max_memory):
        self.max_memory = max_memory
        self.ceiling = max_memory + MARGIN

    @property
    def used(self):
        """Bytes of memory taken for messages, queues and buffers."""
        return self.memory.used

    @property
    def full(self):
        return is_full(self)

    def charge(self, Py_ssize_t size):
        """Count memory that was taken (or, below zero, given back) elsewhere: for names, subscriptions and the like."""
        self.memory.used += size


@cython.final
cdef class Work:
    def exert(self, uint64_t effort):
        """What was done for a line took as long as it takes to put messages to so many queues."""
        self.effort += effort
