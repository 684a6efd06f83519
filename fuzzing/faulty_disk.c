/* Preloaded below a process: has calls for the files of a directory fail when fuzzing/disks.py says so.

   FAULTY_DIRECTORY names the directory. FAULTY_CONTROL is a file of a page that both have mapped, of integers: the kinds
   of calls that fail (bits, as in disks.py), with which error (0: a write is short), after how many others, how many
   (-1: all); and at place 12 how many have failed. Descriptors are looked up in /proc only while calls are to fail. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, OPEN = 2, WRITE = 4, SYNC = 8, ALLOCATE = 16, TRUNCATE = 32, NAMES = 64, READ = 128 };
enum { CALLS, ERROR, AFTER, COUNT, FAILED = 12 };

static volatile int *control;
static char directory[PATH_MAX];
static size_t length;

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
        return fails_path(flags & O_CREAT ? CREATE : OPEN, AT_FDCWD, path) ? -1 : real(path, flags, mode); \
    }

#define OPENING_AT(name) \
    int name(int at, const char *path, int flags, ...) \
    { \
        MODE \
        REAL(int, #name, int, const char *, int, mode_t); \
        return fails_path(flags & O_CREAT ? CREATE : OPEN, at, path) ? -1 : real(at, path, flags, mode); \
    }

OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)

/* --- writing: an error of 0 has half of the octets written --- */

#define WRITING(name, parameters, arguments, size, ...) \
    ssize_t name parameters \
    { \
        REAL(ssize_t, #name, __VA_ARGS__); \
        if (fails_file(WRITE, file)) { \
            if (control[ERROR]) \
                return -1; \
            if (size > 1) \
                size /= 2; \
        } \
        return real arguments; \
    }

WRITING(write, (int file, const void *from, size_t size), (file, from, size), size, int, const void *, size_t)
WRITING(pwrite, (int file, const void *from, size_t size, off_t at), (file, from, size, at), size, int, const void *, size_t, off_t)
WRITING(pwrite64, (int file, const void *from, size_t size, off64_t at), (file, from, size, at), size, int, const void *, size_t, off64_t)
WRITING(writev, (int file, const struct iovec *from, int size), (file, from, size), size, int, const struct iovec *, int)
WRITING(pwritev, (int file, const struct iovec *from, int size, off_t at), (file, from, size, at), size, int, const struct iovec *, int, off_t)
WRITING(pwritev64, (int file, const struct iovec *from, int size, off64_t at), (file, from, size, at), size, int, const struct iovec *, int, off64_t)

/* --- all else that is asked of a descriptor --- */

#define ASKING(type, name, kind, failure, parameters, arguments, ...) \
    type name parameters \
    { \
        REAL(type, #name, __VA_ARGS__); \
        return fails_file(kind, file) ? (failure) : real arguments; \
    }

ASKING(int, fsync, SYNC, -1, (int file), (file), int)
ASKING(int, fdatasync, SYNC, -1, (int file), (file), int)
ASKING(int, ftruncate, TRUNCATE, -1, (int file, off_t size), (file, size), int, off_t)
ASKING(int, ftruncate64, TRUNCATE, -1, (int file, off64_t size), (file, size), int, off64_t)
ASKING(int, posix_fallocate, ALLOCATE, errno, (int file, off_t at, off_t size), (file, at, size), int, off_t, off_t)
ASKING(int, posix_fallocate64, ALLOCATE, errno, (int file, off64_t at, off64_t size), (file, at, size), int, off64_t, off64_t)
ASKING(int, fallocate, ALLOCATE, -1, (int file, int mode, off_t at, off_t size), (file, mode, at, size), int, int, off_t, off_t)
ASKING(ssize_t, read, READ, -1, (int file, void *to, size_t size), (file, to, size), int, void *, size_t)
ASKING(ssize_t, pread, READ, -1, (int file, void *to, size_t size, off_t at), (file, to, size, at), int, void *, size_t, off_t)
ASKING(ssize_t, pread64, READ, -1, (int file, void *to, size_t size, off64_t at), (file, to, size, at), int, void *, size_t, off64_t)
ASKING(ssize_t, preadv, READ, -1, (int file, const struct iovec *to, int count, off_t at), (file, to, count, at), int, const struct iovec *, int, off_t)

/* --- names --- */

#define NAMING(name, parameters, arguments, at, path, ...) \
    int name parameters \
    { \
        REAL(int, #name, __VA_ARGS__); \
        return fails_path(NAMES, at, path) ? -1 : real arguments; \
    }

NAMING(rename, (const char *from, const char *to), (from, to), AT_FDCWD, from, const char *, const char *)
NAMING(renameat, (int at, const char *from, int there, const char *to), (at, from, there, to), at, from, int, const char *, int, const char *)
NAMING(unlink, (const char *path), (path), AT_FDCWD, path, const char *)
NAMING(unlinkat, (int at, const char *path, int flags), (at, path, flags), at, path, int, const char *, int)
NAMING(mkdir, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path, const char *, mode_t)
NAMING(mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), at, path, int, const char *, mode_t)
NAMING(rmdir, (const char *path), (path), AT_FDCWD, path, const char *)
