/* Preloaded below a process: has calls for the files of a directory fail when fuzzing/disks.py or fuzzing/copies.py says so.

   FAULTY_DIRECTORY names the directory. FAULTY_CONTROL is a file of a page that both have mapped, of integers: the kinds
   of calls that fail (bits, as in disks.py), with which error (0: a write is short; -1: none, but it takes as many
   milliseconds as place 13 has), after how many others, how many (-1: all); and at place 12 how many have failed.
   Descriptors are looked up in /proc only while calls are to fail.

   FAULTY_JOURNAL names a file that gets what writes replace, and what was synced since: enough to undo, after a kill, what
   a loss of power would have lost. Its records are: kind (W a write, T a cut, S a sync, U a name that is given up or made
   anew, R one that becomes that in the octets), four octets of padding, the octet of the file from which on octets were replaced, or of the journal up to which a sync holds, the size of the file
   before, the lengths of path and octets (4 each); then both. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { CREATE = 1, OPEN = 2, WRITE = 4, SYNC = 8, ALLOCATE = 16, TRUNCATE = 32, NAMES = 64, READ = 128 };
enum { CALLS, ERROR, AFTER, COUNT, FAILED = 12, DELAY };

static volatile int *control;
static char directory[PATH_MAX];
static size_t length;
static int journal = -1;

__attribute__((constructor)) static void begin(void)
{
    const char *where = getenv("FAULTY_DIRECTORY"), *path = getenv("FAULTY_CONTROL");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (where && page != MAP_FAILED) {
        if (!realpath(where, directory))
            snprintf(directory, sizeof directory, "%s", where);
        length = strlen(directory);
        control = page;
        if (getenv("FAULTY_JOURNAL"))
            journal = open(getenv("FAULTY_JOURNAL"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }
}

static int is_inside(const char *path)
{
    return strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int is_of_file(int file)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return is_inside(path);
}

static int is_of_path(int at, const char *path)
{
    return path[0] == '/' ? is_inside(path) : at != AT_FDCWD && is_of_file(at);
}

/* Whether such a call fails now; it is counted then. */
static int is_due(void)
{
    if (__sync_fetch_and_sub(&control[AFTER], 1) > 0)
        return 0;
    control[AFTER] = 0;
    if (control[COUNT] >= 0 && __sync_fetch_and_sub(&control[COUNT], 1) <= 0) {
        control[COUNT] = 0;
        return 0;
    }
    __sync_fetch_and_add(&control[FAILED], 1);
    if (control[ERROR] == -1) {
        struct timespec time = {control[DELAY] / 1000, control[DELAY] % 1000 * 1000000L};
        nanosleep(&time, NULL);
        return 0;
    }
    errno = control[ERROR];
    return 1;
}

static int fails_file(int kind, int file)
{
    return control && control[CALLS] & kind && is_of_file(file) && is_due();
}

static int fails_path(int kind, int at, const char *path)
{
    return control && control[CALLS] & kind && is_of_path(at, path) && is_due();
}

/* --- the journal --- */

struct record {
    int32_t kind, padding;
    int64_t at, size;
    int32_t path, octets;
};

static void put(struct record record, const char *path, const char *octets)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    struct iovec parts[] = {{&record, sizeof record}, {(char *)path, record.path}, {(char *)octets, record.octets}};
    if (!real)
        real = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    real(journal, parts, 3);
}

static int path_of(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return is_inside(path) ? (int)size : 0;
}

/* Note the octets of a file that are about to be replaced, or cut off. */
static void note(int kind, int file, off_t at, size_t size)
{
    static ssize_t (*real)(int, void *, size_t, off_t);
    char path[PATH_MAX];
    struct stat status;
    struct record record = {.kind = kind};
    if (journal < 0 || (record.path = path_of(file, path)) == 0 || fstat(file, &status) < 0)
        return;
    if (!real)
        real = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    record.at = at < 0 ? lseek(file, 0, SEEK_CUR) : at;
    record.size = status.st_size;
    if (kind == 'T')
        size = status.st_size > at ? status.st_size - at : 0;
    char *octets = malloc(size + 1);
    int flags = fcntl(file, F_GETFL);
    ssize_t found = octets && (flags & O_ACCMODE) == O_RDWR ? real(file, octets, size, record.at) : 0;
    record.octets = found > 0 ? found : 0;
    put(record, path, octets);
    free(octets);
}

static int64_t noted(void)
{
    struct stat status;
    return journal < 0 || fstat(journal, &status) < 0 ? 0 : status.st_size;
}

static void note_sync(int file, int64_t up_to)
{
    char path[PATH_MAX];
    struct record record = {.kind = 'S', .at = up_to};
    if (journal >= 0 && (record.path = path_of(file, path)) > 0)
        put(record, path, path);
}

static int absolute(int at, const char *path, char *to)
{
    if (path[0] == '/' || at == AT_FDCWD)
        return snprintf(to, PATH_MAX, "%s", path);
    int size = path_of(at, to);
    return size ? size + snprintf(to + size, PATH_MAX - size, "/%s", path) : 0;
}

static void note_name(int at, const char *path, int there, const char *to)
{
    char from[PATH_MAX], new[PATH_MAX] = "";
    struct record record = {.kind = to ? 'R' : 'U'};
    if (journal < 0 || (record.path = absolute(at, path, from)) == 0 || !is_inside(from))
        return;
    record.octets = to ? absolute(there, to, new) : 0;
    put(record, from, new);
}

static size_t sum(const struct iovec *from, int count)
{
    size_t size = 0;
    for (int i = 0; i < count; i++)
        size += from[i].iov_len;
    return size;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) \
        real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

/* --- opening --- */

#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

#define OPENING(name) \
    int name(const char *path, int flags, ...) \
    { \
        MODE \
        REAL(int, #name, const char *, int, mode_t); \
        if (fails_path(flags & O_CREAT ? CREATE : OPEN, AT_FDCWD, path)) \
            return -1; \
        if (flags & O_TRUNC) \
            note_name(AT_FDCWD, path, 0, NULL); \
        return real(path, flags, mode); \
    }

#define OPENING_AT(name) \
    int name(int at, const char *path, int flags, ...) \
    { \
        MODE \
        REAL(int, #name, int, const char *, int, mode_t); \
        if (fails_path(flags & O_CREAT ? CREATE : OPEN, at, path)) \
            return -1; \
        if (flags & O_TRUNC) \
            note_name(at, path, 0, NULL); \
        return real(at, path, flags, mode); \
    }

OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)

/* --- writing: an error of 0 has half of the octets written --- */

#define WRITING(name, parameters, arguments, size, octets, begin, ...) \
    ssize_t name parameters \
    { \
        REAL(ssize_t, #name, __VA_ARGS__); \
        note('W', file, begin, octets); \
        if (fails_file(WRITE, file)) { \
            if (control[ERROR]) \
                return -1; \
            if (size > 1) \
                size /= 2; \
        } \
        return real arguments; \
    }

WRITING(write, (int file, const void *from, size_t size), (file, from, size), size, size, -1, int, const void *, size_t)
WRITING(pwrite, (int file, const void *from, size_t size, off_t at), (file, from, size, at), size, size, at, int, const void *, size_t, off_t)
WRITING(pwrite64, (int file, const void *from, size_t size, off64_t at), (file, from, size, at), size, size, at, int, const void *, size_t, off64_t)
WRITING(writev, (int file, const struct iovec *from, int size), (file, from, size), size, sum(from, size), -1, int, const struct iovec *, int)
WRITING(pwritev, (int file, const struct iovec *from, int size, off_t at), (file, from, size, at), size, sum(from, size), at, int, const struct iovec *, int, off_t)
WRITING(pwritev64, (int file, const struct iovec *from, int size, off64_t at), (file, from, size, at), size, sum(from, size), at, int, const struct iovec *, int, off64_t)
WRITING(pwritev2, (int file, const struct iovec *from, int size, off_t at, int flags), (file, from, size, at, flags), size, sum(from, size), at, int, const struct iovec *, int, off_t, int)
WRITING(pwritev64v2, (int file, const struct iovec *from, int size, off64_t at, int flags), (file, from, size, at, flags), size, sum(from, size), at, int, const struct iovec *, int, off64_t, int)

/* --- all else that is asked of a descriptor --- */

#define ASKING(type, name, kind, failure, parameters, arguments, ...) \
    type name parameters \
    { \
        REAL(type, #name, __VA_ARGS__); \
        return fails_file(kind, file) ? (failure) : real arguments; \
    }

#define SYNCING(name) \
    int name(int file) \
    { \
        REAL(int, #name, int); \
        int64_t up_to = noted(); \
        int status = fails_file(SYNC, file) ? -1 : real(file); \
        if (status == 0) \
            note_sync(file, up_to); \
        return status; \
    }

SYNCING(fsync)
SYNCING(fdatasync)

#define CUTTING(name, type) \
    int name(int file, type size) \
    { \
        REAL(int, #name, int, type); \
        note('T', file, size, 0); \
        return fails_file(TRUNCATE, file) ? -1 : real(file, size); \
    }

CUTTING(ftruncate, off_t)
CUTTING(ftruncate64, off64_t)
ASKING(int, posix_fallocate, ALLOCATE, errno, (int file, off_t at, off_t size), (file, at, size), int, off_t, off_t)
ASKING(int, posix_fallocate64, ALLOCATE, errno, (int file, off64_t at, off64_t size), (file, at, size), int, off64_t, off64_t)
ASKING(int, fallocate, ALLOCATE, -1, (int file, int mode, off_t at, off_t size), (file, mode, at, size), int, int, off_t, off_t)
ASKING(ssize_t, read, READ, -1, (int file, void *to, size_t size), (file, to, size), int, void *, size_t)
ASKING(ssize_t, pread, READ, -1, (int file, void *to, size_t size, off_t at), (file, to, size, at), int, void *, size_t, off_t)
ASKING(ssize_t, pread64, READ, -1, (int file, void *to, size_t size, off64_t at), (file, to, size, at), int, void *, size_t, off64_t)
ASKING(ssize_t, preadv, READ, -1, (int file, const struct iovec *to, int count, off_t at), (file, to, count, at), int, const struct iovec *, int, off_t)
ASKING(ssize_t, preadv2, READ, -1, (int file, const struct iovec *to, int count, off_t at, int flags), (file, to, count, at, flags), int, const struct iovec *, int, off_t, int)

/* --- names --- */

#define NAMING(name, parameters, arguments, at, path, there, to, ...) \
    int name parameters \
    { \
        REAL(int, #name, __VA_ARGS__); \
        if (fails_path(NAMES, at, path)) \
            return -1; \
        note_name(at, path, there, to); \
        return real arguments; \
    }

NAMING(rename, (const char *from, const char *to), (from, to), AT_FDCWD, from, AT_FDCWD, to, const char *, const char *)
NAMING(renameat, (int at, const char *from, int there, const char *to), (at, from, there, to), at, from, there, to, int, const char *, int, const char *)
NAMING(unlink, (const char *path), (path), AT_FDCWD, path, 0, NULL, const char *)
NAMING(unlinkat, (int at, const char *path, int flags), (at, path, flags), at, path, 0, NULL, int, const char *, int)
NAMING(mkdir, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path, 0, NULL, const char *, mode_t)
NAMING(mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), at, path, 0, NULL, int, const char *, mode_t)
NAMING(rmdir, (const char *path), (path), AT_FDCWD, path, 0, NULL, const char *)
