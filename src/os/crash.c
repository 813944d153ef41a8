/* crash.c: see crash.h. Exception: process-wide variables live here, since a signal handler has no context pointer.
 *
 * The handler formats into a buffer on its own stack and writes each line by itself, so a report that dies half way still shows
 * what came before. Two threads that crash together: the first reports, the others wait to be killed with the process. */
#include "os/crash.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/check.h"
#include "base/size.h"
#include "os/dir.h"

#define STACK_BYTES    (128u << 10)
#define FRAMES_MAX     64
#define REPORTS_KEPT   20
#define REPORT_SECONDS 10 /* a report that takes longer hangs on a lock */

static struct {
    const char *version;
    char folder[4000];
    _Atomic int busy;
} crash;

static char build_id[41 + 24];
static pthread_once_t build_id_once = PTHREAD_ONCE_INIT;

static const struct {
    int number;
    const char *name;
} caught[] = {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"}, {SIGFPE, "SIGFPE"}, {SIGABRT, "SIGABRT"}};

/* A line under construction. Appending past the end cuts. */
struct line {
    char text[512];
    size_t n;
};

static void put(struct line *l, const char *z)
{
    while (*z && l->n < sizeof l->text - 1) {
        unsigned char c = (unsigned char)*z++;
        l->text[l->n++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
}

static void put_number(struct line *l, uint64_t v, unsigned base)
{
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = 0;
    do
        digits[--at] = "0123456789abcdef"[v % base];
    while (v /= base);
    put(l, base == 16 ? "0x" : "");
    put(l, digits + at);
}

static void end(struct line *l, const int fds[2])
{
    l->text[l->n++] = '\n';
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0) {
            ssize_t rc = write(fds[i], l->text, l->n);
            (void)rc;
        }
    l->n = 0;
}

static int open_report(void)
{
    struct line path = {.n = 0};
    if (!crash.folder[0])
        return -1;
    put(&path, "crash-");
    put_number(&path, (uint64_t)time(NULL), 10);
    put(&path, "-");
    put_number(&path, (uint64_t)getpid(), 10);
    put(&path, ".txt");
    path.text[path.n] = 0;
    int dir = open(crash.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -1;
    int fd = openat(dir, path.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    close(dir);
    return fd;
}

static const char *name_of(int number)
{
    for (size_t i = 0; i < COUNT_OF(caught); i++)
        if (caught[i].number == number)
            return caught[i].name;
    return "signal";
}

static void report_head(const siginfo_t *info, const int fds[2])
{
    struct line l = {.n = 0};
    char thread[17] = "?";
    const char *request = check_get_request();
    prctl(PR_GET_NAME, thread);
    put(&l, "inferd: crashed by ");
    put(&l, name_of(info->si_signo));
    put(&l, " (code ");
    put(&l, info->si_code < 0 ? "-" : "");
    put_number(&l, (uint64_t)(info->si_code < 0 ? -(int64_t)info->si_code : info->si_code), 10);
    if (info->si_code > 0 && info->si_signo != SIGABRT) {
        put(&l, ", address ");
        put_number(&l, (uintptr_t)info->si_addr, 16);
    }
    put(&l, "), time ");
    put_number(&l, (uint64_t)time(NULL), 10);
    end(&l, fds);
    put(&l, "version ");
    put(&l, crash.version ? crash.version : "unknown");
    put(&l, ", build id ");
    put(&l, build_id[0] ? build_id : "none");
    end(&l, fds);
    put(&l, "pid ");
    put_number(&l, (uint64_t)getpid(), 10);
    put(&l, ", thread ");
    put(&l, thread);
    put(&l, " (");
    put_number(&l, (uint64_t)syscall(SYS_gettid), 10);
    put(&l, "), request ");
    put(&l, request ? request : "none");
    end(&l, fds);
}

/* "#3 0x55.. inferd+0x1234 (batcher_push+0x52)": module+offset is what addr2line -e wants. Frames behind the first are return
 * addresses: the call is the byte before, which also counts where a call to a noreturn function ends its caller. */
static void report_frame(size_t i, void *pc, const int fds[2])
{
    const char *address = (const char *)pc - (i > 0 && pc ? 1 : 0);
    struct line l = {.n = 0};
    Dl_info where;
    put(&l, "#");
    put_number(&l, i, 10);
    put(&l, " ");
    put_number(&l, (uintptr_t)address, 16);
    if (dladdr(address, &where) && where.dli_fname) {
        const char *slash = strrchr(where.dli_fname, '/');
        put(&l, " ");
        put(&l, slash ? slash + 1 : where.dli_fname);
        put(&l, "+");
        put_number(&l, (uintptr_t)address - (uintptr_t)where.dli_fbase, 16);
        if (where.dli_sname) {
            put(&l, " (");
            put(&l, where.dli_sname);
            put(&l, "+");
            put_number(&l, (uintptr_t)address - (uintptr_t)where.dli_saddr, 16);
            put(&l, ")");
        }
    }
    end(&l, fds);
}

/* The instruction that faulted; NULL on a machine that this file does not know. */
static void *fault_address(const void *context)
{
    const ucontext_t *uc = context;
#if defined(__x86_64__)
    return (void *)uc->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (void *)uc->uc_mcontext.pc;
#else
    (void)uc;
    return NULL;
#endif
}

static void report(const siginfo_t *info, const void *context)
{
    void *frames[FRAMES_MAX];
    int fds[2] = {STDERR_FILENO, open_report()};
    report_head(info, fds);
    /* Before unwinding: what is certain. A jump to a bad address leaves no frame of its own, and then the handler's frames
     * are shown too. */
    void *fault = fault_address(context);
    size_t shown = 0;
    report_frame(shown++, fault, fds);
    int n = backtrace(frames, FRAMES_MAX), first = 0;
    for (int i = 0; i < n; i++)
        if (frames[i] == fault)
            first = i + 1;
    for (int i = first; i < n; i++)
        report_frame(shown++, frames[i], fds);
    if (fds[1] >= 0) {
        fsync(fds[1]);
        close(fds[1]);
    }
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    if (atomic_exchange(&crash.busy, 1))
        for (;;)
            pause();
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t alarm_only;
    sigaction(SIGALRM, &plain, NULL);
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    alarm(REPORT_SECONDS);
    report(info, context);
    alarm(0);
    sigaction(number, &plain, NULL);
    /* A fault happens again at the same instruction when this returns; a signal that was sent must be sent again. */
    if (info->si_code <= 0)
        raise(number);
}

void *os_crash_stack_enter(void)
{
    void *p = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    stack_t st = {.ss_sp = p, .ss_size = STACK_BYTES};
    sigaltstack(&st, NULL);
    return p;
}

void os_crash_stack_leave(void *stack)
{
    if (!stack)
        return;
    stack_t st = {.ss_flags = SS_DISABLE};
    sigaltstack(&st, NULL);
    munmap(stack, STACK_BYTES);
}

static int find_build_id(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    (void)ctx;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        const char *at = (const char *)(uintptr_t)(info->dlpi_addr + ph->p_vaddr), *stop = at + ph->p_memsz;
        while (ph->p_type == PT_NOTE && (size_t)(stop - at) >= sizeof(ElfW(Nhdr))) {
            const ElfW(Nhdr) *note = (const void *)at;
            const unsigned char *name = (const unsigned char *)(note + 1), *desc = name + ((note->n_namesz + 3) & ~3u);
            if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4)) {
                for (size_t b = 0; b < note->n_descsz && b * 2 + 3 < sizeof build_id; b++)
                    snprintf(build_id + b * 2, 3, "%02x", desc[b]);
                return 1;
            }
            at = (const char *)desc + ((note->n_descsz + 3) & ~3u);
        }
    }
    return 1; /* only the first object: the program itself */
}

static void read_build_id(void)
{
    dl_iterate_phdr(find_build_id, NULL);
    if (!build_id[0])
        memcpy(build_id, "none", 5);
}

const char *os_build_id(void)
{
    pthread_once(&build_id_once, read_build_id);
    return build_id;
}

static void remove_old_reports(int dir)
{
    struct os_dir_list l;
    size_t reports = 0;
    if (os_dir_list(dir, 100000, &l, NULL) < 0)
        return;
    for (size_t i = l.n; i-- > 0;) /* by name, so by time; newest first */
        if (str_starts(str_of(l.entries[i].name), STR("crash-")) && str_ends(str_of(l.entries[i].name), STR(".txt")) &&
            ++reports > REPORTS_KEPT)
            unlinkat(dir, l.entries[i].name, 0);
    os_dir_list_release(&l);
}

static int prepare_folder(const char *folder, struct error *err)
{
    int dir = -1, rc = os_dir_make(folder, 0750, err);
    if (rc == 0)
        rc = os_dir_open(folder, &dir, err);
    if (rc < 0)
        return error_prefix(err, "crash reports go to stderr only");
    remove_old_reports(dir);
    os_close(dir);
    snprintf(crash.folder, sizeof crash.folder, "%s", folder);
    return 0;
}

int os_crash_install(const char *folder, const char *version, struct error *err)
{
    void *frame;
    struct sigaction act = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigfillset(&act.sa_mask);
    os_build_id();
    backtrace(&frame, 1); /* loads the unwinder now, so that the handler need not */
    crash.version = version;
    crash.folder[0] = 0;
    int rc = folder ? prepare_folder(folder, err) : 0;
    os_crash_stack_enter();
    for (size_t i = 0; i < COUNT_OF(caught); i++)
        sigaction(caught[i].number, &act, NULL);
    return rc;
}
