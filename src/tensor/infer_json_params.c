/* infer_json_params.c: `parameters` objects: the typed list, and the names that the protocol reserves.
 *
 * A reserved parameter of the wrong type or out of range is refused by name, never ignored. A whole number is an int64; one
 * beyond that, and any value that is not a bool, number or string, is refused. */
#include <math.h>

#include "base/size.h"
#include "base/status.h"
#include "tensor/infer_json_priv.h"
#include "tensor/json_number.h"
#include "tensor/tensor_priv.h"

static const char *const kind_names[] = {"a bool", "a whole number", "a fraction", "a string"};

static int param_number(struct infer_json_decoder *d, struct infer_param *p, struct error *err)
{
    struct json_decimal num;
    const char *next = json_decimal_scan(d->s.p, d->s.end, &num);
    if (!next)
        return json_expected(&d->s, "a bool, a number or a string as the parameter's value", err);
    if (num.whole) {
        p->kind = INFER_PARAM_INT;
        if (json_i64(&d->s, &p->i, err))
            return error_prefix(err, "parameter '%.*s'", NAME_ARG(p->key));
        return STATUS_OK;
    }
    p->kind = INFER_PARAM_DOUBLE;
    p->d = json_decimal_f64(&num);
    d->s.p = next;
    if (!isfinite(p->d))
        return error_set(err, STATUS_INVALID, "parameter '%.*s': the number is beyond the range of a double", NAME_ARG(p->key));
    return STATUS_OK;
}

static int param_value(struct infer_json_decoder *d, struct infer_param *p, struct error *err)
{
    switch (json_peek(&d->s)) {
    case '"':
        p->kind = INFER_PARAM_STRING;
        return json_string(&d->s, d->arena, &p->s, err);
    case 't':
    case 'f':
        p->kind = INFER_PARAM_BOOL;
        return json_bool(&d->s, &p->b, err);
    default:
        return param_number(d, p, err);
    }
}

int infer_json__params(struct infer_json_decoder *d, struct infer_param **params, size_t *n, struct error *err)
{
    struct infer_param found[INFER_JSON_PARAMS_MAX];
    bool first = true;
    struct str key;
    int rc;
    *n = 0;
    while ((rc = json_member(&d->s, &first, d->arena, &key, err)) == 1) {
        for (size_t i = 0; i < *n; i++)
            if (str_eq(found[i].key, key))
                return error_set(err, STATUS_INVALID, "parameter '%.*s' is given twice", NAME_ARG(key));
        if (*n == INFER_JSON_PARAMS_MAX)
            return error_set(err, STATUS_INVALID, "an object has more than %d parameters", INFER_JSON_PARAMS_MAX);
        found[*n].key = key;
        if ((rc = param_value(d, &found[*n], err)) != 0)
            return rc;
        ++*n;
    }
    if (rc)
        return rc;
    *params = arena_alloc(d->arena, *n * sizeof **params);
    if (!*params)
        return infer_json__nomem(err);
    memcpy(*params, found, *n * sizeof **params);
    return STATUS_OK;
}

static int wrong_kind(const struct infer_param *p, const char *of, struct str name, const char *takes, struct error *err)
{
    const char *quote = name.n ? "'" : "";
    return error_set(err, STATUS_INVALID, "%s%s%s%.*s%s: parameter '%.*s' is %s, but it takes %s", of, name.n ? " " : "", quote,
                     NAME_ARG(name), quote, NAME_ARG(p->key),
                     p->kind == INFER_PARAM_INT ? "out of range or a whole number" : kind_names[p->kind], takes);
}

/* Asks for something that inferd does not have: say so rather than compute something else. */
static int unsupported(const struct infer_param *p, const char *of, struct error *err)
{
    if (str_starts(p->key, STR("shared_memory_")))
        return error_set(err, STATUS_INVALID,
                         "%s parameter '%.*s': inferd has no shared memory regions; send the tensor in the body", of,
                         NAME_ARG(p->key));
    return STATUS_OK;
}

static bool is_nothing(const struct infer_param *p)
{
    return (p->kind == INFER_PARAM_INT && p->i == 0) || (p->kind == INFER_PARAM_BOOL && !p->b) ||
           (p->kind == INFER_PARAM_STRING && p->s.n == 0);
}

static int sequence_param(const struct infer_param *p, struct error *err)
{
    if (is_nothing(p))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "request parameter '%.*s': inferd does not batch sequences; send requests that stand alone",
                     NAME_ARG(p->key));
}

/* Names that the protocol keeps for itself, so that a model can't have meant them (Triton's "parameters" extension). One that says "off" or
 * nothing is let pass. */
static int reserved_param(const struct infer_param *p, struct error *err)
{
    if (is_nothing(p))
        return STATUS_OK;
    if (STR_IS(p->key, "headers"))
        return error_set(err, STATUS_INVALID,
                         "request parameter 'headers' is reserved: inferd passes no HTTP headers on to models; leave it out");
    return error_set(
        err, STATUS_INVALID,
        "request parameter '%.*s': names that begin with triton_ are reserved, and inferd has none of them; leave it out",
        NAME_ARG(p->key));
}

int infer_json__request_params(struct infer_json *r, struct infer_param *params, size_t n, struct error *err)
{
    static const struct str none = {NULL, 0};
    r->params = params;
    for (size_t i = 0; i < n; i++) {
        const struct infer_param *p = &params[i];
        int rc = unsupported(p, "request", err);
        if (rc)
            return rc;
        if (STR_IS(p->key, "binary_data_output")) {
            if (p->kind != INFER_PARAM_BOOL)
                return wrong_kind(p, "the request", none, "true or false", err);
            r->binary_output = p->b;
        } else if (STR_IS(p->key, "priority")) {
            if (p->kind != INFER_PARAM_INT || p->i < 0 || p->i > UINT32_MAX)
                return wrong_kind(p, "the request", none, "a whole number from 0 to 4294967295", err);
            r->priority = (uint32_t)p->i;
        } else if (STR_IS(p->key, "timeout")) {
            if (p->kind != INFER_PARAM_INT || p->i < 0)
                return wrong_kind(p, "the request", none, "a whole number of microseconds, 0 or more", err);
            r->timeout_us = (uint64_t)p->i;
        } else if (STR_IS(p->key, "sequence_id") || STR_IS(p->key, "sequence_start") || STR_IS(p->key, "sequence_end")) {
            if ((rc = sequence_param(p, err)) != 0)
                return rc;
        } else if (STR_IS(p->key, "headers") || str_starts(p->key, STR("triton_"))) {
            if ((rc = reserved_param(p, err)) != 0)
                return rc;
        } else {
            params[r->n_params++] = *p;
        }
    }
    return STATUS_OK;
}

int infer_json__output_params(struct infer_json_output *o, const struct infer_param *params, size_t n, bool *has_binary,
                              struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct infer_param *p = &params[i];
        int rc = unsupported(p, "output", err);
        if (rc)
            return rc;
        if (STR_IS(p->key, "binary_data")) {
            if (p->kind != INFER_PARAM_BOOL)
                return wrong_kind(p, "output", o->name, "true or false", err);
            o->binary = p->b;
            *has_binary = true;
        } else if (STR_IS(p->key, "classification")) {
            if (p->kind != INFER_PARAM_INT || p->i < 0 || p->i > UINT32_MAX)
                return wrong_kind(p, "output", o->name,
                                  "how many classes are wanted, a whole number from 0 (the tensor "
                                  "itself) to 4294967295",
                                  err);
            o->classification = (uint32_t)p->i;
        }
    }
    return STATUS_OK;
}

int infer_json__input_params(struct str input, const struct infer_param *params, size_t n, uint64_t *binary_size, bool *base64,
                             struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct infer_param *p = &params[i];
        int rc = unsupported(p, "input", err);
        if (rc)
            return rc;
        if (STR_IS(p->key, "binary_data_size")) {
            if (p->kind != INFER_PARAM_INT || p->i < 0)
                return wrong_kind(p, "input", input, "the size of its binary data in bytes, a whole number, 0 or more", err);
            *binary_size = (uint64_t)p->i;
        } else if (STR_IS(p->key, "content_type")) {
            /* MLServer's codecs name more; those that change how bytes are read must not be passed over. */
            if (p->kind != INFER_PARAM_STRING)
                return wrong_kind(p, "input", input, "a string", err);
            *base64 = STR_IS(p->s, "base64");
        }
    }
    return STATUS_OK;
}
