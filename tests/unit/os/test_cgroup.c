/* Limits from sample texts. The samples are in the formats that the kernel's documentation shows; the expected figures are
 * computed by hand. File trees stand in for /proc and /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/cgroup.h"
#include "os/cgroup_priv.h"
#include "os/dir.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

static void near(double a, double b)
{
    assert_true(a > b - 1e-9 && a < b + 1e-9);
}

static void parse_values(void **state)
{
    (void)state;
    double cpus = -1;
    uint64_t n;
    assert_true(cgroup__parse_cpu_max(STR("max 100000\n"), &cpus));
    near(cpus, 0);
    assert_true(cgroup__parse_cpu_max(STR("150000 100000\n"), &cpus));
    near(cpus, 1.5);
    assert_true(cgroup__parse_cpu_max(STR("5000 20000"), &cpus));
    near(cpus, 0.25);
    assert_false(cgroup__parse_cpu_max(STR(""), &cpus));
    assert_false(cgroup__parse_cpu_max(STR("100000\n"), &cpus));
    assert_false(cgroup__parse_cpu_max(STR("100000 0\n"), &cpus));
    assert_false(cgroup__parse_cpu_max(STR("-1 100000\n"), &cpus));
    assert_true(cgroup__parse_cpu_cfs(STR("-1\n"), STR("100000\n"), &cpus));
    near(cpus, 0);
    assert_true(cgroup__parse_cpu_cfs(STR("350000\n"), STR("100000\n"), &cpus));
    near(cpus, 3.5);
    assert_false(cgroup__parse_cpu_cfs(STR(""), STR("100000\n"), &cpus));
    assert_true(cgroup__parse_bytes(STR("max\n"), &n));
    assert_true(n == UINT64_MAX);
    assert_true(cgroup__parse_bytes(STR("9223372036854771712\n"), &n));
    assert_true(n == 9223372036854771712u);
    assert_false(cgroup__parse_bytes(STR("12 kB"), &n));
}

static void parse_keyed(void **state)
{
    (void)state;
    struct str stat = STR("anon 4096\nfile 81920\nfile_mapped 7\ninactive_file 40960\n");
    struct str meminfo = STR("MemTotal:       16384 kB\nMemFree:         1024 kB\nHugePages_Total:       0\n");
    uint64_t n;
    assert_true(cgroup__parse_keyed(stat, "file", &n));
    assert_int_equal(n, 81920);
    assert_true(cgroup__parse_keyed(stat, "inactive_file", &n));
    assert_int_equal(n, 40960);
    assert_false(cgroup__parse_keyed(stat, "active_file", &n));
    assert_true(cgroup__parse_keyed(meminfo, "MemTotal", &n));
    assert_int_equal(n, 16384 * 1024);
    assert_true(cgroup__parse_keyed(meminfo, "HugePages_Total", &n));
    assert_int_equal(n, 0);
    assert_false(cgroup__parse_keyed((struct str){0}, "MemTotal", &n));
}

#define SELF_V1 "12:cpu,cpuacct:/docker/ab12\n4:memory:/docker/ab12\n1:name=systemd:/docker/ab12\n0::/docker/ab12\n"
#define MOUNTS_V1                                                                                                              \
    "613 612 0:26 / / rw,relatime shared:1 master:2 - overlay overlay rw\n"                                                    \
    "620 613 0:29 /docker/ab12 /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:11 - cgroup cgroup rw,cpu,cpuacct\n"                \
    "621 613 0:30 /docker/ab12 /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n"
#define SELF_V2   "0::/kubepods.slice/pod7/box\n"
#define MOUNTS_V2 "31 24 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"

static void find_hierarchy(void **state)
{
    (void)state;
    struct str path, root, point;
    assert_true(cgroup__find_path(STR(SELF_V1), "memory", &path));
    assert_true(str_eqz(path, "/docker/ab12"));
    assert_true(cgroup__find_path(STR(SELF_V1), "cpu", &path));
    assert_true(cgroup__find_path(STR("3:cpuacct:/x\n"), "cpuacct", &path));
    assert_false(cgroup__find_path(STR("3:cpuacct:/x\n"), "cpu", &path));
    assert_false(cgroup__find_path(STR("3:cpuacct:/x\n"), "", &path));
    assert_true(cgroup__find_path(STR(SELF_V2), "", &path));
    assert_true(str_eqz(path, "/kubepods.slice/pod7/box"));
    assert_true(cgroup__find_mount(STR(MOUNTS_V1), "cpu", &root, &point));
    assert_true(str_eqz(root, "/docker/ab12"));
    assert_true(str_eqz(point, "/sys/fs/cgroup/cpu,cpuacct"));
    assert_false(cgroup__find_mount(STR(MOUNTS_V1), "", &root, &point));
    assert_true(cgroup__find_mount(STR(MOUNTS_V2), "", &root, &point));
    assert_true(str_eqz(point, "/sys/fs/cgroup"));
    assert_false(cgroup__find_mount(STR("garbage\n\n - \n1 2 3\n"), "", &root, &point));
}

static void joined(const char *root, const char *point, const char *path, const char *want)
{
    struct buf b = {0};
    cgroup__join(str_of(root), str_of(point), str_of(path), &b);
    assert_string_equal(buf_z(&b), want);
    buf_release(&b);
}

static void join_paths(void **state)
{
    (void)state;
    joined("/", "/sys/fs/cgroup", "/a/b", "/sys/fs/cgroup/a/b");
    joined("/", "/sys/fs/cgroup", "/", "/sys/fs/cgroup");
    joined("/docker/ab", "/sys/fs/cgroup/memory", "/docker/ab", "/sys/fs/cgroup/memory");
    joined("/docker/ab", "/sys/fs/cgroup/memory", "/docker/ab/sub", "/sys/fs/cgroup/memory/sub");
    joined("/docker/ab", "/sys/fs/cgroup/memory", "/docker/abc", "/sys/fs/cgroup/memory");
    joined("/docker/ab", "/sys/fs/cgroup/memory", "/else", "/sys/fs/cgroup/memory");
    joined("/", "/sys/fs/cgroup", "/../../outside", "/sys/fs/cgroup");
    joined("/", "/mnt/with\\040space", "/a", "/mnt/with space/a");
}

/* A file tree in a temporary folder. */
struct tree {
    char root[64];
};

static void put(struct tree *t, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", t->root, path);
    *strrchr(full, '/') = 0;
    assert_int_equal(os_dir_make(full, 0755, NULL), 0);
    full[strlen(full)] = '/';
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state)
{
    struct tree *t = calloc(1, sizeof *t);
    snprintf(t->root, sizeof t->root, "/tmp/inferd-test-XXXXXX");
    assert_non_null(mkdtemp(t->root));
    put(t, "/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:   8388608 kB\n"); /* 16 and 8 GiB */
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct tree *t = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", t->root);
    assert_int_equal(system(command), 0);
    free(t);
    return 0;
}

static void v2_tightest_level_counts(void **state)
{
    struct tree *t = *state;
    struct os_cpu_limits cpu;
    struct os_memory_limits mem;
    put(t, "/proc/self/cgroup", SELF_V2);
    put(t, "/proc/self/mountinfo", MOUNTS_V2);
#define BOX "/sys/fs/cgroup/kubepods.slice/pod7/box/"
#define POD "/sys/fs/cgroup/kubepods.slice/pod7/"
    put(t, BOX "cpu.max", "400000 100000\n");
    put(t, POD "cpu.max", "250000 100000\n");
    put(t, "/sys/fs/cgroup/kubepods.slice/cpu.max", "max 100000\n");
    cgroup__read_cpu(t->root, 16, &cpu);
    near(cpu.quota_cpus, 2.5);
    near(cpu.usable_cpus, 2.5);
    assert_int_equal(cpu.threads, 2);
    cgroup__read_cpu(t->root, 1, &cpu); /* affinity is tighter */
    near(cpu.usable_cpus, 1);
    assert_int_equal(cpu.threads, 1);
    put(t, BOX "memory.max", "4294967296\n");
    put(t, BOX "memory.current", "1073741824\n");
    put(t, BOX "memory.stat", "anon 1\ninactive_file 536870912\n");
    put(t, POD "memory.max", "6442450944\n"); /* 6 GiB, 5 used: 1 GiB left although the box has 3.5 */
    put(t, POD "memory.current", "5368709120\n");
    cgroup__read_memory(t->root, &mem);
    assert_true(mem.cgroup);
    assert_true(mem.limit_bytes == 4 * GIB);
    assert_true(mem.used_bytes == 512 * MIB);
    assert_true(mem.available_bytes == 1 * GIB);
    assert_true(mem.machine_bytes == 16 * GIB);
}

static void v1_in_a_container(void **state)
{
    struct tree *t = *state;
    struct os_cpu_limits cpu;
    struct os_memory_limits mem;
    put(t, "/proc/self/cgroup", SELF_V1);
    put(t, "/proc/self/mountinfo", MOUNTS_V1);
    put(t, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
    put(t, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put(t, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
    put(t, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1610612736\n");
    put(t, "/sys/fs/cgroup/memory/memory.stat", "inactive_file 9\ntotal_inactive_file 536870912\n");
    cgroup__read_cpu(t->root, 8, &cpu);
    near(cpu.usable_cpus, 0.5);
    assert_int_equal(cpu.threads, 1);
    cgroup__read_memory(t->root, &mem);
    assert_true(mem.limit_bytes == 2 * GIB && mem.used_bytes == 1 * GIB && mem.available_bytes == 1 * GIB && mem.cgroup);
}

static void unlimited_is_the_machine(void **state)
{
    struct tree *t = *state;
    struct os_cpu_limits cpu;
    struct os_memory_limits mem;
    put(t, "/proc/self/cgroup", SELF_V1);
    put(t, "/proc/self/mountinfo", MOUNTS_V1);
    put(t, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put(t, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put(t, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(t, "/sys/fs/cgroup/memory/memory.usage_in_bytes", "1610612736\n");
    cgroup__read_cpu(t->root, 8, &cpu);
    near(cpu.quota_cpus, 0);
    assert_int_equal(cpu.threads, 8);
    cgroup__read_memory(t->root, &mem);
    assert_true(!mem.cgroup && mem.limit_bytes == 16 * GIB && mem.used_bytes == 8 * GIB && mem.available_bytes == 8 * GIB);
}

static void nothing_readable(void **state)
{
    struct tree *t = *state;
    struct os_cpu_limits cpu;
    struct os_memory_limits mem;
    cgroup__read_cpu(t->root, 0, &cpu); /* no /proc/self at all */
    assert_int_equal(cpu.threads, 1);
    cgroup__read_memory(t->root, &mem);
    assert_true(mem.limit_bytes == 16 * GIB);
    put(t, "/proc/meminfo", "nonsense\n");
    cgroup__read_memory(t->root, &mem);
    assert_true(mem.machine_bytes == (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    assert_true(mem.available_bytes == mem.machine_bytes);
}

static void this_machine(void **state)
{
    (void)state;
    struct os_cpu_limits cpu;
    struct os_memory_limits mem;
    os_cpu_limits_read(&cpu);
    os_memory_limits_read(&mem);
    assert_true(cpu.threads >= 1 && cpu.threads <= (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
    assert_true(mem.limit_bytes > 0 && mem.limit_bytes <= mem.machine_bytes);
    assert_true(mem.used_bytes > 0 && mem.available_bytes > 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_values), cmocka_unit_test(parse_keyed), cmocka_unit_test(find_hierarchy),
        cmocka_unit_test(join_paths),   T(v2_tightest_level_counts),   T(v1_in_a_container),
        T(unlimited_is_the_machine),    T(nothing_readable),           cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
