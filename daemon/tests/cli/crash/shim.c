/* Counts what a process does to the files below CRASH_DIR, and at the CRASH_AT-th of these operations does what CRASH_HOW
 * says: `kill` dies before it, `torn` does half of a write and dies, `full` and `readonly` refuse every write from then on,
 * `unsynced` refuses every sync. What was done is written to CRASH_TRACE, with what was said on standard error between.
 * Loaded with LD_PRELOAD; the process is otherwise the one that ships. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate64)(int, off64_t);
static int (*real_unlink)(const char *);

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void)
{
    real_pwrite64 = next("pwrite64");
    real_write = next("write");
    real_fsync = next("fsync");
    real_fdatasync = next("fdatasync");
    real_ftruncate64 = next("ftruncate64");
    real_unlink = next("unlink");
    dir = getenv("CRASH_DIR");
    if (getenv("CRASH_HOW")) how = getenv("CRASH_HOW");
    if (getenv("CRASH_AT")) at = atol(getenv("CRASH_AT"));
    const char *path = getenv("CRASH_TRACE");
    if (path) trace = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
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

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
{
    char path[4096];
    const char *name = name_of(fd, path, sizeof path);
    if (!name) return real_pwrite64(fd, bytes, size, offset);
    pthread_mutex_lock(&turn);
    long number = counted();
    ssize_t done;
    if (number == at && !strcmp(how, "torn")) {
        real_pwrite64(fd, bytes, size / 2, offset);
        die();
    }
    if (refuses(number, "full") || refuses(number, "readonly")) {
        errno = strcmp(how, "full") ? EROFS : ENOSPC;
        done = -1;
    } else {
        done = real_pwrite64(fd, bytes, size, offset);
        int saved = errno;
        if (done > 0) told("write", name, offset, (size_t)done, bytes);
        errno = saved;
    }
    pthread_mutex_unlock(&turn);
    return done;
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
    return real_write(fd, bytes, size);
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
