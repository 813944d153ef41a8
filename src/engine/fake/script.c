/* script.c: the reader of model.fake: lines of `key = value`, '#' comments, one table of keys. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/fake/script_priv.h"

enum kind { U64, BOOL, TEXT, TRIGGER, MODE };

static const struct key {
    const char *name;
    enum kind kind;
    size_t at;
} keys[] = {
#define KEY(k, name)                                                                                                           \
    {                                                                                                                          \
#name, k, offsetof(struct fake_script, name)                                                                           \
    }
    KEY(TEXT, description),
    KEY(BOOL, batchable),
    KEY(U64, base_us),
    KEY(U64, per_row_us),
    KEY(U64, per_element_ns),
    KEY(U64, jitter_us),
    {"mode", MODE, offsetof(struct fake_script, spin)},
    KEY(U64, fail_every),
    KEY(U64, fail_rows_over),
    KEY(BOOL, fail_invalid),
    KEY(BOOL, fail_no_memory),
    KEY(TEXT, fail_text),
    KEY(TRIGGER, poison),
    KEY(TRIGGER, hang),
    KEY(U64, hang_every),
    KEY(U64, hang_ms),
    KEY(BOOL, cancellable),
    KEY(U64, load_delay_ms),
    KEY(U64, memory_bytes),
    KEY(U64, estimate_bytes),
    KEY(TEXT, load_fail),
    KEY(TEXT, instance_fail),
    KEY(BOOL, tokens),
    KEY(TEXT, answer),
    KEY(TEXT, chat_template),
    KEY(U64, piece_bytes),
    KEY(U64, piece_us),
    KEY(U64, prefill_us),
    KEY(U64, context),
    KEY(U64, max_running),
    KEY(U64, max_waiting),
    KEY(U64, fail_after),
    KEY(BOOL, constrain),
    KEY(BOOL, reveal),
    KEY(BOOL, no_system),
#undef KEY
};

static int copy_text(struct arena *a, struct str v, struct str *out, struct error *err)
{
    char *p = arena_strdup(a, v);
    if (!p)
        return error_set(err, STATUS_NOMEM, "no memory for the model's script");
    *out = (struct str){p, v.n};
    return STATUS_OK;
}

static bool parse_bool(struct str v, bool *out)
{
    *out = str_eqz(v, "true");
    return *out || str_eqz(v, "false");
}

int fake_script_set(struct fake_script *s, struct str key, struct str value, struct arena *a, struct error *err)
{
    const struct key *k = NULL;
    for (size_t i = 0; i < COUNT_OF(keys) && !k; i++)
        if (str_eqz(key, keys[i].name))
            k = &keys[i];
    if (!k)
        return error_set(err, STATUS_NOT_FOUND, "'%.*s' is not a key of model.fake", STR_ARG(key));
    void *at = (char *)s + k->at;
    const char *wanted;
    switch (k->kind) {
    case U64:
        if (str_to_u64(value, at) || (k->at == offsetof(struct fake_script, memory_bytes) && str_to_bytes(value, at)) ||
            (k->at == offsetof(struct fake_script, estimate_bytes) && str_to_bytes(value, at)))
            return STATUS_OK;
        wanted = "a whole number";
        break;
    case BOOL:
        if (parse_bool(value, at)) {
            s->batchable_set |= k->at == offsetof(struct fake_script, batchable);
            return STATUS_OK;
        }
        wanted = "true or false";
        break;
    case MODE:
        *(bool *)at = str_eqz(value, "spin");
        if (*(bool *)at || str_eqz(value, "sleep"))
            return STATUS_OK;
        wanted = "sleep or spin";
        break;
    case TEXT:
        return copy_text(a, value, at, err);
    case TRIGGER: {
        struct fake_trigger *t = at;
        t->on = true;
        if (!str_to_f64(value, &t->number))
            t->number = NAN;
        return copy_text(a, value, &t->text, err);
    }
    }
    return error_set(err, STATUS_INVALID, "'%.*s' of '%.*s' is not %s", STR_ARG(value), STR_ARG(key), wanted);
}

/* The next word of `rest`, separated by blanks. */
static bool next_word(struct str *rest, struct str *word)
{
    *rest = str_trim(*rest);
    if (rest->n == 0)
        return false;
    size_t n = 0;
    while (n < rest->n && rest->p[n] != ' ' && rest->p[n] != '\t')
        n++;
    *word = (struct str){rest->p, n};
    *rest = (struct str){rest->p + n, rest->n - n};
    return true;
}

/* "[-1,16]": dims -1 or more; "[]" is a scalar; a letter word names a dynamic axis ("[batch,16]"). */
static bool parse_shape(struct str w, struct arena *a, struct engine_io *io)
{
    if (w.n < 2 || w.p[0] != '[' || w.p[w.n - 1] != ']')
        return false;
    struct str rest = {w.p + 1, w.n - 2}, part;
    if (rest.n == 0)
        return true;
    while (str_cut(&rest, ',', &part)) {
        int64_t d;
        uint8_t at = io->shape.rank;
        if (at == TENSOR_RANK_MAX || part.n == 0)
            return false;
        if (!str_to_i64(part, &d)) {
            if (!((part.p[0] | 32) >= 'a' && (part.p[0] | 32) <= 'z') || copy_text(a, part, &io->dim_names[at], NULL))
                return false;
            d = TENSOR_DIM_DYNAMIC;
        }
        if (d < TENSOR_DIM_DYNAMIC)
            return false;
        io->shape.dim[io->shape.rank++] = d;
    }
    return true;
}

static int parse_io(struct str *rest, struct arena *a, struct engine_io *io, struct error *err)
{
    struct str name, type, dims;
    if (!next_word(rest, &name) || !next_word(rest, &type) || !next_word(rest, &dims))
        return error_set(err, STATUS_INVALID, "expected NAME DTYPE [dims]");
    io->dtype = dtype_parse(type);
    if (io->dtype == DTYPE_INVALID)
        return error_set(err, STATUS_INVALID, "'%.*s' is not a datatype", STR_ARG(type));
    if (!parse_shape(dims, a, io))
        return error_set(err, STATUS_INVALID, "'%.*s' is not a shape like [-1,16]", STR_ARG(dims));
    return copy_text(a, name, &io->name, err);
}

static int find_input(const struct fake_script *s, struct str *rest, size_t *out, struct error *err)
{
    struct str name;
    if (!next_word(rest, &name))
        return error_set(err, STATUS_INVALID, "an input's name is missing");
    for (size_t i = 0; i < s->n_inputs; i++) {
        if (str_eq(s->inputs[i].name, name)) {
            *out = i;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_INVALID, "there is no input '%.*s' above this line", STR_ARG(name));
}

static int parse_rule(const struct fake_script *s, struct str *rest, struct arena *a, struct fake_rule *r, struct error *err)
{
    static const struct {
        const char *name;
        int args;
    } ops[] = {[FAKE_COPY] = {"copy", 1},       [FAKE_ADD] = {"add", 2},   [FAKE_SUB] = {"sub", 2},
               [FAKE_ROW_SUM] = {"row_sum", 1}, [FAKE_ROWS] = {"rows", 0}, [FAKE_FILL] = {"fill", 0}};
    struct str op;
    if (!next_word(rest, &op))
        return error_set(err, STATUS_INVALID, "what the output is made of is missing: copy, add, sub, row_sum, rows or fill");
    size_t i = 0;
    while (i < COUNT_OF(ops) && !str_eqz(op, ops[i].name))
        i++;
    if (i == COUNT_OF(ops))
        return error_set(err, STATUS_INVALID, "'%.*s' is not one of copy, add, sub, row_sum, rows, fill", STR_ARG(op));
    r->op = (enum fake_op)i;
    int rc = STATUS_OK;
    if (ops[i].args > 0)
        rc = find_input(s, rest, &r->a, err);
    if (!rc && ops[i].args > 1)
        rc = find_input(s, rest, &r->b, err);
    if (!rc && r->op == FAKE_FILL) {
        rc = copy_text(a, str_trim(*rest), &r->fill, err);
        *rest = (struct str){0};
    }
    return rc;
}

/* An output's dtype must fit its rule. */
static int check_rule(const struct fake_script *s, const struct engine_io *io, const struct fake_rule *r, struct error *err)
{
    double f;
    switch (r->op) {
    case FAKE_COPY:
    case FAKE_ADD:
    case FAKE_SUB:
        if (io->dtype != s->inputs[r->a].dtype || (r->op != FAKE_COPY && io->dtype != s->inputs[r->b].dtype))
            return error_set(err, STATUS_INVALID, "the output's datatype must be that of its inputs");
        return STATUS_OK;
    case FAKE_ROW_SUM:
    case FAKE_ROWS:
        if (io->dtype == DTYPE_BYTES || (r->op == FAKE_ROW_SUM && s->inputs[r->a].dtype == DTYPE_BYTES))
            return error_set(err, STATUS_INVALID, "sums and counts are numbers, not BYTES");
        return STATUS_OK;
    case FAKE_FILL:
        if (io->dtype != DTYPE_BYTES && !str_to_f64(r->fill, &f))
            return error_set(err, STATUS_INVALID, "'%.*s' is not a number", STR_ARG(r->fill));
        return STATUS_OK;
    }
    return STATUS_OK;
}

static int parse_input(struct fake_script *s, struct str rest, struct arena *a, struct error *err)
{
    struct str word;
    if (s->n_inputs == FAKE_IO_MAX)
        return error_set(err, STATUS_INVALID, "more than %d inputs", FAKE_IO_MAX);
    struct engine_io *io = &s->inputs[s->n_inputs];
    int rc = parse_io(&rest, a, io, err);
    if (rc)
        return rc;
    while (next_word(&rest, &word)) {
        if (!str_eqz(word, "optional"))
            return error_set(err, STATUS_INVALID, "'%.*s' after the shape; only 'optional' may follow", STR_ARG(word));
        io->optional = true;
    }
    s->n_inputs++;
    return STATUS_OK;
}

static int parse_output(struct fake_script *s, struct str rest, struct arena *a, struct error *err)
{
    if (s->n_outputs == FAKE_IO_MAX)
        return error_set(err, STATUS_INVALID, "more than %d outputs", FAKE_IO_MAX);
    struct engine_io *io = &s->outputs[s->n_outputs];
    struct fake_rule *r = &s->rules[s->n_outputs];
    int rc = parse_io(&rest, a, io, err);
    if (!rc)
        rc = parse_rule(s, &rest, a, r, err);
    if (!rc && str_trim(rest).n)
        rc = error_set(err, STATUS_INVALID, "'%.*s' is left over", STR_ARG(rest));
    if (!rc)
        rc = check_rule(s, io, r, err);
    s->n_outputs += !rc;
    return rc;
}

static int parse_line(struct fake_script *s, struct str line, struct arena *a, struct error *err)
{
    struct str key, rest = line;
    str_cut(&rest, '=', &key);
    if (!rest.p)
        return error_set(err, STATUS_INVALID, "expected 'key = value'");
    key = str_trim(key);
    rest = str_trim(rest);
    if (str_eqz(key, "input"))
        return parse_input(s, rest, a, err);
    if (str_eqz(key, "output"))
        return parse_output(s, rest, a, err);
    int rc = fake_script_set(s, key, rest, a, err);
    return rc == STATUS_NOT_FOUND && err ? (err->code = STATUS_INVALID) : rc;
}

static bool all_batched(const struct engine_io *io, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (io[i].shape.rank == 0 || io[i].shape.dim[0] != TENSOR_DIM_DYNAMIC)
            return false;
    return n > 0;
}

int fake_script_parse(struct str text, struct arena *a, struct fake_script *s, struct error *err)
{
    struct str line;
    s->cancellable = true;
    s->piece_bytes = 4;
    s->context = 4096;
    s->max_running = 64;
    s->max_waiting = 64;
    for (int at = 1; str_cut(&text, '\n', &line); at++) {
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        line = str_trim(line);
        if (line.n == 0 || line.p[0] == '#')
            continue;
        int rc = parse_line(s, line, a, err);
        if (rc)
            return error_prefix(err, "model.fake line %d", at), rc;
    }
    if (s->tokens)
        return s->piece_bytes ? STATUS_OK : error_set(err, STATUS_INVALID, "piece_bytes is 0; it takes a whole number from 1");
    if (s->n_inputs == 0 || s->n_outputs == 0)
        return error_set(err, STATUS_INVALID, "model.fake names no %s", s->n_inputs ? "output" : "input");
    if (!s->batchable_set)
        s->batchable = all_batched(s->inputs, s->n_inputs) && all_batched(s->outputs, s->n_outputs);
    return STATUS_OK;
}
