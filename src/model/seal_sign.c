/* seal_sign.c: see seal_sign.h: the manifest's text. Keys and signatures: seal_sign_keys.c. */
#include "model/seal_sign.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "model/seal_sign_priv.h"
#include "model/version_name_priv.h"

#define FIRST_LINE "inferd-signature 1"
#define PATH_MAX_N 4096u

bool sign_path_valid(struct str path)
{
    struct str part;
    if (!path.n || path.n > PATH_MAX_N)
        return false;
    for (size_t i = 0; i < path.n; i++)
        if ((unsigned char)path.p[i] < 0x20 || path.p[i] == 0x7f)
            return false;
    while (str_cut(&path, '/', &part))
        if (!part.n || str_eqz(part, ".") || str_eqz(part, ".."))
            return false;
    return true;
}

static int compare(const struct sign_entry *a, const struct sign_entry *b)
{
    if (a->model_file != b->model_file)
        return a->model_file ? 1 : -1;
    int c = memcmp(a->path.p, b->path.p, MIN_OF(a->path.n, b->path.n));
    return c ? c : (a->path.n > b->path.n) - (a->path.n < b->path.n);
}

static int by_path(const void *a, const void *b)
{
    return compare(a, b);
}

/* ---- parsing ---- */

struct reading {
    struct sign_manifest *m;
    size_t cap, line;
    struct arena *a;
};

static int wrong(const struct reading *r, const char *what, struct error *err)
{
    return error_set(err, STATUS_INVALID, "the signature file's line %zu %s", r->line, what);
}

bool sign__unhex(struct str text, uint8_t *out, size_t n)
{
    if (text.n != 2 * n)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (d < 0)
            return false;
        out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | d : d << 4);
    }
    return true;
}

static int add_entry(struct reading *r, bool model_file, struct str rest, struct error *err)
{
    struct sign_manifest *m = r->m;
    struct str digest, bytes;
    struct sign_entry e = {.model_file = model_file};
    if (!str_cut(&rest, ' ', &digest) || !str_cut(&rest, ' ', &bytes) || !sign__unhex(digest, e.sha256, sizeof e.sha256) ||
        !str_to_u64(bytes, &e.bytes) || !sign_path_valid(rest))
        return wrong(r, "is not \"file SHA256 BYTES PATH\"", err);
    e.path = rest;
    if (m->n && compare(&m->entries[m->n - 1], &e) >= 0)
        return wrong(r, "is out of order, or names a file twice", err);
    if (m->n == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 16;
        struct sign_entry *v = cap > SIGN_ENTRIES_MAX ? NULL : arena_array(r->a, cap, sizeof *v);
        if (!v)
            return error_set(err, STATUS_TOO_LARGE, "the signature file lists more than %zu files", m->n);
        if (m->n)
            memcpy(v, m->entries, m->n * sizeof *v);
        m->entries = v;
        r->cap = cap;
    }
    m->entries[m->n++] = e;
    return 0;
}

/* One line of the body; `text` is without its end. */
static int body_line(struct reading *r, struct str text, struct error *err)
{
    struct str word, rest = text;
    struct sign_manifest *m = r->m;
    if (r->line == 1)
        return str_eqz(text, FIRST_LINE) ? 0 : wrong(r, "is not \"" FIRST_LINE "\"", err);
    if (!str_cut(&rest, ' ', &word) || !rest.n)
        return wrong(r, "is not a word and a value", err);
    if (r->line == 2 && str_eqz(word, "model") && str_is_model_name(rest))
        return m->model = rest, 0;
    if (r->line == 3 && str_eqz(word, "version") && version_name_valid(rest))
        return m->version = rest, 0;
    if (r->line > 3 && str_eqz(word, "file"))
        return add_entry(r, false, rest, err);
    if (r->line > 3 && str_eqz(word, "model-file"))
        return add_entry(r, true, rest, err);
    return wrong(r, "is unknown, or not in its place", err);
}

int sign_parse(struct str text, struct arena *a, struct sign_manifest *out, struct error *err)
{
    struct reading r = {.m = out, .a = a};
    size_t at = 0;
    *out = (struct sign_manifest){0};
    while (at < text.n) {
        const char *end = memchr(text.p + at, '\n', text.n - at);
        struct str line = {text.p + at, end ? (size_t)(end - text.p) - at : text.n - at};
        r.line++;
        if (!end)
            return wrong(&r, "has no end", err);
        if (str_starts(line, STR("signature ")))
            break;
        int rc = body_line(&r, line, err);
        if (rc)
            return rc;
        at += line.n + 1;
    }
    out->body = (struct str){text.p, at};
    out->signatures = (struct str){text.p + at, text.n - at};
    if (!out->version.n || !out->n || !out->signatures.n)
        return error_set(err, STATUS_INVALID, "the signature file has no %s line",
                         !out->version.n ? "version"
                         : !out->n       ? "file"
                                         : "signature");
    return 0;
}

const struct sign_entry *sign_find(const struct sign_manifest *m, bool model_file, struct str path)
{
    while (str_starts(path, STR("./")))
        path = (struct str){path.p + 2, path.n - 2};
    struct sign_entry key = {.model_file = model_file, .path = path};
    return m->n && path.n ? bsearch(&key, m->entries, m->n, sizeof key, by_path) : NULL;
}

/* ---- rendering ---- */

static void append_hex(struct buf *out, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%02x", p[i]);
}

void sign_render(struct str model, struct str version, struct sign_entry *entries, size_t n, struct buf *out)
{
    if (n)
        qsort(entries, n, sizeof *entries, by_path);
    buf_printf(out, FIRST_LINE "\nmodel %.*s\nversion %.*s\n", STR_ARG(model), STR_ARG(version));
    for (size_t i = 0; i < n; i++) {
        buf_append_z(out, entries[i].model_file ? "model-file " : "file ");
        append_hex(out, entries[i].sha256, SIGN_DIGEST_BYTES);
        buf_printf(out, " %llu %.*s\n", (unsigned long long)entries[i].bytes, STR_ARG(entries[i].path));
    }
}
