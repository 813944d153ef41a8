/* sandbox.c: see sandbox.h. The numbers are the kernel's (include/uapi/linux/landlock.h); they stand here since the headers that inferd is built
 * with may be older than the kernel that it runs on. */
#include "os/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status.h"
#include "os/sys_error.h"

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif

#define ASK_VERSION       1u
#define RULE_PATH_BENEATH 1

#define FS_EXECUTE    (1ull << 0)
#define FS_WRITE_FILE (1ull << 1)
#define FS_READ_FILE  (1ull << 2)
#define FS_READ_DIR   (1ull << 3)
#define FS_VERSION_1  ((1ull << 13) - 1) /* removing, and making of each kind */
#define FS_REFER      (1ull << 13)       /* 2: renames between folders; before it none is possible at all */
#define FS_TRUNCATE   (1ull << 14)       /* 3 */
#define FS_OF_FILES   (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE)

struct ruleset {
    uint64_t handled_access_fs;
};

struct path_rule {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

/* What this version of Landlock decides on; everything that is not allowed somewhere is then forbidden. */
static uint64_t handled(long version)
{
    return FS_VERSION_1 | (version >= 2 ? FS_REFER : 0) | (version >= 3 ? FS_TRUNCATE : 0);
}

static int allow(int rules, const struct os_sandbox_path *p, uint64_t all, struct error *err)
{
    struct stat st;
    int fd = open(p->path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == EACCES || errno == ENOTDIR ? 0 : os_error_set(err, errno, "cannot open %s", p->path);
    uint64_t access = p->write ? all & ~FS_EXECUTE : FS_READ_FILE | FS_READ_DIR;
    if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
        access &= FS_OF_FILES;
    struct path_rule rule = {access & all, fd};
    int rc = syscall(SYS_landlock_add_rule, rules, RULE_PATH_BENEATH, &rule, 0) == 0
                 ? 0
                 : os_error_set(err, errno, "cannot allow %s in the sandbox", p->path);
    close(fd);
    return rc;
}

int os_sandbox_files(const struct os_sandbox_path *paths, size_t n, struct error *err)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION);
    if (version < 1)
        return error_set(err, STATUS_UNIMPLEMENTED, "this kernel has no Landlock, or it is not enabled (%s)",
                         errno == EOPNOTSUPP ? "lsm= at boot" : "Linux 5.13 and later have it");
    struct ruleset set = {handled(version)};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &set, sizeof set, 0), rc = 0;
    if (rules < 0)
        return os_error_set(err, errno, "cannot make a Landlock ruleset");
    for (size_t i = 0; i < n && !rc; i++)
        rc = allow(rules, &paths[i], set.handled_access_fs, err);
    if (!rc && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_landlock_restrict_self, rules, 0) != 0))
        rc = os_error_set(err, errno, "cannot enter the sandbox");
    close(rules);
    return rc;
}
