/* version_name.c: parsing and order of version names, after semver.org 2.0.0 sections 2, 9, 10, 11. */
#include "model/version_name_priv.h"

#include "base/size.h"

struct version_name {
    uint64_t number[3];
    bool semver;
    struct str pre, build;
};

/* Digits without a leading zero ("0" itself is fine). */
static bool number(struct str s, uint64_t *out)
{
    return s.n && (s.n == 1 || s.p[0] != '0') && s.p[0] != '-' && str_to_u64(s, out);
}

static bool identifiers(struct str s, bool numeric_rule)
{
    struct str part;
    if (!s.n)
        return false;
    while (str_cut(&s, '.', &part)) {
        bool digits = true;
        for (size_t i = 0; i < part.n; i++) {
            char c = part.p[i];
            bool digit = c >= '0' && c <= '9';
            if (!digit && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '-')
                return false;
            digits &= digit;
        }
        if (!part.n || (numeric_rule && digits && part.n > 1 && part.p[0] == '0'))
            return false;
    }
    return true;
}

static struct str cut_at(struct str *s, char sep)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->p[i] == sep) {
            struct str tail = {s->p + i + 1, s->n - i - 1};
            s->n = i;
            return tail;
        }
    return (struct str){0};
}

static bool parse(struct str s, struct version_name *v)
{
    *v = (struct version_name){0};
    if (s.n > 64 || !s.n)
        return false;
    if (number(s, &v->number[0]))
        return s.p[0] != '0'; /* as in Triton, 0 and zero-prefixed folders are no versions */
    bool ends_bad = s.p[s.n - 1] == '.' || s.p[s.n - 1] == '-' || s.p[s.n - 1] == '+';
    v->semver = true;
    v->build = cut_at(&s, '+');
    v->pre = cut_at(&s, '-');
    if (ends_bad || (v->build.p && !identifiers(v->build, false)) || (v->pre.p && !identifiers(v->pre, true)))
        return false;
    struct str part;
    int n = 0;
    while (str_cut(&s, '.', &part))
        if (n == 3 || !number(part, &v->number[n++]))
            return false;
    return n == 3;
}

bool version_name_valid(struct str s)
{
    struct version_name v;
    return parse(s, &v);
}

static int bytes(struct str a, struct str b)
{
    int c = memcmp(a.p ? a.p : "", b.p ? b.p : "", MIN_OF(a.n, b.n));
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

static int compare_pre(struct str a, struct str b)
{
    if (!a.n || !b.n)
        return !a.n && !b.n ? 0 : a.n ? -1 : 1; /* a release is above its pre-releases */
    for (;;) {
        struct str x, y;
        bool more_a = str_cut(&a, '.', &x), more_b = str_cut(&b, '.', &y);
        if (!more_a || !more_b)
            return more_a - more_b;
        uint64_t m, n;
        bool num_x = str_to_u64(x, &m), num_y = str_to_u64(y, &n);
        int c = num_x && num_y ? (m > n) - (m < n) : num_x != num_y ? (num_x ? -1 : 1) : bytes(x, y);
        if (c)
            return c;
    }
}

int version_name_compare(struct str a, struct str b)
{
    struct version_name x, y;
    parse(a, &x);
    parse(b, &y);
    for (int i = 0; i < 3; i++)
        if (x.number[i] != y.number[i])
            return x.number[i] > y.number[i] ? 1 : -1;
    int c = compare_pre(x.pre, y.pre);
    return c ? c : bytes(a, b);
}
