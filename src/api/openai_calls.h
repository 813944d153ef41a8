/* openai_calls.h: a model's text taken apart as it comes: reasoning, content, and tool calls in the formats that models write.
 *
 *   <think>...</think>                                      reasoning, before everything else
 *   CALLS_HERMES   <tool_call>{"name":..,"arguments":{..}}</tool_call>     Hermes, Qwen, and models that were told to
 *   CALLS_MISTRAL  [TOOL_CALLS][{..},{..}]  or  [TOOL_CALLS]name[ARGS]{..}  Mistral
 *   CALLS_LLAMA    {"name":..,"parameters":{..}}, alone, possibly behind <|python_tag|>, several with ';' between    Llama 3
 *   CALLS_ARRAY    [{"name":..,"arguments":{..}},..]        what a grammar made of a required call
 *   CALLS_NAMED    {..}                                     the arguments alone: a grammar made them for one function
 *
 * Text is given on as soon as it can't be the beginning of a marker; arguments as they come, once the name is known. What looks like a
 * call and isn't one (no JSON, no name) becomes content, unchanged. White space around calls and behind reasoning is dropped. Pure; one
 * thread an object. */
#ifndef INFERD_API_OPENAI_CALLS_H
#define INFERD_API_OPENAI_CALLS_H

#include <stdbool.h>

#include "base/buf.h"

enum calls_format { CALLS_NONE, CALLS_HERMES, CALLS_MISTRAL, CALLS_LLAMA, CALLS_ARRAY, CALLS_NAMED };

/* Which format a chat template teaches, by its text; CALLS_NONE when it shows none of them. */
enum calls_format calls_format_of(struct str chat_template);

enum calls_piece {
    CALLS_CONTENT,
    CALLS_REASONING,
    CALLS_BEGIN,    /* a call begins; the text is its name */
    CALLS_ARGUMENTS /* the next part of its arguments: JSON text */
};

struct calls_sink {
    void (*piece)(void *ctx, enum calls_piece kind, struct str text); /* borrowed for the call */
    void *ctx;
};

enum calls_state {
    CALLS_S_START,     /* nothing but white space so far */
    CALLS_S_REASONING, /* behind <think> */
    CALLS_S_TEXT,
    CALLS_S_BETWEEN, /* behind a marker, or between the calls of a list */
    CALLS_S_NAME,    /* Mistral's bare name */
    CALLS_S_OBJECT,  /* inside a call's object */
    CALLS_S_ARGS,    /* inside arguments that stand alone */
    CALLS_S_CLOSE,   /* behind an object: the closing marker, or the next call */
};

/* One object or value of JSON, byte by byte. */
struct calls_json {
    int depth;
    bool string, escape, key; /* key: the string at depth 1 is, or the next will be, a member's name */
    bool begun;
};

struct calls {
    enum calls_format format;
    const char *named; /* CALLS_NAMED: the function */
    bool thinking;     /* <think> is looked for */
    enum calls_state state;
    struct calls_json json;
    struct buf raw;   /* what became of the current call, to be given as content if it is none; or text that is held back */
    struct buf token; /* the member's name or the function's name as it comes */
    struct buf name;  /* of the current call */
    struct buf args;  /* arguments that came before the name */
    int member;       /* which member's value is being read: one of the file's MEMBER_ */
    bool has_name, has_args, array, skip_space;
    unsigned n_calls;
    bool failed; /* out of memory */
};

/* `reasoning`: the prompt ended in <think>, the text begins inside. */
void calls_init(struct calls *c, enum calls_format format, const char *named, bool thinking, bool reasoning);
void calls_release(struct calls *c);
void calls_push(struct calls *c, struct str text, const struct calls_sink *sink);
/* The text is over: give what is held. */
void calls_finish(struct calls *c, const struct calls_sink *sink);

#endif
