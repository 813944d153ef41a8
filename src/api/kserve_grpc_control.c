/* kserve_grpc_control.c: loading and unloading models over gRPC: control.c's work behind messages. Both answer when the work is done. */
#include "api/control.h"
#include "api/kserve_grpc_priv.h"
#include "base/status.h"

enum { REQUEST_MODEL = 2, REQUEST_PARAMETERS = 3 };
enum { ENTRY_KEY = 1, ENTRY_VALUE };
enum { PARAM_STRING = 3 };

static int read_string_param(struct str choice, struct str key, struct str *out, struct error *err)
{
    struct pb_reader r = pb_reader_of(choice);
    struct pb_field f;
    bool is_string = false;
    int rc;
    while ((rc = pb_next(&r, &f, err)) == 1) {
        is_string = f.number == PARAM_STRING;
        rc = is_string ? pb_get_string(&f, "string_param", out, err) : 0;
        if (rc)
            return rc;
    }
    if (rc == 0 && !is_string)
        return error_set(err, STATUS_INVALID, "parameter \"%.*s\" takes a string_param", STR_ARG(key));
    return rc;
}

static int read_param(struct str entry, struct str *config, struct error *err)
{
    struct pb_reader r = pb_reader_of(entry);
    struct pb_field f;
    struct str key = {0}, value = {0};
    int rc = 0;
    while (rc == 0 && (rc = pb_next(&r, &f, err)) == 1)
        rc = f.number == ENTRY_KEY     ? pb_get_string(&f, "a parameter's name", &key, err)
             : f.number == ENTRY_VALUE ? pb_get_bytes(&f, "a parameter's value", &value, err)
                                       : 0;
    if (rc == 0)
        rc = api__control_param(key, err);
    if (rc == 0 && str_eq(key, STR("config")))
        rc = read_string_param(value, key, config, err);
    return rc;
}

static int read_request(struct str message, struct str *model, struct str *config, struct error *err)
{
    struct pb_reader r = pb_reader_of(message);
    struct pb_field f;
    struct str entry;
    int rc = 0;
    *model = *config = (struct str){0};
    while (rc == 0 && (rc = pb_next(&r, &f, err)) == 1) {
        rc = 0;
        if (f.number == REQUEST_MODEL)
            rc = pb_get_string(&f, "model_name", model, err);
        if (f.number == REQUEST_PARAMETERS && (rc = pb_get_bytes(&f, "a parameter", &entry, err)) == 0)
            rc = read_param(entry, config, err);
    }
    return rc;
}

/* I/O thread. */
static void on_outcome(struct http_request *r, int status, const char *text)
{
    struct api_call *call = r->user;
    struct buf b;
    if (status < 0) {
        api__grpc_fail(call->grpc, status, text, api__retry_after_s(status, NULL));
        return;
    }
    api__grpc_begin(&b);
    api__grpc_reply(call->grpc, &b);
}

static void change(struct grpc_call *g, struct str message, bool load)
{
    struct error err = {0};
    struct str model, config;
    int rc = read_request(message, &model, &config, &err);
    if (rc == 0) {
        g->request->log_model = (struct str){arena_strdup(g->request->arena, model), model.n};
        if (!g->request->log_model.p)
            g->request->log_model.n = 0;
        rc = api__grpc_check_model(g->call, model, (struct str){0}, &err);
    }
    if (rc == 0)
        rc = api__control(g->api, g->request, load, model, config, on_outcome, &err);
    if (rc < 0)
        api__grpc_fail(g, rc, err.text, api__retry_after_s(rc, NULL));
}

void api__grpc_load(struct grpc_call *g, struct str message)
{
    change(g, message, true);
}

void api__grpc_unload(struct grpc_call *g, struct str message)
{
    change(g, message, false);
}
