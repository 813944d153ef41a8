/* quantize.c: the plan (types and offsets, all known before the first byte) and its execution, chunk by chunk. */
#include "engine/llm/file/quantize.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/gguf_write.h"
#include "engine/llm/kernels/kernels.h"
#include "engine/llm/team.h"

#define CHUNK_VALUES ((size_t)4 << 20)

/* Rows [0, n_rows) of a chunk, dealt out to the members of a team. */
struct chunk {
    const struct kernels *k;
    enum weight_type from, to;
    size_t cols, n_rows, from_bytes, to_bytes; /* bytes of a row */
    const uint8_t *src;
    uint8_t *dst;
    float *rows; /* a row a member */
    size_t rows_stride;
    atomic_bool bad; /* a value is not finite */
};

static void convert_rows(void *arg, uint32_t member, struct team *team)
{
    struct chunk *c = arg;
    uint32_t at, end;
    float *row = c->rows + member * c->rows_stride;
    team_range(team, member, (uint32_t)c->n_rows, &at, &end);
    for (; at < end; at++) {
        c->k->dequant_row(c->from, c->src + at * c->from_bytes, c->cols, row);
        for (size_t i = 0; i < c->cols; i++)
            if (!isfinite(row[i])) {
                atomic_store(&c->bad, true);
                return;
            }
        quant_row(c->to, row, c->cols, c->dst + at * c->to_bytes);
    }
}

struct job {
    const struct gguf *g;
    const struct quantize_options *o;
    struct quantize_report *report;
    enum weight_type *types; /* [n_tensors] */
    struct team *team;
    struct gguf_writer w;
    struct error *err;
};

static uint64_t rows_of(const struct gguf_tensor *t)
{
    return t->dims[1] * t->dims[2] * t->dims[3];
}

static int convert(struct job *j, const struct gguf_tensor *t, enum weight_type to)
{
    uint64_t rows = rows_of(t);
    size_t cols = (size_t)t->dims[0], stride = (cols + 15) & ~(size_t)15, from_bytes = t->bytes / rows, to_bytes, values, out;
    size_t chunk_rows = CHUNK_VALUES / cols ? CHUNK_VALUES / cols : 1;
    struct chunk c = {
        .k = kernels_best(), .from = t->type, .to = to, .cols = cols, .from_bytes = from_bytes, .rows_stride = stride};
    int rc = 0;
    chunk_rows = MIN_OF(chunk_rows, rows);
    if (!weight_bytes(to, 1, cols, &to_bytes) || !size_mul(to_bytes, chunk_rows, &out) ||
        !size_mul(stride * sizeof(float), team_size(j->team), &values))
        return error_set(j->err, STATUS_INVALID, "tensor \"%.*s\": its size overflows", STR_ARG(t->name));
    c.to_bytes = to_bytes;
    c.dst = malloc(out);
    c.rows = malloc(values);
    if (!c.dst || !c.rows)
        rc = error_set(j->err, STATUS_NOMEM, "out of memory while converting \"%.*s\"", STR_ARG(t->name));
    for (uint64_t at = 0; rc == 0 && at < rows; at += c.n_rows) {
        c.n_rows = (size_t)MIN_OF(chunk_rows, rows - at);
        c.src = t->data + at * from_bytes;
        team_run(j->team, convert_rows, &c);
        if (atomic_load(&c.bad))
            rc = error_set(j->err, STATUS_INVALID, "tensor \"%.*s\" holds a value that is not a finite number",
                           STR_ARG(t->name));
        else
            rc = j->o->write(j->o->ctx, c.dst, c.n_rows * to_bytes, j->err);
    }
    free(c.dst);
    free(c.rows);
    return rc;
}

/* ---- the plan ---- */

static uint32_t arch_u32(const struct gguf *g, const char *key, uint32_t otherwise)
{
    char full[128];
    struct str arch = {0};
    uint64_t v;
    gguf_get_str(g, "general.architecture", &arch);
    snprintf(full, sizeof full, "%.*s.%s", (int)MIN_OF(arch.n, 64), arch.p ? arch.p : "", key);
    return gguf_get_u64(g, full, &v) && v > 0 && v < UINT32_MAX ? (uint32_t)v : otherwise;
}

static int check_source(const struct gguf *g, struct error *err)
{
    struct str type;
    uint64_t parts;
    if (!g->n_tensors)
        return error_set(err, STATUS_INVALID, "the file has no tensors");
    if (gguf_get_str(g, "general.type", &type) && !str_eqz(type, "model"))
        return error_set(err, STATUS_INVALID, "the file is a \"%.*s\", not a model", STR_ARG(type));
    if (gguf_get_u64(g, "split.count", &parts) && parts > 1)
        return error_set(err, STATUS_INVALID, "the file is one of %llu parts of a model: merge them first",
                         (unsigned long long)parts);
    return 0;
}

static bool is_plain(enum weight_type t)
{
    return t == WEIGHT_F32 || t == WEIGHT_F16 || t == WEIGHT_BF16;
}

static int plan(struct job *j)
{
    const struct gguf *g = j->g;
    struct quant_model m = {arch_u32(g, "block_count", 0), arch_u32(g, "attention.head_count", 1), 0,
                            gguf_tensor(g, STR("output.weight")) == NULL};
    size_t bytes;
    int rc = 0;
    m.n_head_kv = arch_u32(g, "attention.head_count_kv", m.n_head);
    for (size_t i = 0; rc == 0 && i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        enum weight_type to = quant_mix_type(j->o->mix, &m, t->name, t->n_dims, t->dims[0], t->type);
        if (to != t->type && !is_plain(t->type) && !j->o->allow_requantize)
            return error_set(j->err, STATUS_UNIMPLEMENTED,
                             "tensor \"%.*s\" is %s already: quantise from the original, or allow it with --allow-requantize",
                             STR_ARG(t->name), weight_type_info((uint32_t)t->type)->name);
        j->types[i] = to;
        rc = gguf_writer_tensor(&j->w, t->name, to, t->n_dims, t->dims, &bytes, j->err);
        j->report->bytes_before += t->bytes;
        j->report->bytes_after += rc == 0 ? bytes : 0;
        j->report->n_kept += to == t->type;
        j->report->n_converted += to != t->type;
        j->report->n_fallback += to != t->type && to != quant_mix_type(j->o->mix, &m, t->name, t->n_dims, 256, t->type);
    }
    return rc;
}

static void copy_keys(struct job *j)
{
    for (size_t i = 0; i < j->g->n_kv; i++) {
        const struct gguf_kv *kv = &j->g->kv[i];
        if (!str_eqz(kv->key, "general.file_type") && !str_eqz(kv->key, "general.quantization_version"))
            gguf_writer_kv(&j->w, kv);
    }
    gguf_writer_u32(&j->w, "general.quantization_version", 2);
    gguf_writer_u32(&j->w, "general.file_type", quant_mix_file_type(j->o->mix));
}

static int write_all(struct job *j)
{
    static const uint8_t zeros[1 << 12];
    struct buf header;
    buf_init(&header);
    int rc = gguf_writer_header(&j->w, &header, j->err);
    if (rc == 0)
        rc = j->o->write(j->o->ctx, header.p, header.n, j->err);
    buf_release(&header);
    for (size_t i = 0; rc == 0 && i < j->g->n_tensors; i++) {
        const struct gguf_tensor *t = &j->g->tensors[i];
        size_t bytes = 0;
        if (j->o->progress)
            j->o->progress(j->o->ctx, i, t, j->types[i]);
        rc = j->types[i] == t->type ? j->o->write(j->o->ctx, t->data, t->bytes, j->err) : convert(j, t, j->types[i]);
        if (rc == 0 && !weight_bytes(j->types[i], rows_of(t), t->dims[0], &bytes))
            return error_set(j->err, STATUS_INTERNAL, "a size that was planned is gone");
        for (size_t pad = gguf_writer_pad_bytes(&j->w, bytes), n; rc == 0 && pad; pad -= n) {
            n = MIN_OF(pad, sizeof zeros);
            rc = j->o->write(j->o->ctx, zeros, n, j->err);
        }
    }
    return rc;
}

int quantize_gguf(const struct gguf *g, const struct quantize_options *o, struct quantize_report *report, struct error *err)
{
    struct job j = {.g = g, .o = o, .report = report, .err = err};
    *report = (struct quantize_report){0};
    int rc = check_source(g, err);
    if (rc < 0)
        return rc;
    j.types = calloc(g->n_tensors, sizeof *j.types);
    if (!j.types)
        return error_set(err, STATUS_NOMEM, "out of memory while planning a conversion");
    gguf_writer_init(&j.w, g->alignment);
    copy_keys(&j);
    rc = plan(&j);
    if (rc == 0)
        rc = team_create(o->threads, "quantize", &j.team, err);
    if (rc == 0)
        rc = write_all(&j);
    team_destroy(j.team);
    gguf_writer_release(&j.w);
    free(j.types);
    return rc;
}
