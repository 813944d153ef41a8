/* kserve_grpc.c: gRPC calls: what their metadata says, how they are answered, and the unary methods' way in.
 *
 * A call is an HTTP/2 request whose content type is application/grpc: POST /package.Service/Method, a body of length-prefixed messages,
 * and a status that comes in trailers behind the reply's body (or, when there is none, in its only header block). It is routed by the
 * same table and authorised at the same point as HTTP; here the rest of its metadata is read before its body comes.
 *
 * Every error, also of net's own making (a body too large, a phase), is a gRPC status with HTTP status 200: api__grpc_refuse. The number
 * comes from base/status's table. Messages that can't be read are the caller's fault: INVALID_ARGUMENT, where other servers say INTERNAL. */
#include "api/kserve_grpc_priv.h"

#include <stdio.h>

#include "api/infer_priv.h"
#include "base/check.h"
#include "base/status.h"

#define CONTENT_TYPE        "application/grpc"
#define CONTROL_BODY_BYTES  (1u << 20) /* of calls other than inference */
#define COMPRESS_FROM_BYTES 256        /* smaller messages don't get smaller */
#define MS_PER_S            1000u

/* ---- metadata ---- */

/* The content type without parameters: "application/grpc" and what follows a '+'. */
static struct str content_subtype(const struct http_request *r, bool *is_grpc)
{
    struct str rest = http_header_get(r, "content-type"), type = {0};
    str_cut(&rest, ';', &type);
    type = str_trim(type);
    size_t n = sizeof CONTENT_TYPE - 1;
    *is_grpc = type.n >= n && str_ieq((struct str){type.p, n}, STR(CONTENT_TYPE)) && (type.n == n || type.p[n] == '+');
    return *is_grpc && type.n > n ? (struct str){type.p + n + 1, type.n - n - 1} : (struct str){0};
}

bool api__is_grpc(const struct http_request *r)
{
    bool is_grpc = false;
    if (r->version == 20 && r->method == HTTP_POST)
        content_subtype(r, &is_grpc);
    return is_grpc;
}

static int read_deadline(struct grpc_call *g, struct error *err)
{
    const struct http_request *r = g->request;
    struct str timeout;
    uint64_t ns, at;
    int rc = api__header_deadline(r, r->first_byte_ns, &g->deadline_ns, err);
    if (rc == 0)
        rc = api__header_once(r, "grpc-timeout", &timeout, err);
    if (rc || !timeout.p)
        return rc;
    rc = grpc_timeout_parse(timeout, &ns, err);
    if (rc == 0 && !__builtin_add_overflow(ns, r->first_byte_ns, &at))
        g->deadline_ns = MIN_OF(g->deadline_ns, at);
    return rc;
}

static bool is_stream(enum route_id id)
{
    return id == ROUTE_GRPC_STREAM_INFER || id == ROUTE_GRPC_HEALTH_WATCH || id == ROUTE_GRPC_REFLECTION;
}

int api__grpc_headers(struct api *a, struct http_request *r, struct api_call *call, struct error *err)
{
    bool is_grpc;
    struct str coding, subtype = content_subtype(r, &is_grpc);
    struct grpc_call *g = ARENA_NEW(r->arena, struct grpc_call);
    if (!g)
        return error_set(err, STATUS_NOMEM, "out of memory for this call; try again later");
    *g = (struct grpc_call){.api = a, .request = r, .call = call};
    call->grpc = g;
    if (subtype.n && !str_ieqz(subtype, "proto"))
        return error_set(err, STATUS_UNIMPLEMENTED, "messages of the type '%.*s' are not known here; proto is",
                         STR_ARG(subtype));
    int rc = api__header_once(r, "grpc-encoding", &coding, err);
    if (rc == 0)
        rc = grpc_coding_parse(coding, &g->coding, err);
    if (rc == 0)
        rc = read_deadline(g, err);
    g->compress = g->coding != CODING_IDENTITY && grpc_coding_accepted(http_header_get(r, "grpc-accept-encoding"), g->coding);
    bool infers = call->match.id == ROUTE_GRPC_INFER || call->match.id == ROUTE_GRPC_STREAM_INFER;
    g->limit_bytes = infers ? r->body_limit_bytes : MIN_OF(r->body_limit_bytes, (uint64_t)CONTROL_BODY_BYTES);
    if (is_stream(call->match.id)) {
        r->on_body = api__grpc_stream_body;
        r->body_unhurried = true;
        r->body_limit_bytes = UINT64_MAX; /* it is each message that is bounded */
    } else if (g->limit_bytes < UINT64_MAX - GRPC_PREFIX_BYTES) {
        r->body_limit_bytes = g->limit_bytes + GRPC_PREFIX_BYTES;
    }
    return rc;
}

/* ---- answers ---- */

struct trailers {
    struct http_header h[4];
    size_t n;
    char code[8], pushback[16];
};

/* grpc-status, and grpc-message and grpc-retry-pushback-ms where there is something to say. `text` lives until the reply is queued. */
static void make_trailers(struct trailers *t, int status, struct str text, uint32_t retry_after_s)
{
    int n = snprintf(t->code, sizeof t->code, "%d", status_grpc(status));
    t->n = 0;
    t->h[t->n++] = (struct http_header){STR("grpc-status"), {t->code, (size_t)n}};
    if (text.n)
        t->h[t->n++] = (struct http_header){STR("grpc-message"), text};
    if (retry_after_s) {
        n = snprintf(t->pushback, sizeof t->pushback, "%u", retry_after_s * MS_PER_S);
        t->h[t->n++] = (struct http_header){STR("grpc-retry-pushback-ms"), {t->pushback, (size_t)n}};
    }
}

/* Status and text as the only header block of the reply. */
static void reply_trailers_only(struct http_request *r, int status, const char *text, uint32_t retry_after_s)
{
    struct trailers t;
    struct buf escaped;
    buf_init(&escaped);
    grpc_message_append(&escaped, str_of(text));
    make_trailers(&t, status, buf_str(&escaped), retry_after_s); /* without memory, the status has no text */
    t.h[t.n++] = (struct http_header){STR("x-request-id"), r->request_id};
    static_assert(COUNT_OF(t.h) == 4, "grpc-status, grpc-message, grpc-retry-pushback-ms, x-request-id");
    http_reply(r, 200, CONTENT_TYPE, t.h, t.n, NULL, 0);
    buf_release(&escaped);
}

void api__grpc_refuse(struct http_request *r, int http_status, const char *text, uint32_t retry_after_s)
{
    struct api_call *call = r->user;
    if (call->status == 0)
        call->status = status_from_http(http_status);
    reply_trailers_only(r, call->status, text, retry_after_s);
}

void api__grpc_fail(struct grpc_call *g, int status, const char *text, uint32_t retry_after_s)
{
    g->call->status = status;
    reply_trailers_only(g->request, status, text, retry_after_s);
}

void api__grpc_stream_begin(struct grpc_call *g, bool compressed, void (*on_writable)(struct http_request *r))
{
    struct http_header headers[3] = {{STR("x-request-id"), g->request->request_id},
                                     {STR("grpc-accept-encoding"), STR(GRPC_ACCEPTED)}};
    size_t n = 2;
    if (compressed)
        headers[n++] = (struct http_header){STR("grpc-encoding"), str_of(grpc_coding_name(g->coding))};
    http_stream_begin(g->request, 200, CONTENT_TYPE, headers, n, on_writable);
}

void api__grpc_stream_end(struct grpc_call *g, int status, const char *text)
{
    struct trailers t;
    struct buf escaped;
    g->call->status = status;
    buf_init(&escaped);
    grpc_message_append(&escaped, str_of(text));
    make_trailers(&t, status, buf_str(&escaped), 0);
    http_stream_end_trailers(g->request, t.h, t.n);
    buf_release(&escaped);
}

void api__grpc_reply_slices(struct grpc_call *g, bool compressed, struct slice *slices, size_t n)
{
    static const struct http_header ok[] = {{{"grpc-status", 11}, {"0", 1}}};
    api__grpc_stream_begin(g, compressed, NULL);
    for (size_t i = 0; i < n; i++)
        http_stream_write(g->request, slices[i]); /* one answer: it is queued whole however slow the client is */
    http_stream_end_trailers(g->request, ok, COUNT_OF(ok));
}

void api__grpc_begin(struct buf *b)
{
    buf_init(b);
    buf_append(b, (char[GRPC_PREFIX_BYTES]){0}, GRPC_PREFIX_BYTES);
}

int api__grpc_frame(const struct grpc_call *g, struct buf *b, struct slice *out, struct error *err)
{
    size_t n = b->failed ? 0 : b->n - GRPC_PREFIX_BYTES;
    if (g->compress && n >= COMPRESS_FROM_BYTES) {
        struct slice plain = slice_borrow(b->p + GRPC_PREFIX_BYTES, n);
        int rc = grpc_deflate(g->coding, &plain, 1, out, err);
        buf_release(b);
        return rc;
    }
    if (!b->failed)
        grpc_prefix_write((uint8_t *)b->p, false, (uint32_t)n);
    *out = slice_take(b);
    return out->p ? 0 : error_set(err, STATUS_NOMEM, "out of memory for this answer; try again later");
}

void api__grpc_reply(struct grpc_call *g, struct buf *b)
{
    struct error err = {0};
    struct slice frame;
    int rc = api__grpc_frame(g, b, &frame, &err);
    if (rc < 0)
        api__grpc_fail(g, rc, err.text, 1);
    else
        api__grpc_reply_slices(g, g->compress, &frame, 1);
}

/* ---- unary calls ---- */

/* The plain bytes of a unary call's message: a view of the body, or *owned (a reference of the caller's) where it was compressed. */
static int plain_message(struct grpc_call *g, struct slice *message, struct slice *owned, struct error *err)
{
    struct grpc_message m;
    *owned = (struct slice){0};
    int rc = grpc_split(g->request->body, g->limit_bytes, &m, err);
    if (rc == 0 && m.compressed)
        rc = grpc_inflate(g->coding, m.data, g->limit_bytes, g->request->max_inflate_ratio, owned, err);
    if (rc == 0 && m.compressed)
        rc = http_body_charge(g->request, owned->n, err);
    if (rc == 0)
        *message = m.compressed ? *owned : m.data;
    return rc;
}

static const grpc_method methods[ROUTE_COUNT] = {
    [ROUTE_GRPC_LIVE] = api__grpc_server_live,
    [ROUTE_GRPC_READY] = api__grpc_server_ready,
    [ROUTE_GRPC_MODEL_READY] = api__grpc_model_ready,
    [ROUTE_GRPC_SERVER_METADATA] = api__grpc_server_metadata,
    [ROUTE_GRPC_MODEL_METADATA] = api__grpc_model_metadata,
    [ROUTE_GRPC_MODEL_CONFIG] = api__grpc_model_config,
    [ROUTE_GRPC_MODEL_STATS] = api__grpc_model_stats,
    [ROUTE_GRPC_INDEX] = api__grpc_index,
    [ROUTE_GRPC_LOAD] = api__grpc_load,
    [ROUTE_GRPC_UNLOAD] = api__grpc_unload,
    [ROUTE_GRPC_HEALTH_CHECK] = api__grpc_health_check,
};

void api__grpc_unary(struct api *a, struct http_request *r, struct api_call *call)
{
    struct grpc_call *g = call->grpc;
    struct error err = {0};
    struct slice message, owned;
    (void)a;
    int rc = plain_message(g, &message, &owned, &err);
    if (rc == 0 && loop_now_ns(r->loop) >= g->deadline_ns)
        rc = error_set(&err, STATUS_DEADLINE, "the call's deadline passed before it was read");
    if (rc < 0)
        api__grpc_fail(g, rc, err.text, 0);
    else
        methods[call->match.id](g, (struct str){(const char *)message.p, message.n});
    slice_release(&owned);
}

/* ---- names ---- */

int api__grpc_check_model(struct api_call *call, struct str name, struct str version, struct error *err)
{
    struct route_match m = {.id = call->match.id, .model = name};
    if (version.n)
        m.version = version;
    int rc = route_check_names(&m, err);
    return rc ? rc : api__authorise_model(call->api, call, name, err);
}

int api__grpc_read_model(struct grpc_call *g, struct str message, struct str *name, struct str *version, struct error *err)
{
    struct pb_reader r = pb_reader_of(message);
    struct pb_field f;
    int rc;
    *name = *version = (struct str){0};
    while ((rc = pb_next(&r, &f, err)) == 1) {
        rc = f.number == 1   ? pb_get_string(&f, "name", name, err)
             : f.number == 2 ? pb_get_string(&f, "version", version, err)
                             : 0;
        if (rc)
            return rc;
    }
    /* both are views of the message, which may go before the access record is written */
    struct arena *arena = g->request->arena;
    const char *n = arena_strdup(arena, *name), *v = arena_strdup(arena, *version);
    if (!n || !v)
        return error_set(err, STATUS_NOMEM, "out of memory for this call; try again later");
    name->p = n;
    version->p = v;
    g->request->log_model = *name;
    g->request->log_version = *version;
    return rc < 0 || !name->n ? rc : api__grpc_check_model(g->call, *name, *version, err);
}
