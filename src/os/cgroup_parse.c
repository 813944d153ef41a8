/* cgroup_parse.c: pure parsers behind cgroup.h. Formats: Linux Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/, and
 * proc(5) for /proc/pid/cgroup and /proc/pid/mountinfo. */
#include "os/cgroup_priv.h"

static struct str chomp(struct str s)
{
    while (s.n && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == ' '))
        s.n--;
    return s;
}

static bool ratio(uint64_t quota, uint64_t period, double *cpus)
{
    if (!quota || !period)
        return false;
    *cpus = (double)quota / (double)period;
    return true;
}

bool cgroup__parse_cpu_max(struct str text, double *cpus)
{
    struct str rest = chomp(text), first;
    uint64_t quota, period;
    if (!str_cut(&rest, ' ', &first) || !str_to_u64(rest, &period))
        return false;
    if (str_eq(first, STR("max"))) {
        *cpus = 0;
        return true;
    }
    return str_to_u64(first, &quota) && ratio(quota, period, cpus);
}

bool cgroup__parse_cpu_cfs(struct str quota, struct str period, double *cpus)
{
    int64_t q;
    uint64_t p;
    if (!str_to_i64(chomp(quota), &q) || !str_to_u64(chomp(period), &p))
        return false;
    if (q < 0) {
        *cpus = 0;
        return true;
    }
    return ratio((uint64_t)q, p, cpus);
}

bool cgroup__parse_bytes(struct str text, uint64_t *bytes)
{
    struct str s = chomp(text);
    if (str_eq(s, STR("max"))) {
        *bytes = UINT64_MAX;
        return true;
    }
    return str_to_u64(s, bytes);
}

bool cgroup__parse_keyed(struct str text, const char *key, uint64_t *value)
{
    struct str line, name = str_of(key);
    while (str_cut(&text, '\n', &line)) {
        if (!str_starts(line, name) || line.n == name.n)
            continue;
        struct str v = {line.p + name.n, line.n - name.n};
        if (v.p[0] == ':')
            v = (struct str){v.p + 1, v.n - 1};
        else if (v.p[0] != ' ')
            continue;
        v = str_trim(v);
        uint64_t unit = 1;
        if (str_ends(v, STR(" kB"))) {
            unit = 1024;
            v.n -= 3;
        }
        return str_to_u64(v, value) && !__builtin_mul_overflow(*value, unit, value);
    }
    return false;
}

static bool has_word(struct str words, const char *word)
{
    struct str w;
    while (str_cut(&words, ',', &w))
        if (str_eqz(w, word))
            return true;
    return false;
}

bool cgroup__find_path(struct str text, const char *controller, struct str *path)
{
    struct str line;
    while (str_cut(&text, '\n', &line)) { /* "4:memory:/docker/ab", "3:cpu,cpuacct:/", "0::/user.slice" */
        struct str rest = line, id, controllers;
        if (!str_cut(&rest, ':', &id) || !str_cut(&rest, ':', &controllers) || !rest.p)
            continue;
        if (*controller ? !has_word(controllers, controller) : controllers.n != 0)
            continue;
        *path = rest;
        return true;
    }
    return false;
}

bool cgroup__find_mount(struct str text, const char *controller, struct str *root, struct str *point)
{
    struct str line;
    /* id parent major:minor ROOT POINT options [optional...] - TYPE source SUPEROPTIONS */
    while (str_cut(&text, '\n', &line)) {
        struct str rest = line, word, found_root = {0}, found_point = {0}, type = {0}, super = {0};
        size_t field = 0, behind = 0;
        while (str_cut(&rest, ' ', &word)) {
            field++;
            if (behind)
                behind++;
            else if (field > 6 && str_eq(word, STR("-")))
                behind = 1;
            if (field == 4)
                found_root = word;
            else if (field == 5)
                found_point = word;
            else if (behind == 2)
                type = word;
            else if (behind == 4)
                super = word;
        }
        if (*controller ? str_eq(type, STR("cgroup")) && has_word(super, controller) : str_eq(type, STR("cgroup2"))) {
            *root = found_root;
            *point = found_point;
            return true;
        }
    }
    return false;
}

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

static void append_unescaped(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\\' && s.n - i > 3 && is_octal(s.p[i + 1]) && is_octal(s.p[i + 2]) && is_octal(s.p[i + 3])) {
            buf_append_c(out, (char)((s.p[i + 1] - '0') << 6 | (s.p[i + 2] - '0') << 3 | (s.p[i + 3] - '0')));
            i += 3;
        } else {
            buf_append_c(out, s.p[i]);
        }
    }
}

void cgroup__join(struct str root, struct str point, struct str path, struct buf *out)
{
    append_unescaped(out, point);
    if (str_eq(root, STR("/")))
        root.n = 0;
    if (!str_starts(path, root) || (path.n > root.n && path.p[root.n] != '/'))
        return;
    struct str below = {path.p + root.n, path.n - root.n};
    if (below.n > 1 && !str_starts(below, STR("/..")))
        buf_append_str(out, below); /* /proc/self/cgroup does not escape */
}
