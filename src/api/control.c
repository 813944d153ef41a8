/* control.c: loading and unloading models at run time (explicit mode): Triton's model repository extension.
 *
 * Both answer when the work is done, so that a client that got 200 can rely on it; `?wait=false` answers 202 at once. The
 * outcome arrives on a loader thread and travels to the request's I/O thread as a posted task. A waiter is heap memory of its
 * own, because the task may run after the client left. Model files can't be sent over the API: parameters "file:..." are
 * refused. */
#include <stdio.h>
#include <stdlib.h>

#include "api/api_priv.h"
#include "api/control.h"
#include "base/status.h"
#include "model/registry.h"
#include "wire/json.h"

struct waiter {
    struct loop_task task;
    struct loop *loop;
    struct http_request *request; /* held */
    void (*outcome)(struct http_request *r, int status, const char *text);
    int status;
    char text[ERROR_TEXT_BYTES];
};

static void reply_outcome(struct loop_task *t)
{
    struct waiter *w = CONTAINER_OF(t, struct waiter, task);
    struct http_request *r = w->request;
    w->outcome(r, w->status, w->text);
    http_release(r);
    free(w);
}

static void reply_json(struct http_request *r, int status, const char *text)
{
    struct slice body = slice_borrow("{}", 2);
    if (status < 0)
        http_reply_error(r, status, text, api__retry_after_s(status, NULL));
    else
        http_reply(r, 200, "application/json", NULL, 0, &body, 1);
}

/* Loader thread. */
static void on_done(void *ctx, int status, const char *text)
{
    struct waiter *w = ctx;
    w->status = status;
    snprintf(w->text, sizeof w->text, "%s", text ? text : "");
    loop_post(w->loop, &w->task);
}

int api__control_param(struct str name, struct error *err)
{
    if (str_starts(name, STR("file:")))
        return error_set(err, STATUS_INVALID,
                         "parameter \"%.*s\": model files are not accepted over the API; put them in "
                         "the model repository",
                         STR_ARG(name));
    if (str_eq(name, STR("config")) || str_eq(name, STR("unload_dependents")))
        return 0;
    return error_set(err, STATUS_INVALID, "unknown parameter \"%.*s\"; accepted: \"config\"", STR_ARG(name));
}

/* The inline config of a load body, copied into the arena; empty when there is none. */
static int parse_load_body(struct http_request *r, struct str *config, struct error *err)
{
    struct json j;
    yyjson_val *params = NULL;
    *config = (struct str){0};
    if (!r->body.n)
        return 0;
    int rc = json_parse(&j, (struct str){(const char *)r->body.p, r->body.n}, NULL, err);
    if (rc < 0)
        return rc;
    rc = json_get_obj(j.root, "parameters", JSON_OPTIONAL, &params, NULL, err);
    size_t i, n;
    yyjson_val *key, *value;
    yyjson_obj_foreach(params, i, n, key, value)
    {
        struct str name = json_str(key);
        if (rc < 0)
            break;
        rc = api__control_param(name, err);
        if (rc == 0 && str_eq(name, STR("config")))
            rc = json_get_str(params, "config", JSON_REQUIRED, config, NULL, err);
    }
    if (rc == 0 && config->n) {
        config->p = arena_strdup(r->arena, *config);
        rc = config->p ? 0 : error_set(err, STATUS_NOMEM, "out of memory for this request");
    }
    json_release(&j);
    return rc;
}

static struct waiter *make_waiter(struct http_request *r, void (*outcome)(struct http_request *r, int status, const char *text))
{
    struct waiter *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->task.run = reply_outcome;
    w->loop = r->loop;
    w->request = r;
    w->outcome = outcome;
    http_hold(r);
    return w;
}

int api__control(struct api *a, struct http_request *r, bool load, struct str model, struct str config,
                 void (*outcome)(struct http_request *r, int status, const char *text), struct error *err)
{
    struct waiter *w = outcome ? make_waiter(r, outcome) : NULL;
    if (outcome && !w)
        return error_set(err, STATUS_NOMEM, "out of memory for this request");
    int rc = load ? registry_load(a->o.registry, model, config, w ? on_done : NULL, w, err)
                  : registry_unload(a->o.registry, model, w ? on_done : NULL, w, err);
    if (rc < 0 && w) {
        http_release(r);
        free(w);
    }
    return rc;
}

static void change(struct api *a, struct http_request *r, struct api_call *call, bool load)
{
    struct error err = {0};
    struct str config;
    bool wait;
    int rc = api__query_flag(r, "wait", true, &wait, &err);
    if (rc == 0)
        rc = parse_load_body(r, &config, &err);
    if (rc == 0)
        rc = api__control(a, r, load, call->match.model, config, wait ? reply_json : NULL, &err);
    if (rc < 0) {
        api__reply_error(r, rc, &err);
    } else if (!wait) {
        struct slice body = slice_borrow("{}", 2);
        http_reply(r, 202, "application/json", NULL, 0, &body, 1);
    }
}

void api__load(struct api *a, struct http_request *r, struct api_call *call)
{
    change(a, r, call, true);
}
void api__unload(struct api *a, struct http_request *r, struct api_call *call)
{
    change(a, r, call, false);
}
