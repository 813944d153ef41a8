/* openai_priv.h: for openai*.c and generate_kserve.c: what OpenAI's endpoints share: reading parameters, identities, pieces of JSON. */
#ifndef INFERD_API_OPENAI_PRIV_H
#define INFERD_API_OPENAI_PRIV_H

#include "api/generate_priv.h"

#define OPENAI_ID_BYTES 48

/* What every reply of one request repeats. */
struct openai_reply {
    char id[OPENAI_ID_BYTES]; /* "chatcmpl-..." */
    int64_t created_s;
    bool include_usage;
    bool continuous_usage; /* vLLM: usage so far in every chunk */
    bool logprobs;
};

/* ---- openai_params.c: worker thread ---- */

/* "model", and what all text endpoints take into c->params, c->stream and `reply`; checks ranges, names the field. `chat`: logprobs is a
 * boolean and top_logprobs a number, max_tokens unset means up to the context. */
int openai__params(struct gen_call *c, struct openai_reply *reply, bool chat, struct error *err) MUST_CHECK;
/* As json_get_*, and the field is remembered as the one at fault. */
int openai__bool(struct gen_call *c, yyjson_val *obj, const char *key, bool *out, struct error *err) MUST_CHECK;
int openai__u32(struct gen_call *c, yyjson_val *obj, const char *key, uint64_t min, uint64_t max, uint32_t *out,
                struct error *err) MUST_CHECK;
int openai__str(struct gen_call *c, yyjson_val *obj, const char *key, enum json_need need, struct str *out,
                struct error *err) MUST_CHECK;
/* An error about `param`, STATUS_INVALID. */
int openai__invalid(struct gen_call *c, const char *param, struct error *err, const char *fmt, ...) PRINTF_LIKE(4, 5);
void openai__identify(struct openai_reply *reply, const char *prefix);

/* ---- openai_json.c: pieces of replies ---- */

const char *openai__finish_name(enum token_finish f);
void openai__usage(struct buf *out, const struct token_usage *u);
/* Chat's form: elements of "content" for an event's tokens. */
void openai__logprobs(struct buf *out, const struct gen_event *ev, uint32_t row);
/* A string member without its comma: "key":"text". */
void openai__member(struct buf *out, const char *key, struct str text);

/* ---- openai_messages.c: worker thread ---- */

/* The conversation in the body to prompt tokens of c->prompts[0]. */
int openai__messages(struct gen_call *c, struct error *err) MUST_CHECK;

#endif
