/* grpc_reflection.c: grpc.reflection.v1 and v1alpha: which services there are and how their messages look, for grpcurl and its like.
 *
 * The files of proto/ are in the binary as protoc compiled them (grpc_descriptors.c). Both versions have the same messages. A request for
 * a file gets it with everything that it imports. Extensions, which proto3 services don't have, are never found. */
#include <stdlib.h>

#include "api/grpc_descriptors.h"
#include "api/kserve_grpc_priv.h"
#include "base/status.h"

enum {
    ASK_HOST = 1,
    ASK_FILE = 3,
    ASK_SYMBOL,
    ASK_EXTENSION,
    ASK_EXTENSION_NUMBERS,
    ASK_SERVICES,
};
enum { REPLY_HOST = 1, REPLY_REQUEST, REPLY_FILES = 4, REPLY_EXTENSIONS, REPLY_SERVICES, REPLY_ERROR };

struct ask {
    struct str host, argument;
    uint32_t what; /* field number; 0: nothing */
};

static int read_ask(struct str message, struct ask *a, struct error *err)
{
    struct pb_reader r = pb_reader_of(message);
    struct pb_field f;
    int rc = 0;
    *a = (struct ask){0};
    while (rc == 0 && (rc = pb_next(&r, &f, err)) == 1) {
        rc = 0;
        if (f.number == ASK_HOST) {
            rc = pb_get_string(&f, "host", &a->host, err);
        } else if (f.number >= ASK_FILE && f.number <= ASK_SERVICES) {
            a->what = f.number;
            rc = f.number == ASK_EXTENSION ? pb_get_bytes(&f, "an extension request", &a->argument, err)
                                           : pb_get_string(&f, "a reflection request", &a->argument, err);
        }
    }
    return rc;
}

static void append_error(struct buf *b, int status, const char *text)
{
    size_t opened = pb_open_message(b, REPLY_ERROR);
    pb_put_u64(b, 1, (uint64_t)status_grpc(status));
    pb_put_str(b, 2, str_of(text));
    pb_close_message(b, opened);
}

/* File `i` and those that it imports, which come before it. */
static void append_files(struct buf *b, size_t i)
{
    uint32_t wanted = 1u << i;
    for (size_t k = i + 1; k-- > 0;)
        if (wanted >> k & 1)
            wanted |= grpc_files[k].imports;
    size_t opened = pb_open_message(b, REPLY_FILES);
    for (size_t k = i + 1; k-- > 0;)
        if (wanted >> k & 1)
            pb_append_bytes(b, 1, (struct str){(const char *)grpc_files[k].descriptor, grpc_files[k].n});
    pb_close_message(b, opened);
}

static int compare(const void *key, const void *element)
{
    const struct str *name = key;
    const struct grpc_symbol *s = element;
    size_t n = strlen(s->name);
    int order = memcmp(name->p, s->name, name->n < n ? name->n : n);
    return order ? order : (name->n > n) - (name->n < n);
}

static void answer_symbol(struct buf *b, struct str name)
{
    const struct grpc_symbol *s = name.n ? bsearch(&name, grpc_symbols, grpc_n_symbols, sizeof *grpc_symbols, compare) : NULL;
    if (s)
        append_files(b, s->file);
    else
        append_error(b, STATUS_NOT_FOUND, "no file here has this symbol");
}

static void answer_file(struct buf *b, struct str name)
{
    size_t i = 0;
    while (i < grpc_n_files && !str_eqz(name, grpc_files[i].name))
        i++;
    if (i < grpc_n_files)
        append_files(b, i);
    else
        append_error(b, STATUS_NOT_FOUND, "there is no such file here");
}

static void answer_extension_numbers(struct buf *b, struct str type)
{
    if (!type.n || !bsearch(&type, grpc_symbols, grpc_n_symbols, sizeof *grpc_symbols, compare)) {
        append_error(b, STATUS_NOT_FOUND, "there is no such type here");
        return;
    }
    size_t opened = pb_open_message(b, REPLY_EXTENSIONS);
    pb_put_str(b, 1, type);
    pb_close_message(b, opened);
}

static void answer_services(struct buf *b)
{
    size_t opened = pb_open_message(b, REPLY_SERVICES);
    for (size_t i = 0; i < grpc_n_services; i++) {
        size_t service = pb_open_message(b, 1);
        pb_put_str(b, 1, str_of(grpc_services[i]));
        pb_close_message(b, service);
    }
    pb_close_message(b, opened);
}

static void answer(struct buf *b, const struct ask *a)
{
    switch (a->what) {
    case ASK_FILE:
        answer_file(b, a->argument);
        break;
    case ASK_SYMBOL:
        answer_symbol(b, a->argument);
        break;
    case ASK_EXTENSION:
        append_error(b, STATUS_NOT_FOUND, "there are no extensions here");
        break;
    case ASK_EXTENSION_NUMBERS:
        answer_extension_numbers(b, a->argument);
        break;
    case ASK_SERVICES:
        answer_services(b);
        break;
    default:
        append_error(b, STATUS_INVALID, "the request asks for nothing that is known here");
    }
}

static int on_message(struct grpc_stream *s, struct grpc_message *m, struct error *err)
{
    struct str message = {(const char *)m->data.p, m->data.n};
    struct slice frame;
    struct ask a;
    struct buf b;
    int rc = read_ask(message, &a, err);
    if (rc == 0) {
        api__grpc_begin(&b);
        pb_put_str(&b, REPLY_HOST, a.host);
        pb_append_bytes(&b, REPLY_REQUEST, message);
        answer(&b, &a);
        rc = api__grpc_frame(s->g, &b, &frame, err);
    }
    slice_release(&m->data);
    if (rc == 0)
        api__grpc_stream_send(s, frame);
    return rc;
}

static bool is_busy(const struct grpc_stream *s)
{
    return !s->writable;
}

static void on_writable(struct grpc_stream *s)
{
    api__grpc_stream_resume(s);
}

static void on_input_end(struct grpc_stream *s)
{
    api__grpc_stream_finish(s, STATUS_OK, "");
}

const struct grpc_stream_ops api__grpc_reflection = {
    .bytes = sizeof(struct grpc_stream),
    .message = on_message,
    .input_end = on_input_end,
    .busy = is_busy,
    .writable = on_writable,
};
