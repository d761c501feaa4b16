/* A library for LD_PRELOAD that sees what a broker does to its data folder and its sockets.
 *
 * PRELOAD_ROOT    the data folder. Calls on other files pass through unseen.
 * PRELOAD_LOG     record every call to this file, for the power-loss tester. oplog.py reads it.
 * PRELOAD_FAULTS  fail calls as this shared file says, for the history checker. faults.py writes it.
 *
 * A call is recorded when it has returned, before its caller goes on; a sync also when it begins. So whatever the broker puts
 * in order stands in that order in the log.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN = 1, CLOSE, WRITE, SYNC_BEGIN, SYNC_END, RENAME, UNLINK, MKDIR, TRUNCATE, SEND, RECV, HANGUP };

struct record {
    uint32_t kind;
    int32_t fd;
    int64_t number;             /* offset, size or inode */
    uint32_t first, second;     /* bytes of the two texts that follow */
};

/* One fault. Python sets it and arms it by `left`; the library counts `left` down and `done` up. */
enum { ON_WRITE = 1, ON_SYNC = 2, ON_RENAME = 4, ON_OPEN = 8, ON_UNLINK = 16, ON_TRUNCATE = 32, ON_RESERVE = 64 };
enum { FAIL = 0, SHORT = 1, TORN = 2, SLOW = 3 };
struct fault {
    _Atomic int32_t left;       /* calls that still fail; 0: none */
    int32_t skip;               /* calls that pass before */
    int32_t calls;              /* mask of ON_… */
    int32_t how;
    int32_t error;
    int32_t milliseconds;       /* of a slow call */
    _Atomic int32_t done;
    char path[36];              /* a part of the path; empty: any */
};
enum { FAULTS = 8, FILES = 4096 };
struct control {
    _Atomic int64_t clock;      /* seconds by which the wall clock is wrong */
    struct fault faults[FAULTS];
};

static char root[PATH_MAX];
static size_t root_size;
static int log_fd = -1;
static struct control *control;
static char *tracked[FILES];    /* path by descriptor, relative to the root */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void start(void) {
    const char *value = getenv("PRELOAD_ROOT");
    int fd;
    if (!value || !realpath(value, root))
        return;
    root_size = strlen(root);
    if ((value = getenv("PRELOAD_LOG"))) {
        fd = syscall(SYS_openat, AT_FDCWD, value, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900);       /* out of the way of the descriptors that the broker counts */
        syscall(SYS_close, fd);
    }
    if ((value = getenv("PRELOAD_FAULTS"))) {
        fd = syscall(SYS_openat, AT_FDCWD, value, O_RDWR | O_CLOEXEC);
        control = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (control == MAP_FAILED)
            control = NULL;
        syscall(SYS_close, fd);
    }
    unsetenv("LD_PRELOAD");
}

static void note(uint32_t kind, int fd, int64_t number, const void *first, size_t first_size, const void *second, size_t second_size) {
    struct record record = {kind, fd, number, first_size, second_size};
    struct iovec parts[3] = {{&record, sizeof record}, {(void *)first, first_size}, {(void *)second, second_size}};
    int saved = errno;
    if (log_fd < 0)
        return;
    pthread_mutex_lock(&lock);
    if (syscall(SYS_writev, log_fd, parts, 3) != (long)(sizeof record + first_size + second_size))
        abort();                /* a log with a hole would accuse the broker of what it did not do */
    pthread_mutex_unlock(&lock);
    errno = saved;
}

/* The path relative to the root, or NULL if it is elsewhere. */
static const char *inside(const char *path) {
    if (!root_size || strncmp(path, root, root_size))
        return NULL;
    return path[root_size] == '/' ? path + root_size + 1 : path[root_size] ? NULL : path + root_size;
}

static const char *path_of(int fd) { return fd >= 0 && fd < FILES ? tracked[fd] : NULL; }

/* The absolute path of a name beside a folder's descriptor. */
static const char *resolve(int folder, const char *name, char *to) {
    char link[64];
    ssize_t size = 0;
    if (name[0] == '/')
        return name;
    if (folder == AT_FDCWD) {
        if (!getcwd(to, PATH_MAX))
            return name;
        size = strlen(to);
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        size = readlink(link, to, PATH_MAX - 1);
    }
    snprintf(to + size, PATH_MAX - size, "/%s", name);
    return to;
}

static struct fault *fault_of(int call, const char *path) {
    for (int i = 0; control && path && i < FAULTS; i++) {
        struct fault *one = &control->faults[i];
        if (atomic_load(&one->left) <= 0 || !(one->calls & call) || (one->path[0] && !strstr(path, one->path)))
            continue;
        if (one->skip > 0) {
            one->skip--;
            continue;
        }
        atomic_fetch_sub(&one->left, 1);
        atomic_fetch_add(&one->done, 1);
        if (one->how == SLOW) {
            struct timespec wait = {one->milliseconds / 1000, one->milliseconds % 1000 * 1000000L};
            nanosleep(&wait, NULL);
            continue;
        }
        return one;
    }
    return NULL;
}

static int fails(int call, const char *path) {
    struct fault *one = fault_of(call, path);
    if (one)
        errno = one->error;
    return one != NULL;
}

static int opened(int fd, int flags) {
    char link[64], path[PATH_MAX];
    struct stat found;
    const char *name;
    ssize_t size;
    if (fd < 0 || fd >= FILES || !root_size)
        return fd;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return fd;
    path[size] = 0;
    if ((name = inside(path))) {
        fstat(fd, &found);
        free(tracked[fd]);
        tracked[fd] = strdup(name);
        note(OPEN, fd, flags & O_TRUNC ? -(int64_t)found.st_ino : (int64_t)found.st_ino, name, strlen(name), NULL, 0);
    }
    return fd;
}

static int open_at(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (root_size && fails(ON_OPEN, inside(resolve(folder, name, path))))
        return -1;
    return opened(syscall(SYS_openat, folder, name, flags, mode), flags);
}

#define MODE mode_t mode = 0; va_list rest; if (flags & (O_CREAT | O_TMPFILE)) { va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
int open(const char *name, int flags, ...) { MODE return open_at(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return open_at(AT_FDCWD, name, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE return open_at(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE return open_at(folder, name, flags | O_LARGEFILE, mode); }

int close(int fd) {
    if (fd == log_fd)
        return 0;
    if (path_of(fd)) {
        note(CLOSE, fd, 0, NULL, 0, NULL, 0);
        free(tracked[fd]);
        tracked[fd] = NULL;
    } else if (fd >= 0 && fd < FILES && log_fd >= 0) {
        note(HANGUP, fd, 0, NULL, 0, NULL, 0);
    }
    return syscall(SYS_close, fd);
}

/* How many bytes a faulty write still takes; -1: it passes whole. */
static ssize_t limit_of(const char *path, size_t size, int *error) {
    struct fault *one = fault_of(ON_WRITE, path);
    *error = 0;
    if (!one)
        return -1;
    if (one->how == SHORT)
        return size / 2 ? size / 2 : 1;
    *error = one->error;
    return one->how == TORN ? size / 2 : 0;
}

static ssize_t write_at(int fd, const void *data, size_t size, off_t offset, int positioned) {
    const char *path = path_of(fd);
    ssize_t written, limit;
    int error;
    if (!path)
        return positioned ? syscall(SYS_pwrite64, fd, data, size, offset) : syscall(SYS_write, fd, data, size);
    if (!positioned)
        offset = lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
    limit = limit_of(path, size, &error);
    if (limit != 0) {
        if (limit > 0)
            size = limit;
        written = positioned ? syscall(SYS_pwrite64, fd, data, size, offset) : syscall(SYS_write, fd, data, size);
        if (written > 0)
            note(WRITE, fd, offset, data, written, NULL, 0);
        if (!error)
            return written;
    }
    errno = error;
    return -1;
}

ssize_t write(int fd, const void *data, size_t size) { return write_at(fd, data, size, 0, 0); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return write_at(fd, data, size, offset, 1); }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return write_at(fd, data, size, offset, 1); }

static int sync_file(long call, int fd) {
    const char *path = path_of(fd);
    int result;
    if (!path)
        return syscall(call, fd);
    if (fails(ON_SYNC, path))
        return -1;
    note(SYNC_BEGIN, fd, 0, NULL, 0, NULL, 0);
    result = syscall(call, fd);
    if (!result)
        note(SYNC_END, fd, 0, NULL, 0, NULL, 0);
    return result;
}

int fsync(int fd) { return sync_file(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_file(SYS_fdatasync, fd); }

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    char one[PATH_MAX], two[PATH_MAX];
    const char *old = root_size ? inside(resolve(from_folder, from, one)) : NULL;
    const char *new = root_size ? inside(resolve(to_folder, to, two)) : NULL;
    int result;
    if (old && new && fails(ON_RENAME, new))
        return -1;
    result = syscall(SYS_renameat, from_folder, from, to_folder, to);
    if (!result && old && new)
        note(RENAME, -1, 0, old, strlen(old), new, strlen(new));
    return result;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    const char *old = root_size ? inside(resolve(folder, name, path)) : NULL;
    int result;
    if (fails(ON_UNLINK, old))
        return -1;
    result = syscall(SYS_unlinkat, folder, name, flags);
    if (!result && old)
        note(UNLINK, -1, 0, old, strlen(old), NULL, 0);
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    const char *made;
    int result = syscall(SYS_mkdirat, folder, name, mode);
    if (!result && root_size && (made = inside(resolve(folder, name, path))))
        note(MKDIR, -1, 0, made, strlen(made), NULL, 0);
    return result;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int ftruncate(int fd, off_t size) {
    int result;
    if (fails(ON_TRUNCATE, path_of(fd)))
        return -1;
    result = syscall(SYS_ftruncate, fd, size);
    if (!result && path_of(fd))
        note(TRUNCATE, fd, size, NULL, 0, NULL, 0);
    return result;
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

static int reserve(int fd, int mode, off_t offset, off_t size) {
    if (fails(ON_RESERVE, path_of(fd)))
        return -1;
    return syscall(SYS_fallocate, fd, mode, offset, size);
}
int fallocate(int fd, int mode, off_t offset, off_t size) { return reserve(fd, mode, offset, size); }
int fallocate64(int fd, int mode, off64_t offset, off64_t size) { return reserve(fd, mode, offset, size); }

ssize_t send(int fd, const void *data, size_t size, int flags) {
    ssize_t result = syscall(SYS_sendto, fd, data, size, flags, NULL, 0);
    if (result > 0)
        note(SEND, fd, 0, data, result, NULL, 0);
    return result;
}

ssize_t recv(int fd, void *data, size_t size, int flags) {
    ssize_t result = syscall(SYS_recvfrom, fd, data, size, flags, NULL, NULL);
    if (result > 0 && !(flags & MSG_PEEK))
        note(RECV, fd, 0, data, result, NULL, 0);
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (!result && clock == CLOCK_REALTIME && control)
        time->tv_sec += atomic_load(&control->clock);
    return result;
}
