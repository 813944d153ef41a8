/* json_tensor.c: speed of the JSON tensor codec, against a memcpy of the same text and against yyjson, in one run on one
 * core. Built and run by bench/json_tensor.sh. Each figure is the best of several rounds; peers are interleaved, so that a
 * busy machine slows them alike. Our decode is the whole request (infer_json_decode); yyjson parses it and its array is
 * copied into floats, which is the least that a server on it would do. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <yyjson.h>

#include "base/buf.h"
#include "tensor/infer_json.h"
#include "tensor/infer_json_encode.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t state = 42;
static uint64_t rnd(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

enum form { FLOAT_WIDENED, FLOAT_SHORTEST, FLOAT_PIXEL, FLOAT_NESTED, DOUBLES, INTS, SMALL_INTS, STRINGS };
static const struct {
    const char *name;
    enum dtype dtype;
} forms[] = {{"FP32, 17 digits (numpy tolist)", DTYPE_FP32},
             {"FP32, shortest", DTYPE_FP32},
             {"FP32, 4 digits", DTYPE_FP32},
             {"FP32, nested rows of 8, spaced", DTYPE_FP32},
             {"FP64, 17 digits", DTYPE_FP64},
             {"INT64, any", DTYPE_INT64},
             {"UINT8, pixels", DTYPE_UINT8},
             {"BYTES, 24 characters", DTYPE_BYTES}};

static void element(struct buf *b, enum form f)
{
    float v = (float)((double)(int64_t)rnd() * 0x1p-63);
    switch (f) {
    case FLOAT_WIDENED:
        buf_printf(b, "%.17g", (double)v);
        break;
    case FLOAT_SHORTEST:
    case FLOAT_NESTED:
        buf_printf(b, "%.9g", (double)v);
        break;
    case FLOAT_PIXEL:
        buf_printf(b, "%.4f", (double)v);
        break;
    case DOUBLES:
        buf_printf(b, "%.17g", (double)(int64_t)rnd() * 0x1p-60);
        break;
    case INTS:
        buf_append_i64(b, (int64_t)rnd() >> (rnd() & 63));
        break;
    case SMALL_INTS:
        buf_append_u64(b, rnd() & 255);
        break;
    case STRINGS:
        buf_append_z(b, "\"a label of some length \"");
        break;
    }
}

static void request(struct buf *b, enum form f, size_t n)
{
    bool nested = f == FLOAT_NESTED;
    buf_init(b);
    buf_printf(b, "{\"inputs\":[{\"name\":\"x\",\"shape\":[%zu,8],\"datatype\":\"%s\",\"data\":[", n / 8,
               dtype_name(forms[f].dtype));
    for (size_t i = 0; i < n; i++) {
        if (i)
            buf_append_z(b, nested && i % 8 == 0 ? "], " : nested ? ", " : ",");
        if (nested && i % 8 == 0)
            buf_append_c(b, '[');
        element(b, f);
    }
    buf_append_z(b, nested ? "]]}]}" : "]}]}");
}

static double peer_decode(struct str text, enum dtype t, void *out)
{
    double start = now();
    yyjson_doc *doc = yyjson_read(text.p, text.n, 0);
    yyjson_val *data = yyjson_obj_get(yyjson_arr_get(yyjson_obj_get(yyjson_doc_get_root(doc), "inputs"), 0), "data");
    size_t i, n, k, m;
    yyjson_val *v, *w;
    float *f = out;
    double *d = out;
    int64_t *l = out;
    uint8_t *u = out;
    yyjson_arr_foreach(data, i, n, v)
    {
        if (yyjson_is_arr(v))
            yyjson_arr_foreach(v, k, m, w) *f++ = (float)yyjson_get_num(w);
        else if (t == DTYPE_FP32)
            *f++ = (float)yyjson_get_num(v);
        else if (t == DTYPE_FP64)
            *d++ = yyjson_get_num(v);
        else if (t == DTYPE_INT64)
            *l++ = yyjson_get_sint(v);
        else if (t == DTYPE_UINT8)
            *u++ = (uint8_t)yyjson_get_uint(v);
        else {
            uint32_t len = (uint32_t)yyjson_get_len(v);
            memcpy(u, &len, 4);
            memcpy(u + 4, yyjson_get_str(v), len);
            u += 4 + len;
        }
    }
    yyjson_doc_free(doc);
    return now() - start;
}

static double peer_encode(const struct tensor *t, size_t n, size_t *bytes)
{
    double start = now();
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *a = yyjson_mut_arr(doc);
    yyjson_mut_doc_set_root(doc, a);
    const uint8_t *s = t->data.p;
    for (size_t i = 0; i < n; i++) {
        if (t->dtype == DTYPE_FP32)
            yyjson_mut_arr_add_real(doc, a, (double)((const float *)s)[i]);
        else if (t->dtype == DTYPE_FP64)
            yyjson_mut_arr_add_real(doc, a, ((const double *)s)[i]);
        else if (t->dtype == DTYPE_INT64)
            yyjson_mut_arr_add_int(doc, a, ((const int64_t *)s)[i]);
        else if (t->dtype == DTYPE_UINT8)
            yyjson_mut_arr_add_uint(doc, a, s[i]);
        else {
            yyjson_mut_arr_add_strn(doc, a, (const char *)t->data.p + i * 28 + 4, 24);
        }
    }
    char *text = yyjson_mut_write(doc, 0, bytes);
    double took = now() - start;
    free(text);
    yyjson_mut_doc_free(doc);
    return took;
}

static void die(const struct error *e)
{
    fprintf(stderr, "json_tensor: %s\n", e->text);
    exit(1);
}

static void measure(enum form f, size_t n, int rounds)
{
    struct buf text, out;
    struct arena a;
    struct error err;
    struct infer_json r;
    double dec = 1e9, copy = 1e9, pdec = 1e9, enc = 1e9, penc = 1e9;
    size_t peer_bytes = 0;
    request(&text, f, n);
    char *to = malloc(text.n);
    void *values = malloc(text.n + n * 8);
    arena_init(&a, 4096, 0);
    buf_init(&out);
    for (int i = 0; i < rounds; i++) {
        double t = now();
        memcpy(to, text.p, text.n);
        __asm__ volatile("" : : "r"(to) : "memory");
        copy = copy < now() - t ? copy : now() - t;
        t = now();
        if (infer_json_decode(buf_str(&text), slice_borrow(NULL, 0), &a, NULL, &r, &err))
            die(&err);
        dec = dec < now() - t ? dec : now() - t;
        t = peer_decode(buf_str(&text), forms[f].dtype, values);
        pdec = pdec < t ? pdec : t;
        if (memcmp(values, r.inputs[0].data.p, r.inputs[0].data.n) != 0)
            fprintf(stderr, "json_tensor: yyjson read other values for %s\n", forms[f].name);
        buf_clear(&out);
        t = now();
        if (json_encode_data(&r.inputs[0], &out, &err))
            die(&err);
        enc = enc < now() - t ? enc : now() - t;
        t = peer_encode(&r.inputs[0], n, &peer_bytes);
        penc = penc < t ? penc : t;
        infer_json_release(&r);
        arena_clear(&a);
    }
    double mb = (double)text.n * 1e-6;
    printf("%-31s %6.1f %8.0f %8.0f %8.0f %6.2fx | %6.1f %8.0f %8.0f %6.2fx\n", forms[f].name, mb, mb / copy, mb / dec,
           mb / pdec, pdec / dec, (double)out.n * 1e-6, (double)out.n * 1e-6 / enc, (double)out.n * 1e-6 / penc, penc / enc);
    buf_release(&text);
    buf_release(&out);
    arena_release(&a);
    free(to);
    free(values);
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? (size_t)atol(argv[1]) : 400000;
    int rounds = argc > 2 ? atoi(argv[2]) : 15;
    mallopt(M_MMAP_THRESHOLD, 1 << 30); /* warm memory for both sides: page faults would measure the kernel */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    printf("%-31s %6s %8s %8s %8s %7s | %6s %8s %8s %7s\n", "data (MB/s of JSON text)", "MB", "memcpy", "decode", "yyjson",
           "ratio", "MB", "encode", "yyjson", "ratio");
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        measure((enum form)f, n / 8 * 8, rounds);
    return 0;
}
