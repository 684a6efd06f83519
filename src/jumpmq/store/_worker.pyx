# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The writing thread, in C: never waits for the interpreter. ``worker.py`` is its reference implementation."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.errno cimport EINTR, EINVAL, EIO, EOPNOTSUPP, ETIMEDOUT, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        int64_t tv_sec
        int64_t tv_nsec
    int CLOCK_MONOTONIC, CLOCK_REALTIME
    int clock_gettime(int clock, timespec* now)

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t* thread, void* attributes, void* (*run)(void*) noexcept nogil, void* argument)
    int pthread_join(pthread_t thread, void** result)
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, void* attributes)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* until)
    int pthread_cond_signal(pthread_cond_t* condition)
    int pthread_cond_destroy(pthread_cond_t* condition)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int SIG_SETMASK
    int sigfillset(sigset_t* set)
    int pthread_sigmask(int how, const sigset_t* set, sigset_t* old)

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t pwritev(int file, const iovec* vectors, int count, int64_t offset)

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int file)
    int close(int file)
    ssize_t pwrite(int file, const void* octets, size_t length, int64_t offset)
    ssize_t write(int file, const void* octets, size_t length)

cdef extern from "<sys/mman.h>" nogil:
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS
    void* MAP_FAILED
    void* mmap(void* at, size_t length, int protection, int flags, int file, int64_t offset)
    int munmap(void* at, size_t length)

cdef extern from "<fcntl.h>" nogil:
    int posix_fallocate(int file, int64_t offset, int64_t length)

cdef extern from *:
    """
    #include <fcntl.h>
    #ifdef SYNC_FILE_RANGE_WRITE
    #define begin_sync(file, offset, length) sync_file_range(file, offset, length, SYNC_FILE_RANGE_WRITE)
    #else
    #define begin_sync(file, offset, length) 0
    #endif
    """
    int begin_sync(int file, int64_t offset, int64_t length) nogil

cdef extern from *:
    """
    #ifndef O_DIRECT
    #define O_DIRECT 0
    #endif
    static int open_past_cache(const char *path, int file) {
        int flags = fcntl(file, F_GETFL);
        if (!O_DIRECT || flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return -1;
        return open(path, O_WRONLY | O_CLOEXEC | O_DIRECT);
    }
    """
    int open_past_cache(const char* path, int file) nogil

DEF MAX_VECTORS = 1024
DEF MAX_OCTETS = 4 << 20  # per write; the disk writes these octets while the thread copies more
DEF ZEROS = 1 << 20
DEF PAST_CACHE_FROM = 1 << 20  # octets of a commit from which on the commit is written past the system's cache
DEF REST = 1  # seconds without a commit after which the memory for such writes is released
DEF SECTORS = 4096  # alignment of such writes, in the file and in memory

cdef uint8_t[ZEROS] NOTHING

cdef extern from "crc32.h" nogil:
    void crc32_prepare()
    uint32_t crc32_of(const uint8_t* at, size_t length, uint32_t crc)

crc32_prepare()


def checksum(const uint8_t[::1] octets, uint32_t start=0):
    """The CRC-32 of octets, as ``zlib.crc32``."""
    cdef uint32_t crc
    if not octets.shape[0]:
        return start
    with nogil:
        crc = crc32_of(&octets[0], octets.shape[0], start)
    return crc


cdef struct Job:
    int file
    int64_t offset
    int64_t allocate_offset
    int64_t allocate_length
    uint32_t salt
    int64_t position
    bint syncs
    iovec* vectors
    int count
    int* ends
    int blocks
    int error
    bint unsafe
    double seconds
    Job* next


cdef struct Shared:
    pthread_t thread
    pthread_mutex_t mutex
    pthread_cond_t condition
    Job* job
    Job* finished
    bint stopped
    bint working
    int wake
    int tell


cdef void seal(Job* job) noexcept nogil:
    """Put in the checksums: of each block behind its own four octets, then of the frame and all heads."""
    cdef uint32_t crc, heads
    cdef int place = 1, block
    cdef uint8_t* head
    cdef uint8_t* frame = <uint8_t*>job.vectors[0].iov_base
    heads = crc32_of(frame + 8, job.vectors[0].iov_len - 8, job.salt)
    for block in range(job.blocks):
        head = <uint8_t*>job.vectors[place].iov_base
        crc = crc32_of(head + 4, job.vectors[place].iov_len - 4, job.salt)
        place += 1
        while place < job.ends[block]:
            crc = crc32_of(<const uint8_t*>job.vectors[place].iov_base, job.vectors[place].iov_len, crc)
            place += 1
        memcpy(head, &crc, 4)
        heads = crc32_of(head, 32, heads)
    memcpy(frame + 4, &heads, 4)


cdef int write_all(Job* job) noexcept nogil:
    """Write all vectors; returns an errno, or 0. The vectors are used up."""
    cdef int64_t offset = job.offset
    cdef iovec* vectors = job.vectors
    cdef int left = job.count, some
    cdef ssize_t written
    cdef size_t octets
    while left:
        some = 1
        octets = vectors[0].iov_len
        while some < min(left, MAX_VECTORS) and octets + vectors[some].iov_len <= MAX_OCTETS:
            octets += vectors[some].iov_len
            some += 1
        written = pwritev(job.file, vectors, some, offset)
        if written < 0:
            if errno == EINTR:
                continue
            return errno
        if written >= MAX_OCTETS // 4 and some < left:
            begin_sync(job.file, offset, written)
        offset += written
        while left and <size_t>written >= vectors.iov_len:
            written -= vectors.iov_len
            vectors += 1
            left -= 1
        if left:
            vectors.iov_base = <char*>vectors.iov_base + written
            vectors.iov_len -= written
    return 0


cdef int write_octets(int file, const char* octets, size_t length, int64_t offset) noexcept nogil:
    cdef ssize_t written
    while length:
        written = pwrite(file, octets, length, offset)
        if written < 0:
            if errno == EINTR:
                continue
            return errno
        if written == 0:
            return EIO
        octets += written
        length -= written
        offset += written
    return 0


cdef int write_past_cache(Job* job, int file, char* room) noexcept nogil:
    """Write all vectors, gathered in ``room``, through ``file``: a descriptor of the same file, open without a cache.
    Octets before the first whole sector and behind the last one are written through the cache. Returns an errno, or 0.

    Large writes through the cache take three times the processor time, mostly for new memory, and evict other content
    from the cache.
    """
    cdef int place = 0, error
    cdef size_t taken = 0, some, filled
    cdef int64_t base = job.offset // SECTORS * SECTORS, start = job.offset
    while True:
        filled = start - base
        while place < job.count and filled < MAX_OCTETS:
            some = min(job.vectors[place].iov_len - taken, MAX_OCTETS - filled)
            memcpy(room + filled, <char*>job.vectors[place].iov_base + taken, some)
            filled += some
            taken += some
            if taken == job.vectors[place].iov_len:
                place += 1
                taken = 0
        error = write_sectors(job.file, file, room, base, start - base, filled)
        if error or place == job.count:
            return error
        base += MAX_OCTETS
        start = base


cdef int write_sectors(
    int cached, int file, char* room, int64_t base, size_t start, size_t end
) noexcept nogil:
    """Write octets ``start`` to ``end`` of ``room``, which lies at ``base``, whole sectors past the cache."""
    cdef size_t first = (start + SECTORS - 1) // SECTORS * SECTORS, last = end // SECTORS * SECTORS
    cdef int error
    if first >= last:
        return write_octets(cached, room + start, end - start, base + start)
    error = write_octets(cached, room + start, first - start, base + start)
    if not error:
        error = write_octets(file, room + first, last - first, base + first)
    if not error:
        error = write_octets(cached, room + last, end - last, base + last)
    return error


cdef bint make_room(char** room) noexcept nogil:
    """Allocate memory aligned with sectors; return False without memory."""
    cdef void* made = mmap(NULL, MAX_OCTETS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if made == MAP_FAILED:
        return False
    room[0] = <char*>made
    return True


cdef void give_back(char** room) noexcept nogil:
    if room[0] != NULL:
        munmap(room[0], MAX_OCTETS)
        room[0] = NULL


cdef int write_job(Job* job, char** room) noexcept nogil:
    """Write all vectors: past the cache, if the octets are many and the file system permits. Returns an errno, or 0.

    Args:
        room: memory for writes past the cache, allocated at the first use; NULL to write through the cache always.
    """
    cdef char path[40]
    cdef size_t octets = 0
    cdef int place, file, error
    for place in range(job.count):
        octets += job.vectors[place].iov_len
    if room == NULL or job.ends == NULL or octets < PAST_CACHE_FROM:
        return write_all(job)
    if room[0] == NULL and not make_room(room):
        return write_all(job)
    snprintf(path, sizeof(path), "/proc/self/fd/%d", job.file)
    file = open_past_cache(path, job.file)
    if file < 0:
        return write_all(job)
    error = write_past_cache(job, file, room[0])
    close(file)
    return write_all(job) if error == EINVAL else error


cdef double seconds() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef void perform(Job* job, char** room, int tell) noexcept nogil:
    """Perform the jobs in sequence, up to the first error; the result is stored in the first job."""
    cdef double began = seconds()
    cdef Job* one = job
    while one != NULL:
        commit(one, room, tell)
        job.error, job.unsafe = one.error, one.unsafe
        one = NULL if one.error else one.next
    job.seconds = seconds() - began


cdef void commit(Job* job, char** room, int tell) noexcept nogil:
    if job.ends != NULL:
        seal(job)
    if job.allocate_length:
        job.error = posix_fallocate(job.file, job.allocate_offset, job.allocate_length)
        if job.error == EOPNOTSUPP or job.error == EINVAL:
            job.error = 0
        if job.error:
            return
    job.error = write_job(job, room)
    if job.error or not job.syncs:
        return
    job.unsafe = True
    if tell >= 0 and job.position:
        write(tell, &job.position, sizeof(job.position))  # a lost position does not matter: the next one is higher
    if fdatasync(job.file) != 0:
        job.error = errno


cdef int wait_a_while(Shared* shared) noexcept nogil:
    cdef timespec until
    clock_gettime(CLOCK_REALTIME, &until)
    until.tv_sec += REST
    return pthread_cond_timedwait(&shared.condition, &shared.mutex, &until)


cdef void* run(void* argument) noexcept nogil:
    cdef Shared* shared = <Shared*>argument
    cdef Job* job
    cdef char* room = NULL
    cdef sigset_t signals
    sigfillset(&signals)
    pthread_sigmask(SIG_SETMASK, &signals, NULL)
    pthread_mutex_lock(&shared.mutex)
    while True:
        while shared.job == NULL and not shared.stopped:
            if room == NULL:
                pthread_cond_wait(&shared.condition, &shared.mutex)
            elif wait_a_while(shared) == ETIMEDOUT:
                give_back(&room)
        job = shared.job
        shared.job = NULL
        if job == NULL:
            break
        pthread_mutex_unlock(&shared.mutex)
        perform(job, NULL if shared.tell >= 0 else &room, shared.tell)
        pthread_mutex_lock(&shared.mutex)
        shared.finished = job
        shared.working = False
        write(shared.wake, b"\0", 1)
    pthread_mutex_unlock(&shared.mutex)
    give_back(&room)
    return NULL


cdef void forget(Job* job) noexcept:
    cdef Job* following
    while job != NULL:
        following = job.next
        free(job.vectors)
        free(job.ends)
        free(job)
        job = following


cdef Job* new_job(int file, int64_t offset, object allocate, int vectors) except NULL:
    cdef Job* job = <Job*>calloc(1, sizeof(Job))
    if job == NULL:
        raise MemoryError
    job.vectors = <iovec*>malloc((vectors + 1) * sizeof(iovec))
    if job.vectors == NULL:
        forget(job)
        raise MemoryError
    job.file, job.offset = file, offset
    if allocate is not None:
        job.allocate_offset, job.allocate_length = allocate
    return job


cdef int add_vector(Job* job, object buffer) except -1:
    if isinstance(buffer, bytes):
        job.vectors[job.count].iov_base = PyBytes_AS_STRING(buffer)
        job.vectors[job.count].iov_len = PyBytes_GET_SIZE(buffer)
    else:
        job.vectors[job.count].iov_base = PyByteArray_AS_STRING(<bytearray?>buffer)
        job.vectors[job.count].iov_len = PyByteArray_GET_SIZE(buffer)
    job.count += 1
    return 0


cdef Job* make_job(write) except NULL:
    cdef Job* job
    cdef int total = 1, place = 0
    cdef list blocks = write.commit.blocks
    for block in blocks:
        total += 1 + len(block.buffers)
    job = new_job(write.file, write.offset, write.allocate, total)
    job.ends = <int*>malloc((len(blocks) + 1) * sizeof(int))
    if job.ends == NULL:
        forget(job)
        raise MemoryError
    job.salt, job.position = write.salt, write.position
    add_vector(job, write.commit.frame)
    for block in blocks:
        add_vector(job, block.head)
        for buffer in block.buffers:
            add_vector(job, buffer)
        job.ends[place] = job.count
        place += 1
    job.blocks, job.syncs = place, True
    if write.zeros:
        job.vectors[job.count].iov_base = NOTHING
        job.vectors[job.count].iov_len = min(<size_t>write.zeros, ZEROS)
        job.count += 1
    return job


cdef Job* make_jobs(write) except NULL:
    """Return the jobs of a write: one for each append, then the commit's."""
    cdef Job* following = make_job(write)
    cdef Job* job
    for append in reversed(<list?>write.appends):
        job = new_job(append.file, append.offset, append.allocate, len(append.buffers))
        job.next = following
        for buffer in append.buffers:
            add_vector(job, buffer)
        following = job
    return following


cdef outcome(Job* job):
    """Return the result of a job, and free the job."""
    error, unsafe, seconds = job.error, bool(job.unsafe), job.seconds
    forget(job)
    return error, unsafe, seconds


cdef class Worker:
    cdef Shared* shared
    cdef object held

    def __cinit__(self, int wake, int tell=-1):
        self.shared = <Shared*>calloc(1, sizeof(Shared))
        if self.shared == NULL:
            raise MemoryError
        self.shared.wake, self.shared.tell = wake, tell
        pthread_mutex_init(&self.shared.mutex, NULL)
        pthread_cond_init(&self.shared.condition, NULL)
        if pthread_create(&self.shared.thread, NULL, run, self.shared) != 0:
            raise RuntimeError("cannot start the thread that writes")

    def submit(self, write):
        self._give(make_jobs(write), write)

    def append(self, int file, int64_t offset, list buffers):
        cdef Job* job = new_job(file, offset, None, len(buffers))
        job.syncs = True
        for buffer in buffers:
            add_vector(job, buffer)
        self._give(job, buffers)

    cdef _give(self, Job* job, held):
        self.held = held
        pthread_mutex_lock(&self.shared.mutex)
        self.shared.job = job
        self.shared.working = True
        pthread_mutex_unlock(&self.shared.mutex)
        pthread_cond_signal(&self.shared.condition)  # woken before, the thread would find the mutex locked

    @property
    def is_working(self):
        cdef bint working
        pthread_mutex_lock(&self.shared.mutex)
        working = self.shared.working
        pthread_mutex_unlock(&self.shared.mutex)
        return bool(working)

    def take(self):
        cdef Job* job
        pthread_mutex_lock(&self.shared.mutex)
        job = self.shared.finished
        self.shared.finished = NULL
        pthread_mutex_unlock(&self.shared.mutex)
        if job == NULL:
            return None
        self.held = None
        return outcome(job)

    def perform(self, write):
        cdef Job* job = make_jobs(write)
        with nogil:
            perform(job, NULL, self.shared.tell)
        return outcome(job)

    def close(self):
        if self.shared == NULL:
            return
        pthread_mutex_lock(&self.shared.mutex)
        self.shared.stopped = True
        pthread_cond_signal(&self.shared.condition)
        pthread_mutex_unlock(&self.shared.mutex)
        with nogil:
            pthread_join(self.shared.thread, NULL)
        forget(self.shared.finished)
        pthread_cond_destroy(&self.shared.condition)
        pthread_mutex_destroy(&self.shared.mutex)
        free(self.shared)
        self.shared = NULL
