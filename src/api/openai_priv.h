/* openai_priv.h: for openai*.c and generate_kserve.c: what OpenAI's endpoints share: reading parameters, identities, pieces of JSON. */
#ifndef INFERD_API_OPENAI_PRIV_H
#define INFERD_API_OPENAI_PRIV_H

#include "api/generate_priv.h"
#include "api/openai_calls.h"

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
/* The middle of it: what c->fields says about sampling and limits; c->version is set. */
int openai__sampling(struct gen_call *c, struct openai_reply *reply, bool chat, struct error *err) MUST_CHECK;
/* "priority" alone. */
int openai__priority(struct gen_call *c, struct error *err) MUST_CHECK;
/* As json_get_*, and the field is remembered as the one at fault. */
int openai__bool(struct gen_call *c, yyjson_val *obj, const char *key, bool *out, struct error *err) MUST_CHECK;
int openai__u32(struct gen_call *c, yyjson_val *obj, const char *key, uint64_t min, uint64_t max, uint32_t *out,
                struct error *err) MUST_CHECK;
int openai__str(struct gen_call *c, yyjson_val *obj, const char *key, enum json_need need, struct str *out,
                struct error *err) MUST_CHECK;
/* Hand `take` each of the prompts in the body's member `field`: a text, a list of texts, one list of token ids, or a list of such. Makes room for
 * as many. */
int openai__each_prompt(struct gen_call *c, const char *field,
                        int (*take)(struct gen_call *c, yyjson_val *v, size_t index, struct error *err),
                        struct error *err) MUST_CHECK;
/* An error about `param`, STATUS_INVALID. */
int openai__invalid(struct gen_call *c, const char *param, struct error *err, const char *fmt, ...) PRINTF_LIKE(4, 5);
void openai__identify(struct openai_reply *reply, const char *prefix);

/* ---- openai_adapters.c ---- */

/* The version that has an adapter of this name, with a reference; NULL: none. Any thread. */
struct model_version *openai__find_adapter(struct api *a, struct str name);

/* ---- openai_json.c: pieces of replies ---- */

const char *openai__finish_name(enum token_finish f);
void openai__usage(struct buf *out, const struct token_usage *u);
/* Chat's form: elements of "content" for an event's tokens. */
void openai__logprobs(struct buf *out, const struct gen_event *ev, uint32_t row);
/* A string member without its comma: "key":"text". */
void openai__member(struct buf *out, const char *key, struct str text);

/* ---- openai_format.c: worker thread ---- */

enum tool_choice { TOOL_CHOICE_NONE, TOOL_CHOICE_AUTO, TOOL_CHOICE_REQUIRED, TOOL_CHOICE_NAMED };

/* What a request says about the form of its answer. */
struct openai_format {
    yyjson_val *tools; /* array in chat's form; NULL: none, or they may not be called */
    enum tool_choice choice;
    const char *named; /* TOOL_CHOICE_NAMED */
    bool parallel;     /* several calls in one answer */
    enum calls_format calls;
    bool thinking;  /* reasoning is looked for */
    bool reasoning; /* the prompt ends inside it; set by openai__messages */
};

/* tools, tool_choice, parallel_tool_calls; response_format and vLLM's and llama.cpp's names for constraints: into `f` and the grammar of
 * c->params. */
int openai__format(struct gen_call *c, struct openai_format *f, struct error *err) MUST_CHECK;
/* The constraints alone. */
int openai__constraints(struct gen_call *c, struct error *err) MUST_CHECK;

/* ---- openai_messages.c: worker thread ---- */

bool openai__known_role(struct str role);

/* The conversation `messages` (the body's where NULL) to prompt tokens of c->prompts[0]. `f` may be NULL: no tools. */
int openai__messages(struct gen_call *c, yyjson_val *messages, struct openai_format *f, struct error *err) MUST_CHECK;

/* ---- openai_answer.c: I/O thread: one choice of a chat ---- */

#define OPENAI_CALLS_MAX 128

struct openai_call {
    char id[40];
    struct str name; /* in the answer's arena */
    struct buf arguments;
};

/* What came of one choice so far: filled by a calls_sink, or all at once. */
struct openai_answer {
    struct calls calls;
    struct buf content, reasoning;
    struct openai_call *call; /* [n_calls] */
    size_t n_calls;
    enum token_finish finish;
};

void openai__answer_init(struct openai_answer *a, const struct openai_format *f);
void openai__answer_release(struct openai_answer *a);
/* Keep a piece. False: out of memory, or a call that is one too many (ignored). */
bool openai__answer_add(struct openai_answer *a, const struct openai_format *f, enum calls_piece kind, struct str text);
/* "stop", "length", "tool_calls" or "content_filter". */
const char *openai__answer_finish(const struct openai_answer *a, const struct openai_format *f);

#endif
