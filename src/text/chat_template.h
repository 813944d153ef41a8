/* chat_template.h: the Jinja subset of chat templates, compiled once, rendered in a sandbox.
 *
 * Covers what the templates in the wild use (statements if/elif/else, for with loop.*, set, block set, macro, call, filter
 * blocks, break/continue, generation; filters, tests, methods, namespace, range, raise_exception, strftime_now; whitespace
 * control with trim_blocks and lstrip_blocks on, as transformers sets them). A construct outside it is an error at compile
 * time that names it. The interpreter reaches nothing outside its arguments, and steps, depth and output are bounded.
 *
 * Strings that came from the arguments keep a mark through concatenation, slicing and filters: the result is a list of spans
 * where template text may become control tokens and users' text may not (tokenizer.h). Immutable after compile; any thread. */
#ifndef INFERD_TEXT_CHAT_TEMPLATE_H
#define INFERD_TEXT_CHAT_TEMPLATE_H

#include <stdint.h>
#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"
#include "text/tokenizer.h"

struct chat_template;

struct chat_template_limits {
    uint64_t max_steps;      /* evaluated nodes; 0: 2,000,000 */
    uint32_t max_depth;      /* nested calls and expressions; 0: 200 */
    size_t max_output_bytes; /* 0: 16 MiB */
    size_t max_memory_bytes; /* of intermediate values; 0: 64 MiB */
};

/* INVALID: line and what is wrong or not supported. `source` is copied. */
int chat_template_compile(struct str source, struct chat_template **out, struct error *err) MUST_CHECK;
void chat_template_destroy(struct chat_template *t);

/* Render with the members of the object `args` as variables (messages, tools, add_generation_prompt, bos_token, ..., anything
 * from chat_template_kwargs). Strings under the keys listed in `trusted` (NULL-terminated; e.g. "bos_token") are template text;
 * every other string is user text. `now_s`: seconds since 1970, for strftime_now (UTC). Spans and their text live in `a`.
 * INVALID: raise_exception's text, an undefined operation with its line; EXHAUSTED: a limit, named; NOMEM. */
int chat_template_render(const struct chat_template *t, yyjson_val *args, const char *const *trusted, int64_t now_s,
                         const struct chat_template_limits *limits, struct arena *a, struct text_span **spans, size_t *n_spans,
                         struct error *err) MUST_CHECK;

/* What a template can do, found by rendering probes once: for the API to choose how to pass tools and system messages. */
struct chat_template_caps {
    bool tools, tool_calls, tool_responses, system_role, parallel_tool_calls, content_parts, thinking;
};
void chat_template_probe(const struct chat_template *t, struct chat_template_caps *out);

#endif
