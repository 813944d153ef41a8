/* sse.c: see sse.h. The reader collects one line at a time, so that any split of the bytes gives the same events. */
#include "wire/sse.h"

#include <string.h>

/* ---- writing ---- */

void sse_begin(struct buf *out, const char *name)
{
    if (name) {
        buf_append_z(out, "event: ");
        buf_append_z(out, name);
        buf_append_c(out, '\n');
    }
    buf_append_z(out, "data: ");
}

void sse_end(struct buf *out)
{
    buf_append_z(out, "\n\n");
}

void sse_write(struct buf *out, const char *name, struct str data)
{
    size_t from = 0;
    sse_begin(out, name);
    for (size_t i = 0; i < data.n; i++) {
        if (data.p[i] != '\n' && data.p[i] != '\r')
            continue;
        buf_append(out, data.p + from, i - from);
        if (data.p[i] == '\r' && i + 1 < data.n && data.p[i + 1] == '\n')
            i++;
        from = i + 1;
        buf_append_z(out, "\ndata: ");
    }
    buf_append(out, data.p + from, data.n - from);
    sse_end(out);
}

void sse_comment(struct buf *out, const char *text)
{
    buf_append_z(out, ": ");
    buf_append_z(out, text);
    buf_append_z(out, "\n\n");
}

/* ---- reading ---- */

void sse_reader_release(struct sse_reader *r)
{
    buf_release(&r->line);
    buf_release(&r->data);
    buf_release(&r->name);
}

static void take_field(struct sse_reader *r, struct str field, struct str value)
{
    if (value.n && value.p[0] == ' ')
        value = (struct str){value.p + 1, value.n - 1};
    if (str_eqz(field, "event")) {
        buf_clear(&r->name);
        buf_append_str(&r->name, value);
    } else if (str_eqz(field, "data")) {
        if (r->any)
            buf_append_c(&r->data, '\n');
        buf_append_str(&r->data, value);
        r->any = true;
    }
}

static void end_event(struct sse_reader *r, void (*each)(void *, struct str, struct str), void *ctx)
{
    if (r->any && !r->data.failed)
        each(ctx, buf_str(&r->name), buf_str(&r->data));
    r->any = false;
    buf_clear(&r->data);
    buf_clear(&r->name);
}

static void end_line(struct sse_reader *r, void (*each)(void *, struct str, struct str), void *ctx)
{
    struct str line = buf_str(&r->line);
    const char *colon = line.n ? memchr(line.p, ':', line.n) : NULL;
    if (!line.n)
        end_event(r, each, ctx);
    else if (!colon)
        take_field(r, line, (struct str){"", 0});
    else if (colon > line.p)
        take_field(r, (struct str){line.p, (size_t)(colon - line.p)},
                   (struct str){colon + 1, line.n - (size_t)(colon - line.p) - 1});
    buf_clear(&r->line);
}

void sse_reader_push(struct sse_reader *r, struct str bytes, void (*each)(void *, struct str, struct str), void *ctx)
{
    size_t from = 0;
    for (size_t i = 0; i < bytes.n && !r->failed; i++) {
        char c = bytes.p[i];
        bool skip = r->cr && c == '\n';
        r->cr = c == '\r';
        if (c != '\n' && c != '\r')
            continue;
        if (!skip) {
            buf_append(&r->line, bytes.p + from, i - from);
            end_line(r, each, ctx);
        }
        from = i + 1;
    }
    buf_append(&r->line, bytes.p + from, bytes.n - from);
    r->failed |= r->line.failed || r->data.failed || r->name.failed || r->line.n + r->data.n > SSE_EVENT_BYTES_MAX;
}
