"""A thread for what the disk makes wait: it syncs files and reads from them, while the event loop goes on.

It is a thread of C that never touches Python, so no sync ever waits for the GIL, and the loop never for a sync. Jobs are done one
after the other, as they came. One that is finished makes an eventfd readable; `finished` then tells how it went. Whoever starts a
job keeps its files open until it has finished. All methods are for one thread, the loop's.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport PyObject, Py_INCREF, Py_XDECREF
from libc.errno cimport EINTR, EINVAL, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

import os

cdef extern from "Python.h":
    int resize_bytes "_PyBytes_Resize" (PyObject** data, Py_ssize_t size) except -1

cdef extern from "fcntl.h" nogil:
    int fallocate(int fd, int mode, int64_t offset, int64_t size)
    int duplicate "fcntl" (int fd, int command, int least)
    int posix_fadvise(int fd, int64_t offset, int64_t size, int advice)
    int F_DUPFD_CLOEXEC, FALLOC_FL_KEEP_SIZE, POSIX_FADV_DONTNEED

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t* thread, const void* attributes, void* (*start)(void*) noexcept nogil, void* argument)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, const void* attributes)
    int pthread_cond_signal(pthread_cond_t* condition)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_destroy(pthread_cond_t* condition)

cdef extern from "signal.h" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t* signals)
    int pthread_sigmask(int how, const sigset_t* signals, sigset_t* before)
    int SIG_SETMASK

cdef extern from "sys/eventfd.h" nogil:
    int eventfd(unsigned int initial, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK

cdef extern from "unistd.h" nogil:
    int close_fd "close" (int fd)
    int fdatasync(int fd)
    int fsync(int fd)
    ssize_t pread(int fd, void* buffer, size_t size, int64_t offset)
    ssize_t read_fd "read" (int fd, void* buffer, size_t size)
    ssize_t write_fd "write" (int fd, const void* buffer, size_t size)

cdef struct Job:
    Job* next
    int64_t tag
    int error                   # errno, once it is finished
    int (*action)(Job* job) noexcept nogil      # answers 0 or errno
    int count                   # of files
    int* fds                    # these follow the job in its memory
    PyObject* data              # bytes to read into, seen by nobody else until then
    char* buffer                # of these bytes
    size_t size
    size_t filled
    int64_t offset


cdef struct Jobs:               # first in, first out
    Job* first
    Job* last


cdef struct Shared:             # between the loop's thread and the worker's, under the mutex
    pthread_mutex_t mutex
    pthread_cond_t changed
    Jobs waiting
    Jobs finished
    bint stopping
    int event                   # the eventfd; set before the thread starts


cdef void append(Jobs* jobs, Job* job) noexcept nogil:
    job.next = NULL
    if jobs.last == NULL:
        jobs.first = job
    else:
        jobs.last.next = job
    jobs.last = job


cdef Job* pop(Jobs* jobs) noexcept nogil:
    cdef Job* job = jobs.first
    if job != NULL:
        jobs.first = job.next
        if jobs.first == NULL:
            jobs.last = NULL
    return job


cdef int sync_one(int fd) noexcept nogil:
    """0 or errno. Some file systems have no fdatasync for folders."""
    while fdatasync(fd) < 0:
        if errno == EINVAL:
            while fsync(fd) < 0:
                if errno != EINTR:
                    return errno
            return 0
        if errno != EINTR:
            return errno
    return 0


cdef int sync_all(Job* job) noexcept nogil:
    cdef int i
    cdef int error
    for i in range(job.count):
        error = sync_one(job.fds[i])
        if error:
            return error
    return 0


cdef int uncache_all(Job* job) noexcept nogil:
    """Only advice: the system may do as it likes."""
    cdef int i
    for i in range(job.count):
        posix_fadvise(job.fds[i], 0, 0, POSIX_FADV_DONTNEED)
    return 0


cdef int read_all(Job* job) noexcept nogil:
    """Until it is full or the file ends."""
    cdef ssize_t size
    while job.filled < job.size:
        size = pread(job.fds[0], job.buffer + job.filled, job.size - job.filled, job.offset + <int64_t>job.filled)
        if size == 0:
            return 0
        if size > 0:
            job.filled += <size_t>size
        elif errno != EINTR:
            return errno
    return 0


cdef void* work(void* argument) noexcept nogil:
    cdef Shared* shared = <Shared*>argument
    cdef uint64_t one = 1
    cdef Job* job
    pthread_mutex_lock(&shared.mutex)
    while not shared.stopping:
        job = pop(&shared.waiting)
        if job == NULL:
            pthread_cond_wait(&shared.changed, &shared.mutex)
            continue
        pthread_mutex_unlock(&shared.mutex)
        job.error = job.action(job)
        pthread_mutex_lock(&shared.mutex)
        append(&shared.finished, job)
        write_fd(shared.event, &one, sizeof(one))
    pthread_mutex_unlock(&shared.mutex)
    return NULL


cdef void drop(Jobs* jobs) noexcept:
    cdef Job* job = pop(jobs)
    while job != NULL:
        Py_XDECREF(job.data)
        free(job)
        job = pop(jobs)


cdef bytes taken(Job* job):
    """What it has read; its memory is the caller's from now on."""
    cdef bytes data = b""
    if job.data != NULL and not job.error:
        if job.filled < job.size:
            resize_bytes(&job.data, <Py_ssize_t>job.filled)
        data = <bytes>job.data
    Py_XDECREF(job.data)
    job.data = NULL
    return data


cdef object failure(int error):
    return OSError(error, os.strerror(error))


def reserve(int fd, int64_t offset, int64_t size):
    """Make sure of space on disk without changing the file's size; where that cannot be had, go on without."""
    cdef int error = 0
    with nogil:
        while fallocate(fd, FALLOC_FL_KEEP_SIZE, offset, size) < 0:
            error = errno
            if error != EINTR:
                break
            error = 0
    if error and error != EOPNOTSUPP and error != ENOSYS:
        raise failure(error)


@cython.final
cdef class Worker:
    """`fd`: an eventfd of another worker to tell by as well. That one, which alone clears it, must then be asked first."""

    cdef Shared shared
    cdef pthread_t thread
    cdef bint running
    cdef bint clears

    def __cinit__(self, int fd=-1):
        cdef sigset_t every
        cdef sigset_t before
        cdef int error
        pthread_mutex_init(&self.shared.mutex, NULL)
        pthread_cond_init(&self.shared.changed, NULL)
        self.clears = fd < 0
        self.shared.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) if fd < 0 else duplicate(fd, F_DUPFD_CLOEXEC, 0)
        if self.shared.event < 0:
            raise failure(errno)
        sigfillset(&every)      # signals are for the loop's thread: they must wake it
        pthread_sigmask(SIG_SETMASK, &every, &before)
        error = pthread_create(&self.thread, NULL, work, &self.shared)
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        if error:
            raise failure(error)
        self.running = True

    def __dealloc__(self):
        self.end()
        drop(&self.shared.finished)
        pthread_cond_destroy(&self.shared.changed)
        pthread_mutex_destroy(&self.shared.mutex)

    def fileno(self):
        """Readable while there is something finished; -1 after the stop."""
        return self.shared.event

    def start_sync(self, tuple fds not None, int64_t tag):
        """Sync these files one after the other, up to the first error."""
        self.start(self.new_job(tag, sync_all, fds))

    def start_uncache(self, tuple fds not None, int64_t tag):
        """What is in these files is not needed in memory: better other things have the room."""
        self.start(self.new_job(tag, uncache_all, fds))

    def start_read(self, int fd, Py_ssize_t size, int64_t offset, int64_t tag):
        """Read so much, or less at the end of the file, straight into what `finished` will give."""
        cdef bytes data
        cdef Job* job
        if size < 0:
            raise ValueError("cannot read less than nothing")
        data = PyBytes_FromStringAndSize(NULL, size)
        job = self.new_job(tag, read_all, (fd,))
        job.size = size
        job.offset = offset
        job.buffer = PyBytes_AS_STRING(data)
        job.data = <PyObject*>data
        Py_INCREF(data)
        self.start(job)

    def finished(self):
        """What has finished since the last time, in that order: (tag, errno or 0, what was read)."""
        cdef list told = []
        cdef uint64_t count
        cdef Jobs jobs
        cdef Job* job
        pthread_mutex_lock(&self.shared.mutex)
        if self.clears:
            read_fd(self.shared.event, &count, sizeof(count))
        jobs = self.shared.finished
        self.shared.finished.first = self.shared.finished.last = NULL
        pthread_mutex_unlock(&self.shared.mutex)
        job = pop(&jobs)
        while job != NULL:
            told.append((job.tag, job.error, taken(job)))
            free(job)
            job = pop(&jobs)
        return told

    def stop(self):
        """End the thread after the job in hand, whose end can still be asked for; drop the others."""
        self.end()

    cdef void end(self) noexcept:
        if self.running:
            self.running = False
            with nogil:
                pthread_mutex_lock(&self.shared.mutex)
                self.shared.stopping = True
                pthread_cond_signal(&self.shared.changed)
                pthread_mutex_unlock(&self.shared.mutex)
                pthread_join(self.thread, NULL)
            drop(&self.shared.waiting)
        if self.shared.event >= 0:
            close_fd(self.shared.event)
            self.shared.event = -1

    cdef Job* new_job(self, int64_t tag, int (*action)(Job* job) noexcept nogil, tuple fds) except NULL:
        cdef Job* job
        cdef Py_ssize_t i
        if not self.running:
            raise ValueError("the worker has stopped")
        job = <Job*>calloc(1, sizeof(Job) + len(fds) * sizeof(int))
        if job == NULL:
            raise MemoryError
        job.tag = tag
        job.action = action
        job.count = len(fds)
        job.fds = <int*>(job + 1)
        try:
            for i in range(len(fds)):
                job.fds[i] = fds[i]
        except BaseException:
            free(job)
            raise
        return job

    cdef void start(self, Job* job) noexcept:
        pthread_mutex_lock(&self.shared.mutex)
        append(&self.shared.waiting, job)
        pthread_cond_signal(&self.shared.changed)
        pthread_mutex_unlock(&self.shared.mutex)
