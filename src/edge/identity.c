/* identity.c: see identity.h. One allocation holds the struct and its strings. */
#include "edge/identity.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"

#define PATTERN_BYTES 256
#define LABEL_BYTES   64

static const struct {
    const char *name;
    unsigned bit;
} scope_names[] = {{"infer", EDGE_INFER}, {"read", EDGE_READ}, {"admin", EDGE_ADMIN}};

static struct str or_default(struct str s, const char *z)
{
    return s.n ? s : str_of(z);
}

/* Copy `s` to *at with a NUL and move behind it. */
static const char *put(char **at, struct str s)
{
    char *z = *at;
    memcpy(z, s.p, s.n);
    z[s.n] = 0;
    *at = z + s.n + 1;
    return z;
}

struct edge_identity *edge_identity_create(const struct edge_identity_spec *s)
{
    struct str id = or_default(s->id, "-"), name = or_default(s->name, "-"), tenant = or_default(s->tenant, "default");
    struct str models = or_default(s->models, "*"), quota = or_default(s->quota, "default");
    size_t bytes = sizeof(struct edge_identity) + 5, parts[] = {id.n, name.n, tenant.n, models.n, quota.n};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (!size_add(bytes, parts[i], &bytes))
            return NULL;
    struct edge_identity *i = malloc(bytes);
    if (!i)
        return NULL;
    char *at = (char *)(i + 1);
    *i = (struct edge_identity){.kind = s->kind, .scopes = s->scopes, .expires_s = s->expires_s};
    atomic_init(&i->refs, 1);
    i->id = put(&at, id);
    i->name = put(&at, name);
    i->tenant = put(&at, tenant);
    i->models = put(&at, models);
    i->quota = put(&at, quota);
    return i;
}

struct edge_identity *edge_identity_ref(struct edge_identity *i)
{
    atomic_fetch_add_explicit(&i->refs, 1, memory_order_relaxed);
    return i;
}

void edge_identity_unref(struct edge_identity *i)
{
    if (i && atomic_fetch_sub_explicit(&i->refs, 1, memory_order_acq_rel) == 1)
        free(i);
}

bool edge_sees_model(const struct edge_identity *i, struct str model)
{
    return edge_pattern_match(str_of(i->models), model);
}

bool edge_sees_every_model(const struct edge_identity *i)
{
    struct str rest = str_of(i->models), part;
    while (str_cut(&rest, ',', &part))
        if (str_eqz(part, "*"))
            return true;
    return false;
}

/* The next word of a list with commas or spaces between. */
static bool next_word(struct str *rest, struct str *word)
{
    while (rest->n && (*rest->p == ' ' || *rest->p == ','))
        rest->p++, rest->n--;
    size_t n = 0;
    while (n < rest->n && rest->p[n] != ' ' && rest->p[n] != ',')
        n++;
    *word = (struct str){rest->p, n};
    rest->p += n, rest->n -= n;
    return n > 0;
}

int edge_scopes_parse(struct str text, unsigned *out, struct error *err)
{
    struct str word;
    unsigned bits = 0;
    while (next_word(&text, &word)) {
        size_t i = 0;
        while (i < COUNT_OF(scope_names) && !str_eqz(word, scope_names[i].name))
            i++;
        if (i == COUNT_OF(scope_names))
            return error_set(err, STATUS_INVALID, "scope \"%.*s\" is not known; accepted: infer, read, admin", STR_ARG(word));
        bits |= scope_names[i].bit;
    }
    if (!bits)
        return error_set(err, STATUS_INVALID, "no scope is named; accepted: infer, read, admin");
    *out = bits;
    return 0;
}

void edge_scopes_render(unsigned scopes, struct buf *out)
{
    bool comma = false;
    for (size_t i = 0; i < COUNT_OF(scope_names); i++) {
        if (!(scopes & scope_names[i].bit))
            continue;
        if (comma)
            buf_append_c(out, ',');
        buf_append_z(out, scope_names[i].name);
        comma = true;
    }
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

bool edge_pattern_valid(struct str pattern)
{
    struct str rest = pattern, part;
    if (pattern.n == 0 || pattern.n > PATTERN_BYTES)
        return false;
    while (str_cut(&rest, ',', &part)) {
        if (!part.n)
            return false;
        for (size_t i = 0; i < part.n; i++)
            if (!is_name_char(part.p[i]) && part.p[i] != '*' && part.p[i] != '?')
                return false;
    }
    return pattern.p[pattern.n - 1] != ',';
}

/* One glob against the whole of `s`: on a mismatch go back to the last star and let it take one character more. */
static bool glob(struct str g, struct str s)
{
    size_t i = 0, j = 0, star = SIZE_MAX, mark = 0;
    while (j < s.n) {
        if (i < g.n && g.p[i] == '*') {
            star = i++;
            mark = j;
        } else if (i < g.n && (g.p[i] == '?' || g.p[i] == s.p[j])) {
            i++, j++;
        } else if (star != SIZE_MAX) {
            i = star + 1;
            j = ++mark;
        } else {
            return false;
        }
    }
    while (i < g.n && g.p[i] == '*')
        i++;
    return i == g.n;
}

bool edge_pattern_match(struct str pattern, struct str name)
{
    struct str part;
    if (pattern.n == 1 && pattern.p[0] == '*')
        return true;
    while (str_cut(&pattern, ',', &part))
        if (glob(part, name))
            return true;
    return false;
}

bool edge_label_valid(struct str label)
{
    for (size_t i = 0; i < label.n; i++)
        if (!is_name_char(label.p[i]) && label.p[i] != '@' && label.p[i] != ':' && label.p[i] != '/')
            return false;
    return label.n > 0 && label.n <= LABEL_BYTES;
}
