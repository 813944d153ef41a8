/* process.c: /proc/self, parsed strictly; see proc(5). */
#include "os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/size.h"
#include "os/cgroup_priv.h"
#include "os/clock.h"
#include "os/dir.h"
#include "os/process_priv.h"
#include "os/sys_error.h"

#define TEXT_MAX_BYTES (16u << 20) /* /proc/stat has a line per interrupt */
#define FDS_MAX        4000000

bool process__parse_stat(struct str text, struct process__stat *out)
{
    size_t at = text.n;
    while (at && text.p[at - 1] != ')')
        at--;
    if (!at || at == text.n)
        return false;
    struct str rest = {text.p + at + 1, text.n - at - 1}, word;
    uint64_t *const wanted[] = {
        [20] = &out->threads, [22] = &out->start_ticks, [23] = &out->virtual_bytes, [24] = &out->rss_pages};
    for (size_t field = 3; field < COUNT_OF(wanted); field++) {
        if (!str_cut(&rest, ' ', &word))
            return false;
        if (wanted[field] && !str_to_u64(word, wanted[field]))
            return false;
    }
    return true;
}

static bool read_stat(struct process__stat *out)
{
    struct buf text = {0};
    bool ok = os_file_read("/proc/self/stat", TEXT_MAX_BYTES, &text, NULL) == 0 && process__parse_stat(buf_str(&text), out);
    buf_release(&text);
    return ok;
}

static uint64_t boot_seconds(void)
{
    struct buf text = {0};
    uint64_t s = 0;
    if (os_file_read("/proc/stat", TEXT_MAX_BYTES, &text, NULL) < 0 || !cgroup__parse_keyed(buf_str(&text), "btime", &s))
        s = 0;
    buf_release(&text);
    return s;
}

/* Since Linux 6.2 the size of /proc/self/fd is the number of open descriptors; before it is 0 and the names are counted. */
static uint64_t count_fds(void)
{
    struct stat st;
    struct os_dir_list l;
    int fd;
    uint64_t n = 0;
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
        return (uint64_t)st.st_size;
    if (os_dir_open("/proc/self/fd", &fd, NULL) < 0)
        return 0;
    if (os_dir_list(fd, FDS_MAX, &l, NULL) == 0) {
        n = l.n > 2 ? l.n - 2 : 0; /* less the two that the listing itself held */
        os_dir_list_release(&l);
    }
    os_close(fd);
    return n;
}

uint64_t os_process_rss_bytes(void)
{
    struct process__stat st;
    return read_stat(&st) ? st.rss_pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

void os_process_read(struct os_process_usage *out)
{
    struct process__stat st = {0};
    struct rlimit fds = {0};
    if (!read_stat(&st))
        st = (struct process__stat){0};
    getrlimit(RLIMIT_NOFILE, &fds);
    uint64_t boot = boot_seconds(), hz = (uint64_t)sysconf(_SC_CLK_TCK);
    *out = (struct os_process_usage){
        .rss_bytes = st.rss_pages * (uint64_t)sysconf(_SC_PAGESIZE),
        .virtual_bytes = st.virtual_bytes,
        .cpu_ns = os_process_cpu_ns(),
        .open_fds = count_fds(),
        .max_fds = fds.rlim_cur,
        .threads = st.threads,
        .start_wall_ns = boot && hz ? boot * 1000000000u + st.start_ticks * (1000000000u / hz) : 0,
    };
}

void os_stdio_open(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) < 0)
            return; /* no /dev/null: as before */
}

int os_fd_limit_raise(uint64_t want, uint64_t *got, struct error *err)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return os_error_set(err, errno, "cannot read the limit of open descriptors");
    *got = l.rlim_cur;
    rlim_t next = (rlim_t)MIN_OF(want, (uint64_t)l.rlim_max);
    if (next <= l.rlim_cur)
        return 0;
    l.rlim_cur = next;
    if (setrlimit(RLIMIT_NOFILE, &l) < 0)
        return os_error_set(err, errno, "cannot raise the limit of open descriptors to %llu", (unsigned long long)next);
    *got = next;
    return 0;
}

void os_memory_tune(void)
{
    mallopt(M_MMAP_THRESHOLD, 8 << 20);
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
}

/* Under the address sanitizer nothing is allocated there, and the first to trim would set glibc's arenas up, which two threads can't do at
 * once. */
void os_memory_trim(void)
{
#ifndef __SANITIZE_ADDRESS__
    malloc_trim(0);
#endif
}

bool os_process_hide(void)
{
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0;
}
