/* log_render.c: a log record as one line of text or JSON. Pure but for the buffer.
 *
 *   2026-02-03T04:05:06.789012Z INFO  model_ready model=resnet load_ms=12
 *   {"time":"2026-02-03T04:05:06.789012Z","level":"info","event":"model_ready","model":"resnet","load_ms":12} */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "obs/log_sink_priv.h"
#include "obs/text_priv.h"

#define TAIL_BYTES 24 /* room for truncated=true and the end of the line */

static void append_string(struct buf *out, struct str s, bool json)
{
    bool cut;
    struct str shown = text__cut(s, LOG__VALUE_BYTES, &cut);
    if (json)
        buf_append_json_str(out, shown);
    else
        text__append_value(out, shown);
    if (!cut || out->failed)
        return;
    bool quoted = out->p[out->n - 1] == '"';
    out->n -= quoted;
    buf_append_z(out, quoted ? "...\"" : "...");
}

static void append_f64(struct buf *out, double v)
{
    if (isfinite(v))
        text__append_f64(out, v);
    else
        buf_append_z(out, "null"); /* JSON has no such number */
}

static void append_field_value(struct buf *out, const struct log_field *f, bool json)
{
    switch (f->kind) {
    case LOG_KIND_STR:
        append_string(out, f->s, json);
        break;
    case LOG_KIND_I64:
        buf_append_i64(out, f->i);
        break;
    case LOG_KIND_U64:
        buf_append_u64(out, f->u);
        break;
    case LOG_KIND_F64:
        append_f64(out, f->f);
        break;
    case LOG_KIND_BOOL:
        buf_append_z(out, f->b ? "true" : "false");
        break;
    case LOG_KIND_END:
        break;
    }
}

/* All fields that fit between `start` of the line and its limit. */
static void append_fields(struct buf *out, size_t start, const struct log_field *fields, bool json)
{
    for (const struct log_field *f = fields; f->key; f++) {
        size_t before = out->n;
        buf_append_z(out, json ? ",\"" : " ");
        buf_append_z(out, f->key);
        buf_append_z(out, json ? "\":" : "=");
        append_field_value(out, f, json);
        if (out->n - start <= LOG__LINE_BYTES - TAIL_BYTES)
            continue;
        out->n = before;
        buf_append_z(out, json ? ",\"truncated\":true" : " truncated=true");
        return;
    }
}

void log__render_text(struct buf *out, uint64_t wall_ns, bool colour, enum log_level level, const char *event,
                      const struct log_field *fields)
{
    static const char *const names[] = {"DEBUG", "INFO ", "WARN ", "ERROR"};
    static const char *const colours[] = {"\033[2m", "\033[32m", "\033[33m", "\033[31m"};
    size_t start = out->n;
    text__append_time(out, wall_ns);
    buf_append_c(out, ' ');
    buf_append_z(out, colour ? colours[level] : "");
    buf_append_z(out, names[level]);
    buf_append_z(out, colour ? "\033[0m " : " ");
    buf_append_z(out, event);
    append_fields(out, start, fields, false);
    buf_append_c(out, '\n');
}

void log__render_json(struct buf *out, uint64_t wall_ns, enum log_level level, const char *event,
                      const struct log_field *fields)
{
    size_t start = out->n;
    buf_append_z(out, "{\"time\":\"");
    text__append_time(out, wall_ns);
    buf_append_z(out, "\",\"level\":\"");
    buf_append_z(out, log_level_name(level));
    buf_append_z(out, "\",\"event\":\"");
    buf_append_z(out, event);
    buf_append_c(out, '"');
    append_fields(out, start, fields, true);
    buf_append_z(out, "}\n");
}
