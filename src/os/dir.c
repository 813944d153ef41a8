/* dir.c: see dir.h for why names are resolved by the kernel. openat2 is called by number: glibc has no wrapper for it. */
#include "os/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/size.h"
#include "base/status.h"
#include "base/str.h"
#include "os/dir_priv.h"
#include "os/sys_error.h"

#define REL_MAX_BYTES 4096
#define RACE_RETRIES  100 /* openat2 answers EAGAIN when a rename elsewhere ran into its ".." checks */

int os_dir_open(const char *path, int *fd, struct error *err)
{
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *fd < 0 ? os_error_set(err, errno, "cannot open the folder %s", path) : 0;
}

static int check_relative(const char *rel, struct error *err)
{
    struct str rest = str_of(rel), part;
    if (!rest.n || rest.n > REL_MAX_BYTES)
        return error_set(err, STATUS_INVALID, "a file name in a folder has 1 to %d bytes, this one has %zu", REL_MAX_BYTES,
                         rest.n);
    if (rel[0] == '/')
        return error_set(err, STATUS_FORBIDDEN, "%s is an absolute path, it must be inside its folder", rel);
    while (str_cut(&rest, '/', &part))
        if (str_eq(part, STR("..")))
            return error_set(err, STATUS_FORBIDDEN, "%s leaves its folder by '..'", rel);
    return 0;
}

static bool is_link(int at, const char *name)
{
    struct stat st;
    return fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

int dir__walk(int dir, const char *rel, int flags)
{
    struct str rest = str_of(rel), part;
    int at = dir;
    while (str_cut(&rest, '/', &part)) {
        char name[256];
        bool last = !rest.p;
        if (!part.n && last)
            part = STR("."); /* "folder/" */
        else if (!part.n)
            continue;
        int fd = -1, e = ENAMETOOLONG;
        if (part.n < sizeof name) {
            memcpy(name, part.p, part.n);
            name[part.n] = 0;
            fd = openat(at, name, (last ? flags : O_PATH | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC);
            e = errno;
            if (fd < 0 && e == ENOTDIR && is_link(at, name))
                e = ELOOP;
        }
        if (at != dir)
            os_close(at);
        if (fd < 0)
            return -e;
        at = fd;
    }
    return at;
}

static int resolve_beneath(int dir, const char *rel, int flags)
{
    struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    for (int tries = 0; tries < RACE_RETRIES; tries++) {
        long fd = syscall(SYS_openat2, dir, rel, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno == ENOSYS || errno == EPERM) /* EPERM: a seccomp filter that does not know the call */
            return dir__walk(dir, rel, flags);
        if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
    return -EAGAIN;
}

static int check_kind(int fd, const char *rel, enum os_file_kind want, struct error *err)
{
    struct os_file_info info;
    int rc = os_file_info_fd(fd, &info, err);
    if (rc < 0)
        return rc;
    if (info.kind != want)
        return error_set(err, STATUS_INVALID, "%s is not a %s", rel, want == OS_FILE_DIRECTORY ? "folder" : "regular file");
    return 0;
}

int os_open_beneath(int dir, const char *rel, enum os_file_kind want, bool follow_out, int *fd, struct error *err)
{
    /* O_NONBLOCK: opening a FIFO must not wait for its other end; no effect on what is given out. */
    int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
    *fd = -1;
    int rc = check_relative(rel, err);
    if (rc < 0)
        return rc;
    int got = follow_out ? openat(dir, rel, flags | O_CLOEXEC) : resolve_beneath(dir, rel, flags);
    if (got < 0) {
        int e = follow_out ? errno : -got;
        if (e == EXDEV || e == ELOOP)
            return error_set(err, STATUS_FORBIDDEN,
                             "'%.200s' is a link that leaves its folder: put the file inside, or allow such links", rel);
        return e == ENXIO ? error_set(err, STATUS_INVALID, "%s is not a regular file", rel)
                          : os_error_set(err, e, "cannot open '%.200s'", rel);
    }
    rc = check_kind(got, rel, want, err);
    if (rc < 0)
        os_close(got);
    else
        *fd = got;
    return rc;
}

static enum os_file_kind kind_of(int dir, const struct dirent *e)
{
    struct stat st;
    switch (e->d_type) {
    case DT_REG:
        return OS_FILE_REGULAR;
    case DT_DIR:
        return OS_FILE_DIRECTORY;
    case DT_LNK:
        return OS_FILE_SYMLINK;
    case DT_UNKNOWN: /* some file systems don't say */
        if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return S_ISREG(st.st_mode)   ? OS_FILE_REGULAR
                   : S_ISDIR(st.st_mode) ? OS_FILE_DIRECTORY
                   : S_ISLNK(st.st_mode) ? OS_FILE_SYMLINK
                                         : OS_FILE_OTHER;
        return OS_FILE_OTHER;
    default:
        return OS_FILE_OTHER;
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct os_dir_entry *)a)->name, ((const struct os_dir_entry *)b)->name);
}

static int add_entry(struct os_dir_list *l, size_t *cap, const char *name, enum os_file_kind kind)
{
    if (l->n == *cap) {
        size_t bytes, more = *cap ? *cap * 2 : 16;
        void *grown = size_mul(more, sizeof *l->entries, &bytes) ? realloc(l->entries, bytes) : NULL;
        if (!grown)
            return STATUS_NOMEM;
        l->entries = grown;
        *cap = more;
    }
    char *copy = strdup(name);
    if (!copy)
        return STATUS_NOMEM;
    l->entries[l->n++] = (struct os_dir_entry){copy, kind};
    return 0;
}

static int read_entries(DIR *d, size_t limit, struct os_dir_list *out, struct error *err)
{
    size_t cap = 0;
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e)
            return errno ? os_error_set(err, errno, "cannot list a folder") : 0;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (out->n == limit)
            return error_set(err, STATUS_TOO_LARGE, "a folder has more than %zu entries", limit);
        if (add_entry(out, &cap, e->d_name, kind_of(dirfd(d), e)) < 0)
            return error_set(err, STATUS_NOMEM, "no memory to list a folder");
    }
}

int os_dir_list(int dir, size_t limit, struct os_dir_list *out, struct error *err)
{
    *out = (struct os_dir_list){0};
    /* A descriptor of its own: a duplicate would share the position with other listings of the same folder. */
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int rc = os_error_set(err, errno, "cannot list a folder");
        os_close(fd);
        return rc;
    }
    int rc = read_entries(d, limit, out, err);
    closedir(d);
    if (rc < 0)
        os_dir_list_release(out);
    else if (out->n)
        qsort(out->entries, out->n, sizeof *out->entries, by_name);
    return rc;
}

void os_dir_list_release(struct os_dir_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->entries[i].name);
    free(l->entries);
    *l = (struct os_dir_list){0};
}

int os_dir_make(const char *path, uint32_t mode, struct error *err)
{
    char *p = strdup(path);
    if (!p)
        return error_set(err, STATUS_NOMEM, "no memory to make the folder %s", path);
    int rc = 0;
    for (char *at = p + 1; *p && !rc; at++) {
        char c = *at;
        if (c && c != '/')
            continue;
        *at = 0;
        struct stat st;
        int e = mkdir(p, (mode_t)mode) < 0 ? errno : 0;
        if (e && (stat(p, &st) < 0 || !S_ISDIR(st.st_mode)))
            rc = os_error_set(err, e, "cannot make the folder %s", path);
        *at = c;
        if (!c)
            break;
    }
    free(p);
    return rc;
}
