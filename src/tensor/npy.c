/* npy.c: see npy.h.
 *
 *   \x93NUMPY | major u8 | minor u8 | header length u16 (1.0) or u32 (2.0, 3.0) | header | data
 *
 * The header is a Python dict literal of exactly three keys, in any order:
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 * It is read by a scanner that knows only that much of Python. */
#include "tensor/npy.h"

#include <stdio.h>

#include "base/size.h"
#include "base/status.h"
#include "tensor/tensor_priv.h"

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

struct header {
    char order, kind; /* '<' '>' '|' '='; 'f', 'i', ... */
    uint64_t width;   /* of an element: bytes; for U: characters */
    bool fortran;
    struct shape shape;
    unsigned seen; /* one bit a key */
};

/* ---- the dict literal ---- */

struct scan {
    const char *p, *end;
};

static char peek(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t'))
        s->p++;
    return s->p < s->end ? *s->p : 0;
}

static bool eat(struct scan *s, char c)
{
    if (peek(s) != c)
        return false;
    s->p++;
    return true;
}

static bool eat_word(struct scan *s, const char *w)
{
    size_t n = strlen(w);
    peek(s);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, w, n) != 0)
        return false;
    s->p += n;
    return true;
}

static bool eat_string(struct scan *s, struct str *out)
{
    char quote = peek(s);
    if (quote != '\'' && quote != '"')
        return false;
    const char *first = ++s->p;
    while (s->p < s->end && *s->p != quote && *s->p != '\\')
        s->p++;
    if (s->p == s->end || *s->p != quote)
        return false;
    *out = (struct str){first, (size_t)(s->p++ - first)};
    return true;
}

static bool eat_number(struct scan *s, uint64_t *out)
{
    peek(s);
    const char *first = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return str_to_u64((struct str){first, (size_t)(s->p - first)}, out);
}

static int bad_header(const char *what, struct error *err)
{
    return error_set(err, STATUS_INVALID, ".npy file: %s", what);
}

static int read_descr(struct scan *s, struct header *h, struct error *err)
{
    struct str d;
    uint64_t width = 0;
    if (!eat_string(s, &d))
        return bad_header("'descr' is not one plain type; structures are not taken", err);
    bool ok = d.n >= 3 && memchr("<>|=", d.p[0], 4) && str_to_u64((struct str){d.p + 2, d.n - 2}, &width);
    if (ok && memchr("biufSU", d.p[1], 6)) {
        h->order = d.p[0];
        h->kind = d.p[1];
        h->width = width;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID,
                     ".npy file: its type '%.*s' is not one of bool, int8..int64, uint8..uint64, float16, float32, float64 "
                     "and strings (b1, i1..i8, u1..u8, f2, f4, f8, S, U)%s",
                     NAME_ARG(d), d.n >= 2 && d.p[1] == 'O' ? "; Python objects are never loaded" : "");
}

static int read_shape(struct scan *s, struct header *h, struct error *err)
{
    uint64_t dim;
    h->shape.rank = 0;
    if (!eat(s, '('))
        return bad_header("'shape' is not a tuple", err);
    while (!eat(s, ')')) {
        if (h->shape.rank == TENSOR_RANK_MAX)
            return bad_header("'shape' has more than 16 dimensions", err);
        if (!eat_number(s, &dim) || dim > INT64_MAX)
            return bad_header("'shape' has a dimension that is not a whole number of 63 bits", err);
        eat(s, 'L'); /* Python 2's long */
        h->shape.dim[h->shape.rank++] = (int64_t)dim;
        if (!eat(s, ',') && peek(s) != ')')
            return bad_header("'shape' is not a tuple", err);
    }
    return STATUS_OK;
}

static int read_key(struct scan *s, struct header *h, struct error *err)
{
    struct str key;
    if (!eat_string(s, &key) || !eat(s, ':'))
        return bad_header("its header is not a dict of names and values", err);
    unsigned bit = str_eqz(key, "descr") ? 1 : str_eqz(key, "fortran_order") ? 2 : str_eqz(key, "shape") ? 4 : 0;
    if (!bit || (h->seen & bit))
        return error_set(err, STATUS_INVALID, ".npy file: its header has an unknown or repeated key '%.*s'", NAME_ARG(key));
    h->seen |= bit;
    if (bit == 1)
        return read_descr(s, h, err);
    if (bit == 4)
        return read_shape(s, h, err);
    h->fortran = eat_word(s, "True");
    return h->fortran || eat_word(s, "False") ? STATUS_OK : bad_header("'fortran_order' is not True or False", err);
}

static int read_dict(struct scan *s, struct header *h, struct error *err)
{
    *h = (struct header){0};
    if (!eat(s, '{'))
        return bad_header("its header is not a dict", err);
    while (!eat(s, '}')) {
        int rc = read_key(s, h, err);
        if (rc)
            return rc;
        if (!eat(s, ',') && peek(s) != '}')
            return bad_header("its header is not a dict of names and values", err);
    }
    if (peek(s))
        return bad_header("something stands behind the dict in its header", err);
    return h->seen == 7 ? STATUS_OK : bad_header("its header lacks one of descr, fortran_order and shape", err);
}

/* The dtype, and the bytes of one element in the file. */
static enum dtype dtype_of(const struct header *h, size_t *each)
{
    static const struct {
        char kind;
        uint8_t width;
        enum dtype dtype;
    } types[] = {{'b', 1, DTYPE_BOOL},   {'i', 1, DTYPE_INT8},  {'i', 2, DTYPE_INT16},  {'i', 4, DTYPE_INT32},
                 {'i', 8, DTYPE_INT64},  {'u', 1, DTYPE_UINT8}, {'u', 2, DTYPE_UINT16}, {'u', 4, DTYPE_UINT32},
                 {'u', 8, DTYPE_UINT64}, {'f', 2, DTYPE_FP16},  {'f', 4, DTYPE_FP32},   {'f', 8, DTYPE_FP64}};
    *each = (size_t)h->width;
    if (h->kind == 'S')
        return DTYPE_BYTES;
    if (h->kind == 'U')
        return size_mul((size_t)h->width, 4, each) ? DTYPE_BYTES : DTYPE_INVALID;
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (types[i].kind == h->kind && types[i].width == h->width)
            return types[i].dtype;
    return DTYPE_INVALID;
}

/* ---- data ---- */

/* Elements in C order: calls for each with its place in the file. */
struct walk {
    const uint8_t *data;
    size_t each;
    const struct header *h;
    size_t stride[TENSOR_RANK_MAX]; /* in the file, in elements */
    int64_t index[TENSOR_RANK_MAX];
    size_t at; /* element in the file */
};

static void walk_init(struct walk *w, const struct header *h, const uint8_t *data, size_t each)
{
    size_t step = 1, rank = h->shape.rank;
    *w = (struct walk){.data = data, .each = each, .h = h};
    for (size_t i = 0; i < rank; i++) {
        size_t axis = h->fortran ? i : rank - 1 - i;
        w->stride[axis] = step;
        step *= (size_t)h->shape.dim[axis]; /* the product of all is known to fit */
    }
}

static const uint8_t *walk_next(struct walk *w)
{
    const uint8_t *p = w->data + w->at * w->each;
    for (size_t k = w->h->shape.rank; k-- > 0;) {
        w->at += w->stride[k];
        if (++w->index[k] < w->h->shape.dim[k])
            break;
        w->at -= w->stride[k] * (size_t)w->h->shape.dim[k];
        w->index[k] = 0;
    }
    return p;
}

static int copy_numbers(const struct header *h, const uint8_t *data, size_t each, size_t n, struct tensor *out,
                        struct error *err)
{
    struct slab *s = slab_create(n * each);
    if (!s)
        return error_set(err, STATUS_NOMEM, ".npy file: no memory for its %zu bytes", n * each);
    struct walk w;
    walk_init(&w, h, data, each);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = walk_next(&w);
        for (size_t k = 0; k < each; k++)
            s->data[i * each + k] = p[h->order == '>' ? each - 1 - k : k];
    }
    s->n = n * each;
    out->data = (struct slice){s->data, s->n, s};
    return STATUS_OK;
}

/* One fixed-width element as text, without its trailing NULs; false: not Unicode. A UCS-4 character takes at most the four
 * bytes that it has in the file. */
static bool string_of(const struct header *h, const uint8_t *p, size_t each, uint8_t *out, size_t *n)
{
    *n = 0;
    if (h->kind == 'S') {
        for (*n = each; *n && p[*n - 1] == 0;)
            --*n;
        if (*n)
            memcpy(out, p, *n);
        return true;
    }
    size_t chars = each / 4;
    while (chars && load_u32(p + 4 * (chars - 1)) == 0)
        chars--;
    for (size_t i = 0; i < chars; i++) {
        uint32_t c = load_u32(p + 4 * i);
        c = h->order == '>' ? __builtin_bswap32(c) : c;
        if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return false;
        *n += str_utf8_put(c, out + *n);
    }
    return true;
}

static int copy_strings(const struct header *h, const uint8_t *data, size_t each, size_t n, struct tensor *out,
                        struct error *err)
{
    size_t cap, at = 0;
    if (!size_add(each, 4, &cap) || !size_mul(cap, n, &cap))
        return error_set(err, STATUS_NOMEM, ".npy file: no memory for its strings");
    struct slab *s = slab_create(cap);
    if (!s)
        return error_set(err, STATUS_NOMEM, ".npy file: no memory for its %zu bytes of strings", cap);
    struct walk w;
    walk_init(&w, h, data, each);
    for (size_t i = 0; i < n; i++) {
        size_t len;
        bool ok = string_of(h, walk_next(&w), each, s->data + at + 4, &len) && len <= UINT32_MAX;
        if (!ok) {
            slab_unref(s);
            return error_set(err, STATUS_INVALID, ".npy file: string %zu is not Unicode text below 4 GiB", i);
        }
        store_u32(s->data + at, (uint32_t)len);
        at += 4 + len;
    }
    s->n = at;
    out->data = (struct slice){s->data, at, s};
    return STATUS_OK;
}

static int read_data(const struct header *h, struct slice file, size_t at, struct tensor *out, struct error *err)
{
    size_t each, left = file.n - at, want;
    uint64_t n;
    char shape[160];
    out->dtype = dtype_of(h, &each);
    out->shape = h->shape;
    if (out->dtype == DTYPE_INVALID)
        return error_set(err, STATUS_INVALID, ".npy file: there is no type '%c' of %llu bytes", h->kind,
                         (unsigned long long)h->width);
    if (!shape_elements(&h->shape, &n) || !size_mul((size_t)n, each, &want) || want != left)
        return error_set(err, STATUS_INVALID, ".npy file: its shape %s does not fit the %zu bytes of data that it has",
                         shape_format(&h->shape, shape, sizeof shape), left);
    if (n > 0 && each == 0) /* only the shape would say how much to allocate, and nothing would back it */
        return bad_header("its strings have no width", err);
    if (out->dtype == DTYPE_BYTES)
        return copy_strings(h, file.p + at, each, (size_t)n, out, err);
    if ((h->order == '>' && each > 1) || (h->fortran && h->shape.rank > 1))
        return copy_numbers(h, file.p + at, each, (size_t)n, out, err);
    out->data = (struct slice){file.p + at, want, file.owner};
    if (file.owner)
        slab_ref(file.owner);
    return STATUS_OK;
}

int npy_read(struct slice file, struct tensor *out, struct error *err)
{
    struct header h;
    size_t at = 10, len;
    *out = (struct tensor){0};
    if (file.n < at || memcmp(file.p, magic, sizeof magic) != 0)
        return bad_header("it does not start with \\x93NUMPY and a version", err);
    unsigned major = file.p[6];
    if (major < 1 || major > 3 || file.p[7] != 0)
        return error_set(err, STATUS_INVALID, ".npy file: its version is %u.%u; 1.0, 2.0 and 3.0 are read", major, file.p[7]);
    len = (size_t)file.p[8] | (size_t)file.p[9] << 8;
    if (major > 1) {
        at = 12;
        if (file.n < at)
            return bad_header("it ends inside its header's length", err);
        len = load_u32(file.p + 8);
    }
    if (len > file.n - at)
        return error_set(err, STATUS_INVALID, ".npy file: its header says %zu bytes, but only %zu follow", len, file.n - at);
    struct scan s = {(const char *)file.p + at, (const char *)file.p + at + len};
    int rc = read_dict(&s, &h, err);
    if (!rc)
        rc = read_data(&h, file, at + len, out, err);
    if (!rc)
        rc = tensor_check(out, err); /* BOOL values */
    if (rc)
        tensor_release(out);
    return rc;
}

/* ---- writing ---- */

/* The widest BYTES element; false when one ends in a NUL. */
static bool bytes_width(const struct tensor *t, size_t *width, size_t *bad)
{
    *width = 1; /* numpy has no S0 */
    *bad = 0;
    for (size_t at = 0; at < t->data.n; ++*bad) {
        size_t len = load_u32(t->data.p + at);
        if (len && t->data.p[at + 4 + len - 1] == 0)
            return false;
        *width = MAX_OF(*width, len);
        at += 4 + len;
    }
    return true;
}

static void write_header(const char *descr, const struct shape *shape, struct buf *out)
{
    char dict[64 + 24 * TENSOR_RANK_MAX];
    size_t n = (size_t)snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (size_t i = 0; i < shape->rank; i++)
        n += (size_t)snprintf(dict + n, sizeof dict - n, i ? ", %lld" : "%lld", (long long)shape->dim[i]);
    n += (size_t)snprintf(dict + n, sizeof dict - n, "%s), }", shape->rank == 1 ? "," : "");
    size_t pad = 63 - (10 + n) % 64; /* data starts at a multiple of 64, the header ends in a newline */
    uint16_t len = (uint16_t)(n + pad + 1);
    buf_append(out, magic, sizeof magic);
    buf_append(out, "\1\0", 2);
    buf_append(out, &len, sizeof len);
    buf_append(out, dict, n);
    for (size_t i = 0; i < pad; i++)
        buf_append_c(out, ' ');
    buf_append_c(out, '\n');
}

static void write_strings(const struct tensor *t, size_t width, struct buf *out)
{
    for (size_t at = 0; at < t->data.n;) {
        size_t len = load_u32(t->data.p + at);
        char *to = buf_reserve(out, width);
        if (!to)
            return;
        memset(to, 0, width);
        if (len)
            memcpy(to, t->data.p + at + 4, len);
        out->n += width;
        at += 4 + len;
    }
}

static void write_bf16(const struct tensor *t, struct buf *out)
{
    for (size_t at = 0; at + 2 <= t->data.n; at += 2) {
        uint16_t h;
        memcpy(&h, t->data.p + at, sizeof h);
        float f = bf16_to_f32(h);
        buf_append(out, &f, sizeof f);
    }
}

int npy_write(const struct tensor *t, struct buf *out, struct error *err)
{
    static const char *const descr[DTYPE_COUNT] = {
        [DTYPE_BOOL] = "|b1", [DTYPE_UINT8] = "|u1", [DTYPE_UINT16] = "<u2", [DTYPE_UINT32] = "<u4", [DTYPE_UINT64] = "<u8",
        [DTYPE_INT8] = "|i1", [DTYPE_INT16] = "<i2", [DTYPE_INT32] = "<i4",  [DTYPE_INT64] = "<i8",  [DTYPE_FP16] = "<f2",
        [DTYPE_FP32] = "<f4", [DTYPE_FP64] = "<f8",  [DTYPE_BF16] = "<f4"};
    char text[32];
    size_t width, bad;
    if (t->dtype == DTYPE_BYTES) {
        if (!bytes_width(t, &width, &bad))
            return error_set(err, STATUS_INVALID, "'%.*s': element %zu ends in a NUL byte, which a .npy string can't keep",
                             NAME_ARG(t->name), bad);
        snprintf(text, sizeof text, "|S%zu", width);
        write_header(text, &t->shape, out);
        write_strings(t, width, out);
    } else {
        write_header(descr[t->dtype], &t->shape, out);
        if (t->dtype == DTYPE_BF16)
            write_bf16(t, out);
        else
            buf_append(out, t->data.p, t->data.n);
    }
    return out->failed ? error_set(err, STATUS_NOMEM, "'%.*s': no memory for its .npy file", NAME_ARG(t->name)) : STATUS_OK;
}
