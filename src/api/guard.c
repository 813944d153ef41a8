/* guard.c: see guard.h: the guard's part in inferences, and what all its hooks share. */
#include "api/guard.h"

#include "api/guard_priv.h"
#include "api/infer_priv.h"
#include "base/status.h"
#include "wire/json.h"

/* ---- the head ---- */

/* Takes the reference of `set`. */
static int begin(struct guard_set *set, struct http_request *r, struct api_call *call, struct error *err)
{
    const struct edge_identity *who = call->who;
    struct api_guard *g = ARENA_NEW(r->arena, struct api_guard);
    if (!g) {
        guard_set_unref(set);
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    }
    g->set = set;
    g->who = (struct guard_who){.tenant = who ? str_of(who->tenant) : STR("default"),
                                .quota_class = who ? str_of(who->quota) : STR("default"),
                                .model = call->match.model,
                                .route = str_of(route_name(call->match.id))};
    call->guard = g;
    return 0;
}

void api__guard_choose(struct api_guard *g)
{
    g->inputs = 0;
    for (size_t i = 0; i < g->set->n_inputs; i++)
        g->inputs |=
            (uint64_t)((g->set->inputs[i].forwarded || !g->forwarding) && guard_matches(&g->set->inputs[i].match, &g->who))
            << i;
    g->known = true;
}

int api__guard_begin(struct api *a, struct http_request *r, struct api_call *call, struct error *err)
{
    api__guard_end(call); /* it might have been for others to answer */
    struct guard_set *set = route_need(call->match.id).scope == EDGE_INFER ? guard_gate_set(a->o.guard) : NULL;
    int rc = set ? begin(set, r, call, err) : 0;
    if (rc || !set || call->is_grpc || !call->match.model.n)
        return rc;
    api__guard_choose(call->guard);
    return api__guard_head(r, call, err);
}

int api__guard_begin_forwarding(struct api *a, struct http_request *r, struct api_call *call, struct error *err)
{
    struct guard_set *set = a->o.guard && route_need(call->match.id).scope == EDGE_INFER ? guard_gate_set(a->o.guard) : NULL;
    bool any = false;
    for (size_t i = 0; set && i < set->n_inputs; i++)
        any |= set->inputs[i].forwarded;
    if (!any) {
        guard_set_unref(set);
        return 0;
    }
    int rc = begin(set, r, call, err);
    if (rc == 0)
        call->guard->forwarding = true;
    return rc;
}

/* Does input policy `i` hold? Remembered where the model was in the path and answers itself. */
static bool holds(const struct api_guard *g, size_t i, const struct guard_who *who)
{
    if (g->forwarding && !g->set->inputs[i].forwarded)
        return false;
    if (g->known && str_eq(who->model, g->who.model))
        return g->inputs >> i & 1;
    return guard_matches(&g->set->inputs[i].match, who);
}

void api__guard_end(struct api_call *call)
{
    if (call->guard)
        guard_set_unref(call->guard->set);
    call->guard = NULL;
}

int api__guard_head(struct http_request *r, struct api_call *call, struct error *err)
{
    struct api_guard *g = call->guard;
    struct str type = g->inputs ? http_header_get(r, "content-type") : (struct str){0};
    for (size_t i = 0; i < g->set->n_inputs; i++) {
        const struct guard_input *p = &g->set->inputs[i];
        enum guard_check check;
        if (!(g->inputs >> i & 1))
            continue;
        if (p->mode == GUARD_REFUSE)
            r->body_limit_bytes = MIN_OF(r->body_limit_bytes, p->max_body);
        int rc = guard_check_type(p, type, &check, err);
        if (rc < 0)
            rc = api__guard_found(call, &g->who, i, check, p->mode, rc, r->request_id.p, err, &g->flagged);
        if (rc < 0) {
            call->verdict = EDGE_BAD_INPUT;
            return rc;
        }
    }
    return 0;
}

int api__guard_found(struct api_call *call, const struct guard_who *who, size_t i, enum guard_check check, enum guard_mode mode,
                     int rc, const char *request_id, const struct error *err, uint64_t *flagged)
{
    const struct guard_input *p = &call->guard->set->inputs[i];
    if (rc == STATUS_NOMEM)
        return rc;
    guard_gate_note_input(call->api->o.guard, p, check, mode, who, request_id, err->text);
    if (mode == GUARD_REFUSE)
        return rc;
    if (mode == GUARD_FLAG)
        *flagged |= 1ull << i;
    return 0;
}

void api__guard_headers(struct http_request *r, struct api_call *call, uint64_t flagged)
{
    struct buf names;
    flagged |= call->guard->flagged;
    if (!flagged)
        return;
    buf_init(&names);
    for (size_t i = 0; i < call->guard->set->n_inputs; i++)
        if (flagged >> i & 1) {
            buf_append_z(&names, names.n ? "," : "");
            buf_append_z(&names, call->guard->set->inputs[i].name);
        }
    const char *text = names.failed ? NULL : arena_strdup(r->arena, buf_str(&names));
    const struct http_header header = {STR("x-inferd-guard"), str_of(text)};
    if (text)
        api__add_headers(r, &header, 1);
    buf_release(&names);
}

/* ---- bodies ---- */

int api__guard_body(struct api_call *call, const struct guard_who *who, uint64_t bytes, const char *request_id,
                    uint64_t *flagged, struct error *err)
{
    for (size_t i = 0; i < call->guard->set->n_inputs; i++) {
        const struct guard_input *p = &call->guard->set->inputs[i];
        if (bytes <= p->max_body || !holds(call->guard, i, who))
            continue;
        int rc = error_set(err, STATUS_TOO_LARGE, "the request has %llu bytes; accepted for this model: at most %llu",
                           (unsigned long long)bytes, (unsigned long long)p->max_body);
        rc = api__guard_found(call, who, i, GUARD_BODY, p->mode, rc, request_id, err, flagged);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int api__guard_depth(struct api_call *call, const struct guard_who *who, struct str json, const char *request_id,
                     uint64_t *flagged, struct error *err)
{
    for (size_t i = 0; i < call->guard->set->n_inputs; i++) {
        const struct guard_input *p = &call->guard->set->inputs[i];
        if (!p->max_depth || !holds(call->guard, i, who) || json_opens_at_most(json, p->max_depth) ||
            json_scan_depth(json, p->max_depth + 1) <= p->max_depth)
            continue;
        int rc = error_set(err, STATUS_INVALID, "the JSON is nested %u deep; accepted for this model: at most %u",
                           json_scan_depth(json, GUARD_DEPTH_MAX + 1), p->max_depth);
        rc = api__guard_found(call, who, i, GUARD_DEPTH, p->mode, rc, request_id, err, flagged);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- inferences ---- */

/* Rules over text read some 20 MB a second, all built-ins together; numbers are compared a hundred times as fast. */
#define LONG_TEXT_BYTES    (16u << 10)
#define LONG_NUMBERS_BYTES (1u << 20)

bool api__guard_is_long(const struct api_call *call, uint64_t bytes)
{
    const struct guard_set *set = call->guard ? call->guard->set : NULL;
    if (!set || !set->n_inputs || bytes <= LONG_TEXT_BYTES)
        return false;
    for (size_t i = 0; i < set->n_inputs; i++)
        if (set->inputs[i].n_denied)
            return true;
    return bytes > LONG_NUMBERS_BYTES;
}

bool api__guard_is_long_answer(const struct infer_call *c)
{
    uint64_t bytes = 0;
    if (!c->call->guard || !c->call->guard->set->n_outputs)
        return false;
    for (size_t i = 0; i < model_version_contract(c->version)->n_outputs; i++)
        bytes += c->inf.outputs[i].dtype == DTYPE_BYTES ? c->inf.outputs[i].data.n : 0;
    return bytes > LONG_TEXT_BYTES;
}

static struct guard_who who_of(const struct infer_call *c)
{
    struct guard_who who = c->call->guard->who;
    who.model = model_version_model(c->version);
    who.asked = c->model;
    return who;
}

static int refused(struct infer_call *c, int rc)
{
    if (rc < 0 && rc != STATUS_NOMEM)
        c->verdict = EDGE_BAD_INPUT;
    return rc;
}

int api__guard_json(struct infer_call *c, struct str json, struct error *err)
{
    if (!c->call->guard || !json.n)
        return 0;
    struct guard_who who = who_of(c);
    return refused(c, api__guard_depth(c->call, &who, json, c->inf.request_id, &c->flagged, err));
}

static bool has_bytes(const struct infer *inf)
{
    for (size_t i = 0; i < inf->n_inputs; i++)
        if (inf->inputs[i].dtype == DTYPE_BYTES)
            return true;
    return false;
}

static int check_tensors(struct infer_call *c, const struct guard_input *p, enum guard_check *check, struct error *err)
{
    struct redactor *denied = NULL;
    int rc = 0;
    if (p->n_denied && has_bytes(&c->inf)) {
        denied = redactor_create(p->denied, p->n_denied, 0, REDACTOR_TEXT);
        if (!denied)
            return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    }
    for (size_t i = 0; rc == 0 && i < c->inf.n_inputs; i++)
        rc = guard_check_tensor(p, &c->inf.inputs[i], denied, check, err);
    redactor_destroy(denied);
    return rc;
}

/* One policy: what is written down, then what was learned. */
static int check_policy(struct infer_call *c, size_t i, const struct guard_who *who, struct error *err)
{
    const struct guard_input *p = &c->call->guard->set->inputs[i];
    enum guard_check check = GUARD_SCORE;
    int rc = check_tensors(c, p, &check, err);
    if (rc < 0)
        rc = api__guard_found(c->call, who, i, check, p->mode, rc, c->inf.request_id, err, &c->flagged);
    if (rc < 0 || !p->slot)
        return rc;
    rc = guard_gate_observe(c->call->api->o.guard, p, c->inf.inputs, c->inf.n_inputs, err);
    return rc < 0 ? api__guard_found(c->call, who, i, GUARD_SCORE, p->reference->mode, rc, c->inf.request_id, err, &c->flagged)
                  : 0;
}

int api__guard_inputs(struct infer_call *c, struct error *err)
{
    if (!c->call->guard)
        return 0;
    struct guard_who who = who_of(c);
    const struct guard_set *set = c->call->guard->set;
    uint64_t bytes = 0;
    for (size_t i = 0; i < c->inf.n_inputs; i++)
        bytes += c->inf.inputs[i].data.n;
    if (c->call->infer == c) /* in a stream, a message isn't the body */
        bytes = MAX_OF(bytes, c->request->body.n);
    int rc = api__guard_body(c->call, &who, bytes, c->inf.request_id, &c->flagged, err);
    for (size_t i = 0; rc == 0 && i < set->n_inputs; i++)
        if (holds(c->call->guard, i, &who))
            rc = check_policy(c, i, &who, err);
    return refused(c, rc);
}

/* ---- outputs of inferences ---- */

size_t api__guard_select(const struct guard_set *set, const struct guard_who *who, struct guard_selection *out)
{
    *out = (struct guard_selection){0};
    for (size_t i = 0; i < set->n_outputs; i++) {
        const struct guard_output *p = &set->outputs[i];
        if (!guard_matches(&p->match, who))
            continue;
        for (size_t k = 0; k < p->n_rules && out->n < POLICY_RULES_MAX; k++) {
            out->rules[out->n] = p->rules[k];
            out->policy[out->n] = p;
            out->index[out->n++] = k;
            out->changes |= policy_rule_action(p->rules[k]) != POLICY_LOG;
        }
        out->hold_bytes = MAX_OF(out->hold_bytes, p->hold_bytes);
    }
    return out->n;
}

void api__guard_count(struct api *a, const struct guard_selection *s, const struct redactor *r, const struct guard_who *who,
                      const char *request_id)
{
    for (size_t i = 0; r && i < s->n; i++) {
        uint64_t hits = redactor_hits(r, i);
        if (!hits && redactor_gave_up(r) && redactor_refused_by(r) == s->rules[i])
            hits = 1;
        if (hits)
            guard_gate_note_output(a->o.guard, s->policy[i], s->index[i], hits, who, request_id);
    }
}

/* The elements of a BYTES output, one by one. */
static int redact_tensor(struct tensor *t, struct redactor *r, struct error *err)
{
    struct buf out;
    size_t i = 0;
    int rc = 0;
    buf_init(&out);
    for (size_t at = 0; rc == 0 && at + 4 <= t->data.n; i++) {
        uint32_t n, length;
        memcpy(&n, t->data.p + at, sizeof n);
        size_t head = out.n;
        buf_append(&out, &n, sizeof n);
        if (n > t->data.n - at - 4)
            break; /* tensor_check has seen to it that there is none */
        rc = redactor_push(r, (struct str){(const char *)t->data.p + at + 4, n}, true, &out);
        length = (uint32_t)(out.n - head - sizeof n);
        if (rc == 0)
            memcpy(out.p + head, &length, sizeof length);
        at += 4 + (size_t)n;
    }
    if (rc == 0 && redactor_changed(r)) {
        struct slice data = slice_take(&out);
        rc = data.p ? 0 : STATUS_NOMEM;
        if (rc == 0) {
            slice_release(&t->data);
            t->data = data;
        }
    }
    buf_release(&out);
    if (rc == STATUS_FORBIDDEN)
        return error_set(err, rc, "output \"%.*s\", element %zu: the answer may not leave: rule \"%s\"%s", STR_ARG(t->name),
                         i - 1, policy_rule_name(redactor_refused_by(r)),
                         redactor_gave_up(r) ? " could not be applied in time" : "");
    return rc < 0 ? error_set(err, rc, "out of memory for this answer; try again later") : 0;
}

int api__guard_outputs(struct infer_call *c, struct error *err)
{
    struct guard_selection s;
    const struct engine_contract *k = model_version_contract(c->version);
    bool text = false;
    if (!c->call->guard || !c->call->guard->set->n_outputs)
        return 0;
    for (size_t i = 0; i < k->n_outputs; i++)
        text |= c->inf.outputs[i].dtype == DTYPE_BYTES && c->inf.outputs[i].data.n;
    struct guard_who who = who_of(c);
    if (!text || !api__guard_select(c->call->guard->set, &who, &s))
        return 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < k->n_outputs; i++) {
        struct tensor *t = &c->inf.outputs[i];
        if (t->dtype != DTYPE_BYTES || !t->data.n)
            continue;
        t->name = k->outputs[i].name;
        struct redactor *r = redactor_create(s.rules, s.n, s.hold_bytes, REDACTOR_TEXT);
        rc = r ? redact_tensor(t, r, err) : error_set(err, STATUS_NOMEM, "out of memory for this answer; try again later");
        if (r)
            api__guard_count(c->call->api, &s, r, &who, c->inf.request_id);
        redactor_destroy(r);
    }
    if (rc == STATUS_FORBIDDEN)
        c->verdict = EDGE_BAD_OUTPUT;
    return rc;
}
