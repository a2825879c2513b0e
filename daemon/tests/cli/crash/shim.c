/* Counts operations of a process on files below CRASH_DIR: creations, writes, syncs, truncations, renames and removals. At
 * operation number CRASH_AT it acts by CRASH_HOW: `kill` exits before the operation; `torn` does half of a write and exits;
 * `short` does half of this and every later write, and returns that length; `full` and `readonly` fail this and every later
 * write and creation; `filling` does so after half of the first write; `unsynced` fails every sync. `unread` fails every
 * read from number CRASH_AT on, counted apart. The operations are written to CRASH_TRACE, with standard error between them.
 * Loaded with LD_PRELOAD into the shipped binary. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static long count;
static int trace = -1;
static const char *dir;
static const char *how = "";
static long at;

static ssize_t (*real_pwrite64)(int, const void *, size_t, off64_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pread64)(int, void *, size_t, off64_t);
static ssize_t (*real_read)(int, void *, size_t);
static long reads;
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate64)(int, off64_t);
static int (*real_unlink)(const char *);
static int (*real_open64)(const char *, int, ...);
static int (*real_rename)(const char *, const char *);
static int (*real_mkdir)(const char *, mode_t);

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void)
{
    real_pwrite64 = next("pwrite64");
    real_write = next("write");
    real_pread64 = next("pread64");
    real_read = next("read");
    real_fsync = next("fsync");
    real_fdatasync = next("fdatasync");
    real_ftruncate64 = next("ftruncate64");
    real_unlink = next("unlink");
    real_open64 = next("open64");
    real_rename = next("rename");
    real_mkdir = next("mkdir");
    dir = getenv("CRASH_DIR");
    if (getenv("CRASH_HOW")) how = getenv("CRASH_HOW");
    if (getenv("CRASH_AT")) at = atol(getenv("CRASH_AT"));
    const char *path = getenv("CRASH_TRACE");
    if (path) trace = real_open64(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    /* Programs that this one starts are none of ours. */
    unsetenv("LD_PRELOAD");
}

/* The name of a file below the directory, `.` of the directory, or none. What is shared memory is on no disk. */
static const char *ours(const char *path)
{
    size_t length = dir ? strlen(dir) : 0;
    if (!length || strncmp(path, dir, length)) return NULL;
    if (!path[length]) return ".";
    if (path[length] != '/') return NULL;
    const char *name = path + length + 1;
    size_t end = strlen(name);
    return end > 4 && !strcmp(name + end - 4, "-shm") ? NULL : name;
}

static const char *name_of(int fd, char *path, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return ours(path);
}

/* The same of something that need not be there yet. */
static const char *name_at(const char *path, char *whole, size_t size)
{
    char above[4096], last[4096];
    if (!dir || strlen(path) >= sizeof above) return NULL;
    char *parent = realpath(dirname(strcpy(above, path)), NULL);
    if (!parent) return NULL;
    int length = snprintf(whole, size, "%s/%s", parent, basename(strcpy(last, path)));
    free(parent);
    return length < 0 || (size_t)length >= size ? NULL : ours(whole);
}

static void told(const char *what, const char *name, long long offset, size_t size, const void *bytes)
{
    if (trace < 0) return;
    char head[4400];
    int length = snprintf(head, sizeof head, "%s\t%s\t%lld\t%zu\n", what, name, offset, size);
    real_write(trace, head, (size_t)length);
    if (bytes && size) real_write(trace, bytes, size);
}

static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

/* Counts an operation; dies if this is the one. */
static long counted(void)
{
    long number = ++count;
    if (number == at && !strcmp(how, "kill")) die();
    return number;
}

static int refuses(long number, const char *way) { return at > 0 && number >= at && !strcmp(how, way); }

/* Whether there is no room for this operation, or none is given. Says so in errno. */
static int has_no_room(long number)
{
    if (refuses(number, "readonly")) errno = EROFS;
    else if (refuses(number, "full") || refuses(number, "filling")) errno = ENOSPC;
    else return 0;
    return 1;
}

static ssize_t put(int fd, const void *bytes, size_t size, off64_t offset, int is_at_end)
{
    return is_at_end ? real_write(fd, bytes, size) : real_pwrite64(fd, bytes, size, offset);
}

static ssize_t written(int fd, const char *name, const void *bytes, size_t size, off64_t offset, int is_at_end)
{
    pthread_mutex_lock(&turn);
    long number = counted();
    ssize_t done;
    if (number == at && !strcmp(how, "torn")) {
        put(fd, bytes, size / 2, offset, is_at_end);
        die();
    }
    if (refuses(number, "short") || (number == at && size > 1 && !strcmp(how, "filling"))) size = (size + 1) / 2;
    else if (has_no_room(number)) {
        pthread_mutex_unlock(&turn);
        return -1;
    }
    done = put(fd, bytes, size, offset, is_at_end);
    int saved = errno;
    if (done > 0) told("write", name, offset, (size_t)done, bytes);
    pthread_mutex_unlock(&turn);
    errno = saved;
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
{
    char path[4096];
    const char *name = name_of(fd, path, sizeof path);
    return name ? written(fd, name, bytes, size, offset, 0) : real_pwrite64(fd, bytes, size, offset);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) { return pwrite64(fd, bytes, size, offset); }

ssize_t write(int fd, const void *bytes, size_t size)
{
    if (fd == 2) {
        pthread_mutex_lock(&turn);
        ssize_t done = real_write(fd, bytes, size);
        int saved = errno;
        if (done > 0) told("said", "-", 0, (size_t)done, bytes);
        errno = saved;
        pthread_mutex_unlock(&turn);
        return done;
    }
    char path[4096];
    const char *name = name_of(fd, path, sizeof path);
    return name ? written(fd, name, bytes, size, lseek64(fd, 0, SEEK_CUR), 1) : real_write(fd, bytes, size);
}

/* Whether a read is refused. Says so in errno. */
static int is_unread(int fd)
{
    char path[4096];
    if (strcmp(how, "unread") || !name_of(fd, path, sizeof path)) return 0;
    pthread_mutex_lock(&turn);
    int refused = at > 0 && ++reads >= at;
    pthread_mutex_unlock(&turn);
    if (refused) errno = EIO;
    return refused;
}

ssize_t pread64(int fd, void *bytes, size_t size, off64_t offset)
{
    return is_unread(fd) ? -1 : real_pread64(fd, bytes, size, offset);
}

ssize_t pread(int fd, void *bytes, size_t size, off_t offset) { return pread64(fd, bytes, size, offset); }

ssize_t read(int fd, void *bytes, size_t size) { return is_unread(fd) ? -1 : real_read(fd, bytes, size); }

/* Opening is counted where it makes a file. */
int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
    }
    if (!real_open64) real_open64 = next("open64");
    char whole[4096];
    const char *name = flags & O_CREAT ? name_at(path, whole, sizeof whole) : NULL;
    if (!name || !access(whole, F_OK)) return real_open64(path, flags, mode);
    pthread_mutex_lock(&turn);
    int done = has_no_room(counted()) ? -1 : real_open64(path, flags, mode);
    int saved = errno;
    if (done >= 0) told("create", name, 0, 0, NULL);
    pthread_mutex_unlock(&turn);
    errno = saved;
    return done;
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open64(path, flags, mode);
}

int mkdir(const char *path, mode_t mode)
{
    char whole[4096];
    const char *name = name_at(path, whole, sizeof whole);
    if (!name || !access(whole, F_OK)) return real_mkdir(path, mode);
    pthread_mutex_lock(&turn);
    int done = has_no_room(counted()) ? -1 : real_mkdir(path, mode);
    int saved = errno;
    if (!done) told("mkdir", name, 0, 0, NULL);
    pthread_mutex_unlock(&turn);
    errno = saved;
    return done;
}

int rename(const char *from, const char *to)
{
    char whole[4096];
    const char *name = name_at(from, whole, sizeof whole);
    if (!name) return real_rename(from, to);
    pthread_mutex_lock(&turn);
    counted();
    int done = real_rename(from, to);
    if (!done) told("rename", name, 0, 0, NULL);
    pthread_mutex_unlock(&turn);
    return done;
}

static int synced(int fd, int (*real)(int))
{
    char path[4096];
    const char *name = name_of(fd, path, sizeof path);
    if (!name) return real(fd);
    pthread_mutex_lock(&turn);
    long number = counted();
    int done;
    if (refuses(number, "unsynced")) {
        errno = EIO;
        done = -1;
    } else {
        done = real(fd);
        if (!done) told("sync", name, 0, 0, NULL);
    }
    pthread_mutex_unlock(&turn);
    return done;
}

int fsync(int fd) { return synced(fd, real_fsync); }
int fdatasync(int fd) { return synced(fd, real_fdatasync); }

int ftruncate64(int fd, off64_t size)
{
    char path[4096];
    const char *name = name_of(fd, path, sizeof path);
    if (!name) return real_ftruncate64(fd, size);
    pthread_mutex_lock(&turn);
    counted();
    int done = real_ftruncate64(fd, size);
    if (!done) told("truncate", name, size, 0, NULL);
    pthread_mutex_unlock(&turn);
    return done;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int unlink(const char *path)
{
    char whole[4096];
    const char *name = realpath(path, whole) ? ours(whole) : NULL;
    if (!name) return real_unlink(path);
    pthread_mutex_lock(&turn);
    counted();
    int done = real_unlink(path);
    if (!done) told("unlink", name, 0, 0, NULL);
    pthread_mutex_unlock(&turn);
    return done;
}
