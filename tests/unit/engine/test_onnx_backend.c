/* test_onnx_backend.c: the ONNX project's own backend test data (Debian's libonnx-testdata), each case through the engine: load the
 * model, run its inputs, compare with its outputs. Skipped where the data isn't installed.
 *
 * A case ends in one of: right; refused (inferd names a thing that the protocol has no word for); not in the runtime (it says that it
 * can't load the model); or wrong. What is wrong here must be wrong in ONNX Runtime's own Python binding too: those cases are
 * listed with their reason (tests/wire/onnx_backend_exceptions.txt), and nothing else may be wrong. INFERD_VERBOSE=1 prints every case
 * that isn't right. */
#include <dirent.h>
#include <math.h>

#include "base/size.h"
#include "engine/onnx_rig.h"

#define DATA "/usr/share/libonnx-testdata/data"

/* ---- a reader of TensorProto files, independent of the code under test ---- */

struct reader {
    const uint8_t *p, *end;
};

static uint64_t varint(struct reader *r)
{
    uint64_t v = 0;
    for (int s = 0; s < 64 && r->p < r->end; s += 7) {
        v |= (uint64_t)(*r->p & 127) << s;
        if (!(*r->p++ & 128))
            break;
    }
    return v;
}

struct read_tensor {
    struct tensor t;
    uint8_t *data; /* owned */
    size_t n, cap;
    bool dense; /* a TensorProto of a datatype that we have */
};

static void push(struct read_tensor *t, const void *p, size_t n)
{
    if (t->n + n > t->cap) {
        t->cap = (t->n + n) * 2 + 64;
        uint8_t *grown = aligned_alloc(64, (t->cap + 63) & ~(size_t)63);
        if (t->n)
            memcpy(grown, t->data, t->n);
        free(t->data);
        t->data = grown;
    }
    if (n)
        memcpy(t->data + t->n, p, n);
    t->n += n;
}

static void push_text(struct read_tensor *t, const void *p, size_t n)
{
    uint32_t len = (uint32_t)n;
    push(t, &len, 4);
    push(t, p, n);
}

static enum dtype dtype_of(uint64_t onnx)
{
    static const enum dtype types[17] = {
        [1] = DTYPE_FP32,  [2] = DTYPE_UINT8,   [3] = DTYPE_INT8,    [4] = DTYPE_UINT16, [5] = DTYPE_INT16,
        [6] = DTYPE_INT32, [7] = DTYPE_INT64,   [8] = DTYPE_BYTES,   [9] = DTYPE_BOOL,   [10] = DTYPE_FP16,
        [11] = DTYPE_FP64, [12] = DTYPE_UINT32, [13] = DTYPE_UINT64, [16] = DTYPE_BF16};
    return onnx < 17 ? types[onnx] : DTYPE_INVALID;
}

/* Typed integer fields hold one varint an element, whatever the element's width. */
static void push_int(struct read_tensor *t, uint64_t v)
{
    push(t, &v, dtype_bytes(t->t.dtype));
}

static void tensor_field(struct read_tensor *t, struct reader *r)
{
    uint64_t tag = varint(r), field = tag >> 3, v = 0;
    struct reader body = *r;
    if ((tag & 7) == 0) {
        v = varint(r);
    } else {
        uint64_t n = (tag & 7) == 2 ? varint(r) : (tag & 7) == 5 ? 4 : 8;
        body = (struct reader){r->p, r->p + n};
        r->p += n;
    }
    if (field == 1 && (tag & 7) == 0)
        t->t.shape.dim[t->t.shape.rank++] = (int64_t)v;
    while (field == 1 && (tag & 7) == 2 && body.p < body.end)
        t->t.shape.dim[t->t.shape.rank++] = (int64_t)varint(&body);
    if (field == 2)
        t->t.dtype = dtype_of(v);
    if (field == 6)
        push_text(t, body.p, (size_t)(body.end - body.p));
    if (field == 4 || field == 9 || field == 10)
        push(t, body.p, (size_t)(body.end - body.p));
    if (field == 5 || field == 7 || field == 11) {
        if ((tag & 7) == 0)
            push_int(t, v);
        while ((tag & 7) == 2 && body.p < body.end)
            push_int(t, varint(&body));
    }
}

/* False when there is no such file. */
static bool read_tensor(const char *folder, const char *kind, size_t k, struct read_tensor *t)
{
    static uint8_t file[8 << 20];
    char path[1200];
    *t = (struct read_tensor){0};
    snprintf(path, sizeof path, "%s/test_data_set_0/%s_%zu.pb", folder, kind, k);
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    size_t n = fread(file, 1, sizeof file, f), want;
    fclose(f);
    assert_true(n < sizeof file);
    struct reader r = {file, file + n};
    while (r.p < r.end)
        tensor_field(t, &r);
    t->t.data = slice_borrow(t->data, t->n);
    t->dense = t->t.dtype == DTYPE_BYTES || (tensor_bytes(t->t.dtype, &t->t.shape, &want) && want == t->n);
    return true;
}

/* ---- comparing: tolerance of ONNX's own runner (rtol 1e-3, atol 1e-7), halves looser ---- */

static double number(enum dtype t, const uint8_t *p, size_t i)
{
    float f;
    double d;
    uint16_t h;
    switch (t) {
    case DTYPE_FP32:
        memcpy(&f, p + 4 * i, 4);
        return f;
    case DTYPE_FP64:
        memcpy(&d, p + 8 * i, 8);
        return d;
    default:
        memcpy(&h, p + 2 * i, 2);
        return t == DTYPE_FP16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
}

static bool same(const struct tensor *got, const struct tensor *want)
{
    if (got->dtype != want->dtype || !shape_eq(&got->shape, &want->shape) || got->data.n != want->data.n)
        return false;
    bool real = got->dtype == DTYPE_FP32 || got->dtype == DTYPE_FP64 || got->dtype == DTYPE_FP16 || got->dtype == DTYPE_BF16;
    if (!real)
        return got->data.n == 0 || memcmp(got->data.p, want->data.p, got->data.n) == 0;
    for (size_t i = 0; i < got->data.n / dtype_bytes(got->dtype); i++) {
        double a = number(got->dtype, got->data.p, i), b = number(want->dtype, want->data.p, i);
        if (!(a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-7 + 1e-3 * fabs(b)))
            return false;
    }
    return true;
}

/* ---- cases ---- */

enum verdict { RIGHT, REFUSED, NOT_IN_RUNTIME, WRONG };

static struct engine *engine;
static char why[ERROR_TEXT_BYTES];

static enum verdict run_loaded(struct rig *r, const char *folder)
{
    const struct engine_contract *c = engine_onnx.contract(r->m);
    struct read_tensor in[16], want;
    enum verdict verdict = RIGHT;
    for (size_t k = 0; k < c->n_inputs; k++) {
        if (!read_tensor(folder, "input", k, &in[k]) || !in[k].dense)
            snprintf(why, sizeof why, "input %zu can't be read", k), verdict = WRONG;
        r->in[k] = in[k].t;
    }
    if (verdict == RIGHT && rig_run(r)) {
        snprintf(why, sizeof why, "%s", r->err.text);
        verdict = r->err.code == STATUS_UNIMPLEMENTED ? NOT_IN_RUNTIME : WRONG;
    }
    for (size_t k = 0; verdict == RIGHT && k < c->n_outputs; k++) {
        if (read_tensor(folder, "output", k, &want) && !same(&r->out[k], &want.t))
            snprintf(why, sizeof why, "output %zu differs", k), verdict = WRONG;
        free(want.data);
    }
    for (size_t k = 0; k < c->n_inputs; k++)
        free(in[k].data);
    return verdict;
}

static enum verdict run_case(const char *folder)
{
    struct rig r;
    why[0] = 0;
    int rc = rig_load_at(&r, engine, folder, NULL, 0);
    if (rc) {
        snprintf(why, sizeof why, "%s", r.err.text);
        return strstr(why, "ONNX Runtime refused") ? NOT_IN_RUNTIME : REFUSED;
    }
    enum verdict v = run_loaded(&r, folder);
    rig_end(&r);
    return v;
}

/* The cases that ONNX Runtime's Python binding gets wrong as well, with reasons: the wire tests' list, one "name: reason" a line. */
#define EXCEPTIONS TEST_DATA "/../wire/onnx_backend_exceptions.txt"

static bool is_listed(const char *name)
{
    char line[512];
    size_t n = strlen(name);
    bool found = false;
    FILE *f = fopen(EXCEPTIONS, "r");
    assert_non_null(f);
    while (!found && fgets(line, sizeof line, f))
        found = strncmp(line, name, n) == 0 && line[n] == ':';
    fclose(f);
    return found;
}

static bool is_known(const char *name)
{
    /* the locale en_US, where the system has none */
    return strcmp(name, "test_strnorm_model_nostopwords_nochangecase") == 0 ||
           strcmp(name, "test_strnormalizer_nostopwords_nochangecase") == 0 || is_listed(name);
}

static void backend_data(void **state)
{
    (void)state;
    static const char *const groups[] = {"node", "simple", "pytorch-converted", "pytorch-operator"};
    size_t count[4] = {0}, unexpected = 0;
    bool verbose = getenv("INFERD_VERBOSE") != NULL;
    for (size_t g = 0; g < COUNT_OF(groups); g++) {
        char path[512];
        snprintf(path, sizeof path, DATA "/%s", groups[g]);
        DIR *d = opendir(path);
        if (!d)
            skip();
        for (struct dirent *e; (e = readdir(d));) {
            char folder[1024];
            if (e->d_name[0] == '.')
                continue;
            snprintf(folder, sizeof folder, "%s/%s", path, e->d_name);
            enum verdict v = run_case(folder);
            count[v]++;
            bool bad = v == WRONG && !is_known(e->d_name);
            unexpected += bad;
            if (bad || (verbose && v != RIGHT))
                print_message("%s: %s: %s\n",
                              v == WRONG     ? "wrong"
                              : v == REFUSED ? "refused"
                                             : "not in the runtime",
                              e->d_name, why);
        }
        closedir(d);
    }
    print_message("ONNX backend data: %zu right, %zu refused by name, %zu not in the runtime, %zu wrong\n", count[RIGHT],
                  count[REFUSED], count[NOT_IN_RUNTIME], count[WRONG]);
    assert_int_equal(unexpected, 0);
    assert_true(count[RIGHT] > 900);
}

int main(void)
{
    if (rig_must_skip())
        return 0;
    engine = rig_engine(NULL, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(backend_data)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    engine_onnx.close(engine);
    return rc;
}
