/* guard.h: api's own: where protocols meet the guard (edge/guard_gate.h): inputs once they are bound, text before it is tokenized, output before
 * it leaves. Every hook begins with a look at one pointer, which is NULL where nothing is configured for a request. */
#ifndef INFERD_API_GUARD_H
#define INFERD_API_GUARD_H

#include "base/error.h"
#include "base/str.h"
#include "edge/guard_gate.h"

struct api;
struct api_call;
struct gen_call;
struct gen_event;
struct calls;
struct calls_sink;
struct http_request;
struct infer_call;

/* A request's policies; in its arena. */
struct api_guard {
    struct guard_set *set; /* own reference */
    struct guard_who who;  /* the model is empty until it is known */
    bool known;            /* it was in the path: then */
    bool forwarding;       /* the gateway may send it on: only policies for such requests hold */
    uint64_t flagged;      /* by its content type, a bit for each input policy */
    uint64_t inputs;       /* a bit for each input policy that holds for it */
};

/* ---- guard.c ---- */

/* On the head, once the route is known: sets call->guard where there are policies for requests that run models; checks the content type and lowers the
 * body's limit where the model is in the path. MEDIA_TYPE. */
int api__guard_begin(struct api *a, struct http_request *r, struct api_call *call, struct error *err) MUST_CHECK;
/* The same for a request that the gateway may send on: nothing is set where no policy is for those. */
int api__guard_begin_forwarding(struct api *a, struct http_request *r, struct api_call *call, struct error *err) MUST_CHECK;
/* ... when its body's limit is set: where the model is in the path, type and size are looked at before the body is read. */
int api__guard_forward_head(struct http_request *r, struct api_call *call, struct error *err) MUST_CHECK;
/* ... whose model is known now, as is its body: MEDIA_TYPE, TOO_LARGE, INVALID. Of gRPC the bodies aren't seen: UNIMPLEMENTED where a policy would
 * hold. call->guard is set. I/O thread. */
int api__guard_forward(struct http_request *r, struct api_call *call, struct str model, struct error *err) MUST_CHECK;
/* The request is complete. */
void api__guard_end(struct api_call *call);

/* Would the guard hold an I/O thread for a request of so many bytes, or for the call's answer? Then the pool (work.h) has to have it. */
bool api__guard_is_long(const struct api_call *call, uint64_t bytes);
bool api__guard_is_long_answer(const struct infer_call *c);
/* JSON of a body whose model may not be known yet: its depth. */
int api__guard_json(struct infer_call *c, struct str json, struct error *err) MUST_CHECK;
/* Inputs of an inference, bound to its version: INVALID, TOO_LARGE. Whoever has the call. */
int api__guard_inputs(struct infer_call *c, struct error *err) MUST_CHECK;
/* Its outputs of text: redacts them in place. FORBIDDEN. Whoever has the call. */
int api__guard_outputs(struct infer_call *c, struct error *err) MUST_CHECK;
/* The header of the reply that tells what was flagged, if anything was: `flagged` is a bit for each input policy. call->guard is set. I/O thread. */
void api__guard_headers(struct http_request *r, struct api_call *call, uint64_t flagged);

/* ---- guard_generate.c: generations ---- */

/* Their version is known: content type, body, depth. `asked`: the model as the client named it. Worker thread. */
int generate__guard_body(struct gen_call *c, struct str asked, struct error *err) MUST_CHECK;
/* A text of the prompt; `field` and, where not SIZE_MAX, `index` name it in errors. Worker thread. */
int generate__guard_text(struct gen_call *c, struct str text, const char *field, size_t index, struct error *err) MUST_CHECK;
/* Tokens of one prompt. Worker thread. */
int generate__guard_tokens(struct gen_call *c, size_t n_tokens, struct error *err) MUST_CHECK;
/* Everything is prepared: choose the output policies. INVALID: it asks for what they don't allow. Worker thread. */
int generate__guard_outputs(struct gen_call *c, struct error *err) MUST_CHECK;

/* An event's text, taken apart by `calls` (NULL: all of it is content) and looked at by the output policies, to `sink`. Returns how the choice
 * ended: ev->finish, or TOKEN_FINISH_FILTERED. I/O thread. */
int generate__push(struct gen_call *c, const struct gen_event *ev, struct calls *calls, const struct calls_sink *sink);
/* Was something of this choice replaced or refused? Then its log-probabilities may not leave. */
bool generate__is_changed(const struct gen_call *c, uint32_t choice);
/* Has a policy ended this choice? */
bool generate__is_refused(const struct gen_call *c, uint32_t choice);
/* All choices of this prompt were ended so: the engine needn't go on. */
bool generate__is_all_refused(const struct gen_call *c, uint32_t prompt);
/* Count matches and let go. I/O thread. */
void generate__guard_release(struct gen_call *c);

#endif
