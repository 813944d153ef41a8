/* sink.c: see sink.h. */
#include "os/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/status.h"
#include "os/wake_priv.h"
#include "os/sys_error.h"

static int open_file(const char *path, struct error *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0640);
    return fd < 0 ? os_error_set(err, errno, "cannot open the log file %s", path) : fd;
}

static void look(struct os_sink *s)
{
    struct stat st;
    s->unlimited = fstat(s->fd, &st) == 0 && S_ISREG(st.st_mode);
    s->terminal = isatty(s->fd);
}

/* A duplicate of `fd`. */
static int open_fd(int fd, struct os_sink *out, struct error *err)
{
    *out = (struct os_sink){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)};
    if (out->fd < 0)
        return os_error_set(err, errno, "cannot use descriptor %d for log lines", fd);
    look(out);
    return 0;
}

int os_sink_open(const char *path, struct os_sink *out, struct error *err)
{
    if (!strcmp(path, "-") || !strcmp(path, "stderr"))
        return open_fd(STDERR_FILENO, out, err);
    if (!strcmp(path, "stdout"))
        return open_fd(STDOUT_FILENO, out, err);
    *out = (struct os_sink){.fd = -1, .path = strdup(path)};
    if (!out->path)
        return error_set(err, STATUS_NOMEM, "no memory for the log file %s", path);
    int fd = open_file(path, err);
    if (fd < 0) {
        os_sink_close(out);
        return fd;
    }
    out->fd = fd;
    look(out);
    return 0;
}

void os_sink_close(struct os_sink *s)
{
    if (s->fd >= 0)
        close(s->fd);
    free(s->path);
    *s = (struct os_sink){.fd = -1};
}

int os_sink_reopen(struct os_sink *s, struct error *err)
{
    if (!s->path)
        return 0;
    int fd = open_file(s->path, err);
    if (fd < 0)
        return fd;
    int rc = dup3(fd, s->fd, O_CLOEXEC) < 0 ? os_error_set(err, errno, "cannot switch to the new log file %s", s->path) : 0;
    close(fd);
    return rc;
}

int os_sink_write(struct os_sink *s, const void *p, size_t n, uint64_t until_ns)
{
    struct pollfd ready = {.fd = s->fd, .events = POLLOUT};
    ASSERT(s->unlimited || n <= OS_SINK_PIECE_BYTES);
    for (const char *at = p, *end = at + n; at < end;) {
        if (!s->unlimited && poll__until(&ready, 1, until_ns) <= 0)
            return STATUS_AGAIN;
        ssize_t put = write(s->fd, at, (size_t)(end - at));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return os_status_of_errno(errno);
        at += put;
    }
    return 0;
}
