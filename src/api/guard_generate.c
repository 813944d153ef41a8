/* guard_generate.c: see guard.h: the guard's part in generations.
 *
 * Input: each text of a prompt before it is tokenized, and the number of its tokens. Output: what a choice says goes through redactors between the
 * parser that takes it apart (openai_calls.h) and the protocol that writes it: one for content and reasoning, one for arguments of calls and
 * for answers that a grammar made JSON. When the kind of text changes, or the choice ends, what was held back comes out.
 *
 * Log-probabilities name tokens, so they would tell what was redacted: a stream that asks for them is refused where a rule may change
 * the answer, and a whole answer has none of a choice that was changed. Usage counts what the model said, not what left. */
#include <stdlib.h>

#include "api/generate_priv.h"
#include "api/guard_priv.h"
#include "api/openai_priv.h"
#include "base/status.h"

struct choice_filter {
    struct redactor *text, *json; /* made when first needed */
    struct redactor *open;        /* of the two: holds text of `kind`; NULL: nothing is held */
    enum calls_piece kind;
    bool refused, failed;
};

struct gen_guard {
    struct guard_selection rules;
    struct choice_filter *choices; /* [n_prompts * n] */
    size_t n_choices;
    bool json_content;
};

/* ---- input; worker thread ---- */

static int refused(struct gen_call *c, int rc, const char *param)
{
    if (rc < 0 && rc != STATUS_NOMEM)
        c->bad_input = true;
    return generate__fault(c, rc, param, NULL);
}

/* Content types of a request whose model is in its body. The reply's headers aren't the worker's: the bits are. */
static int check_type(struct gen_call *c, const struct guard_who *who, struct error *err)
{
    const struct guard_set *set = c->call->guard->set;
    struct str type = http_header_get(c->request, "content-type");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < set->n_inputs; i++) {
        enum guard_check check;
        if (!guard_matches(&set->inputs[i].match, who))
            continue;
        rc = guard_check_type(&set->inputs[i], type, &check, err);
        if (rc < 0)
            rc = api__guard_found(c->call, who, i, check, set->inputs[i].mode, rc, c->request->request_id.p, err, &c->flagged);
    }
    return rc;
}

int generate__guard_body(struct gen_call *c, struct str asked, struct error *err)
{
    struct api_guard *g = c->call->guard;
    const struct http_request *r = c->request;
    if (!g)
        return 0;
    c->who = ARENA_NEW(&c->arena, struct guard_who);
    if (!c->who)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    *c->who = g->who;
    c->who->model = model_version_model(c->version);
    c->who->asked = asked;
    /* where the model is in the path the head was looked at; gRPC has a content type of its own */
    int rc = g->known || c->call->is_grpc ? 0 : check_type(c, c->who, err);
    if (rc == 0)
        rc = api__guard_body(c->call, c->who, r->body.n, r->request_id.p, &c->flagged, err);
    if (rc == 0 && !c->call->is_grpc)
        rc = api__guard_depth(c->call, c->who, (struct str){(const char *)r->body.p, r->body.n}, r->request_id.p, &c->flagged,
                              err);
    return refused(c, rc, NULL);
}

static int check_text(const struct guard_input *p, struct str text, const char *field, enum guard_check *check,
                      struct error *err)
{
    int rc = p->has_text ? guard_check_text(&p->text, text, field, check, err) : 0;
    if (rc < 0 || !p->n_denied)
        return rc;
    struct redactor *denied = redactor_create(p->denied, p->n_denied, 0, REDACTOR_TEXT);
    rc = denied ? guard_check_denied(denied, text, field, check, err)
                : error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    redactor_destroy(denied);
    return rc;
}

int generate__guard_text(struct gen_call *c, struct str text, const char *field, size_t index, struct error *err)
{
    struct api_guard *g = c->call->guard;
    char name[80];
    int rc = 0;
    if (!g || !c->who)
        return 0;
    field = field ? field : "text";
    if (index == SIZE_MAX)
        snprintf(name, sizeof name, "%s", field);
    else
        snprintf(name, sizeof name, "%s[%zu]", field, index);
    if (c->call->is_grpc) /* of a stream's message, the text is what there is to measure */
        rc = api__guard_body(c->call, c->who, text.n, c->request->request_id.p, &c->flagged, err);
    for (size_t i = 0; rc == 0 && i < g->set->n_inputs; i++) {
        const struct guard_input *p = &g->set->inputs[i];
        enum guard_check check = GUARD_TEXT;
        if (!guard_matches(&p->match, c->who))
            continue;
        rc = check_text(p, text, name, &check, err);
        if (rc < 0)
            rc = api__guard_found(c->call, c->who, i, check, p->mode, rc, c->request->request_id.p, err, &c->flagged);
    }
    return refused(c, rc, field);
}

int generate__guard_tokens(struct gen_call *c, size_t n_tokens, struct error *err)
{
    struct api_guard *g = c->call->guard;
    int rc = 0;
    for (size_t i = 0; g && c->who && rc == 0 && i < g->set->n_inputs; i++) {
        const struct guard_input *p = &g->set->inputs[i];
        if (!p->text.max_tokens || n_tokens <= p->text.max_tokens || !guard_matches(&p->match, c->who))
            continue;
        rc = error_set(err, STATUS_INVALID, "%s: the prompt has %zu tokens; accepted for this model: at most %llu",
                       c->protocol->prompt_field ? c->protocol->prompt_field : "prompt", n_tokens,
                       (unsigned long long)p->text.max_tokens);
        rc = api__guard_found(c->call, c->who, i, GUARD_TEXT, p->mode, rc, c->request->request_id.p, err, &c->flagged);
    }
    return refused(c, rc, c->protocol->prompt_field);
}

/* ---- which policies hold; worker thread ---- */

static bool is_json(struct str grammar)
{
    return str_eqz(grammar, "json") || str_eqz(grammar, "json_schema");
}

int generate__guard_outputs(struct gen_call *c, struct error *err)
{
    const struct api_guard *g = c->call->guard;
    if (!g || !c->who || !g->set->n_outputs || c->embed || c->protocol->only_prepare)
        return 0;
    struct gen_guard *o = ARENA_NEW(&c->arena, struct gen_guard);
    if (!o)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    if (!api__guard_select(g->set, c->who, &o->rules))
        return 0;
    if (c->params.logprobs >= 0 && o->rules.changes && (c->stream || c->call->match.id == ROUTE_RESPONSES)) {
        int rc =
            error_set(err, STATUS_INVALID,
                      "logprobs: answers of this model are redacted by the policy \"%s\", and log-probabilities would tell "
                      "what was; ask without them, or for a whole answer of /v1/chat/completions or /v1/completions",
                      o->rules.policy[0]->name);
        return generate__fault(c, rc, "logprobs", NULL);
    }
    o->n_choices = c->n_prompts * c->params.n;
    o->choices = arena_array(&c->arena, o->n_choices, sizeof *o->choices);
    if (!o->choices)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    o->json_content = is_json(c->params.grammar_kind);
    c->guard = o;
    return 0;
}

/* ---- output; I/O thread ---- */

/* A choice's text on its way. */
struct passage {
    const struct gen_guard *guard;
    struct choice_filter *choice;
    const struct calls_sink *sink;
};

static void give(struct passage *p, struct redactor *r, enum calls_piece kind, struct str text, bool last)
{
    struct buf out;
    buf_init(&out);
    int rc = redactor_push(r, text, last, &out);
    if (out.n && rc != STATUS_NOMEM)
        p->sink->piece(p->sink->ctx, kind, buf_str(&out));
    p->choice->refused |= rc == STATUS_FORBIDDEN;
    p->choice->failed |= rc == STATUS_NOMEM;
    buf_release(&out);
}

/* What is held comes out: text of another kind follows, or none. */
static void close_open(struct passage *p)
{
    struct redactor *r = p->choice->open;
    p->choice->open = NULL;
    if (r && !p->choice->refused)
        give(p, r, p->choice->kind, (struct str){"", 0}, true);
}

static struct redactor *redactor_for(struct passage *p, enum calls_piece kind)
{
    const struct guard_selection *s = &p->guard->rules;
    bool json = kind == CALLS_ARGUMENTS || (kind == CALLS_CONTENT && p->guard->json_content);
    struct redactor **r = json ? &p->choice->json : &p->choice->text;
    if (!*r)
        *r = redactor_create(s->rules, s->n, s->hold_bytes, json ? REDACTOR_JSON : REDACTOR_TEXT);
    p->choice->failed |= !*r;
    return *r;
}

static void on_piece(void *ctx, enum calls_piece kind, struct str text)
{
    struct passage *p = ctx;
    struct choice_filter *f = p->choice;
    if (f->open && (f->kind != kind || kind == CALLS_BEGIN))
        close_open(p);
    if (f->refused || f->failed)
        return;
    struct redactor *r = redactor_for(p, kind);
    if (!r)
        return;
    if (kind == CALLS_BEGIN) { /* a name comes whole */
        give(p, r, kind, text, true);
        return;
    }
    f->open = r;
    f->kind = kind;
    give(p, r, kind, text, false);
}

static void push(const struct gen_event *ev, struct calls *calls, const struct calls_sink *sink)
{
    if (!calls) {
        sink->piece(sink->ctx, CALLS_CONTENT, ev->text);
        return;
    }
    calls_push(calls, ev->text, sink);
    if (ev->finish != TOKEN_FINISH_NONE)
        calls_finish(calls, sink);
}

int generate__push(struct gen_call *c, const struct gen_event *ev, struct calls *calls, const struct calls_sink *sink)
{
    struct gen_guard *g = c->guard;
    if (!g) {
        push(ev, calls, sink);
        return (int)ev->finish;
    }
    struct passage p = {g, &g->choices[ev->choice], sink};
    const struct calls_sink guarded = {on_piece, &p};
    push(ev, calls, &guarded);
    if (ev->finish != TOKEN_FINISH_NONE)
        close_open(&p);
    c->out.failed |= p.choice->failed;
    return p.choice->refused ? TOKEN_FINISH_FILTERED : (int)ev->finish;
}

bool generate__is_refused(const struct gen_call *c, uint32_t choice)
{
    return c->guard && c->guard->choices[choice].refused;
}

bool generate__is_all_refused(const struct gen_call *c, uint32_t prompt)
{
    for (uint32_t i = 0; i < c->params.n; i++)
        if (!generate__is_refused(c, prompt * c->params.n + i))
            return false;
    return true;
}

bool generate__is_changed(const struct gen_call *c, uint32_t choice)
{
    const struct choice_filter *f = c->guard ? &c->guard->choices[choice] : NULL;
    return f && (f->refused || (f->text && redactor_changed(f->text)) || (f->json && redactor_changed(f->json)));
}

void generate__guard_release(struct gen_call *c)
{
    struct gen_guard *g = c->guard;
    if (c->bad_input)
        c->call->verdict = EDGE_BAD_INPUT;
    for (size_t i = 0; g && i < g->n_choices; i++) {
        struct choice_filter *f = &g->choices[i];
        if (f->refused)
            c->call->verdict = EDGE_BAD_OUTPUT;
        api__guard_count(c->api, &g->rules, f->text, c->who, c->request->request_id.p);
        api__guard_count(c->api, &g->rules, f->json, c->who, c->request->request_id.p);
        redactor_destroy(f->text);
        redactor_destroy(f->json);
    }
}
