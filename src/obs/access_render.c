/* access_render.c: an access record as one line of text or JSON. Times are in microseconds, rounded down.
 *
 *   2026-02-03T04:05:06.789012Z 200 POST /v2/models/r/infer peer=127.0.0.1:4711 protocol=kserve_http model=r version=1 in=204 out=96
 *   queue_us=12 compute_us=850 total_us=910 id=5f0c...            (one line) */
#include <string.h>

#include "obs/access_log_priv.h"
#include "obs/text_priv.h"
#include "os/sink.h"

static void add_string(struct buf *out, bool json, const char *key, const char *value)
{
    if (!*value)
        return;
    buf_append_z(out, json ? ",\"" : " ");
    buf_append_z(out, key);
    buf_append_z(out, json ? "\":" : "=");
    if (json)
        buf_append_json_str(out, str_of(value));
    else
        text__append_value(out, str_of(value));
}

static void add_number(struct buf *out, bool json, const char *key, uint64_t value)
{
    buf_append_z(out, json ? ",\"" : " ");
    buf_append_z(out, key);
    buf_append_z(out, json ? "\":" : "=");
    buf_append_u64(out, value);
}

static void head_text(struct buf *out, const struct access_record *r, const char *path)
{
    text__append_time(out, r->wall_ns);
    buf_append_c(out, ' ');
    buf_append_u64(out, r->status);
    buf_append_c(out, ' ');
    text__append_value(out, str_of(*r->method ? r->method : "-"));
    buf_append_c(out, ' ');
    text__append_value(out, str_of(*path ? path : "-"));
}

static void head_json(struct buf *out, const struct access_record *r, const char *path)
{
    buf_append_z(out, "{\"time\":\"");
    text__append_time(out, r->wall_ns);
    buf_append_c(out, '"');
    add_number(out, true, "status", r->status);
    add_string(out, true, "method", r->method);
    add_string(out, true, "path", path);
}

static void render(struct buf *out, bool json, const struct access_record *r, const char *path)
{
    if (json)
        head_json(out, r, path);
    else
        head_text(out, r, path);
    add_string(out, json, "peer", r->peer);
    add_string(out, json, "protocol", r->protocol);
    add_string(out, json, "subject", r->subject);
    add_string(out, json, "tenant", r->tenant);
    add_string(out, json, "model", r->model);
    add_string(out, json, "version", r->version);
    add_number(out, json, json ? "bytes_in" : "in", r->bytes_in);
    add_number(out, json, json ? "bytes_out" : "out", r->bytes_out);
    add_number(out, json, "queue_us", r->queue_ns / 1000);
    add_number(out, json, "compute_us", r->compute_ns / 1000);
    add_number(out, json, "total_us", r->total_ns / 1000);
    add_string(out, json, "error", r->error);
    add_string(out, json, "id", r->request_id);
    add_string(out, json, "traceparent", r->traceparent);
    buf_append_z(out, json ? "}\n" : "\n");
}

void access__render(struct buf *out, enum log_format format, const struct access_record *r)
{
    size_t start = out->n;
    render(out, format == LOG_FORMAT_JSON, r, r->path);
    if (out->n - start <= OS_SINK_PIECE_BYTES)
        return;
    out->n = start; /* nearly every byte was escaped to six: without the path it fits (3900 bytes at most) */
    render(out, format == LOG_FORMAT_JSON, r, "(unprintable)");
}

void access_field_set(char *field, size_t cap, struct str s)
{
    bool cut;
    struct str kept = text__cut(s, cap - 1, &cut);
    if (kept.n)
        memcpy(field, kept.p, kept.n);
    field[kept.n] = 0;
}
