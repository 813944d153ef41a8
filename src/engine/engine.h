/* engine.h: what the server asks of an engine, and nothing more.
 *
 * Two faces. A *batch* engine runs one padded batch at a time per instance: model/ owns queueing, padding and slicing.
 * A *token* engine owns its own step loop (continuous batching): requests in, token events out. A model has one face
 * (engine_contract.face). Engines never touch a socket, never call back into model/ except through the sinks below, and
 * never keep a caller's pointer beyond what a slot says.
 *
 * Engines register by a `const struct engine_ops` that the binary lists in a table (cli/engines.c); model/ never names a
 * concrete one. Slots marked (optional) may be NULL; the comment says what that means. */
#ifndef INFERD_ENGINE_ENGINE_H
#define INFERD_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "tensor/tensor.h"

enum engine_face { ENGINE_BATCH, ENGINE_TOKEN };

/* One declared input or output. Strings live as long as the model. */
struct engine_io {
    struct str name;
    enum dtype dtype;
    struct shape shape;                    /* full shape with the batch axis, -1 where dynamic */
    bool optional;                         /* input that may be left out */
    struct str dim_names[TENSOR_RANK_MAX]; /* symbolic names of dynamic dims; n == 0 where unnamed */
};

/* What a loaded model takes and gives. Immutable; owned by the engine's model, valid until unload. */
struct engine_contract {
    enum engine_face face;
    const char *platform; /* KServe `platform`: "onnxruntime_onnx", "inferd_llm", "inferd_fake" */
    const struct engine_io *inputs, *outputs;
    size_t n_inputs, n_outputs;
    bool batchable;         /* dim 0 of every input and output is a dynamic batch axis as far as the file can tell */
    size_t context_tokens;  /* token face: longest sequence; else 0 */
    size_t max_waiting;     /* token face: requests that may wait at once; 0: that has no bound */
    size_t embedding_dims;  /* token face: above 0: the model gives embeddings of so many values, and generates nothing */
    bool reranks;           /* embedding_dims is 1: how well the second text of a pair answers the first, before the sigmoid */
    bool embedding_cut;     /* the first values of an embedding are one, too (Matryoshka): a caller may shorten it */
    struct str description; /* free text from the file; may be empty */
    const char *devices;    /* "cpu", "cuda:0, cpu" ... what it really runs on */
};

struct os_blob; /* os/blob.h */

/* What a file of a model turned out to be. */
enum engine_file {
    ENGINE_FILE_PLAIN,   /* nothing is known about it: the engine reads it itself */
    ENGINE_FILE_CHECKED, /* its bytes are in memory and are those that were signed */
    ENGINE_FILE_SECRET,  /* it is stored encrypted; its content is in memory and may not be written anywhere */
};

/* Where an engine gets a model's files from when they may be sealed or signed (model/seal_vault.h). Used during a load or an estimate only. */
struct engine_files {
    /* `rel` beneath `dir_fd`, as os_blob_read has it. PLAIN: *out is empty. Else *out is the content, which the caller releases with
     * os_blob_release. An error names the file: changed, not signed, no key, no memory. Loader thread; blocks. */
    int (*read)(const struct engine_files *f, int dir_fd, const char *rel, bool follow_out, uint64_t limit_bytes,
                struct os_blob *out, enum engine_file *kind, struct error *err);
};

/* Parameters of a load; all borrowed for the call only. */
struct engine_load {
    const char *name;     /* model name, for messages and profiling */
    const char *version;  /* its version, for the labels of series; NULL where none is served (a check) */
    int dir_fd;           /* the version folder, opened beneath the repository; files are opened from here only */
    const char *dir_path; /* the same folder as a path, for libraries that cannot take an fd; not for messages */
    const char *file;     /* file inside the folder: "model.onnx", "model.gguf" */
    size_t n_instances;   /* instances that will be created at first */
    const struct engine_option *options; /* key/value options for this engine from the model's config */
    size_t n_options;
    bool follow_symlinks;             /* the operator allows links that leave the folder; "..", absolute names stay refused */
    const struct engine_files *files; /* asked before any file is read; NULL: all are plain */
    struct logger *log;
};

struct engine_option {
    struct str key, value;
};

/* One tensor of a run. Inputs: data readable, dense, aligned to 64 bytes unless BYTES. */
struct engine_run {
    const struct tensor *inputs; /* in contract order; inputs[i].dtype == DTYPE_INVALID: optional input left out */
    size_t n_inputs;
    const bool *wanted;     /* [contract n_outputs]: which outputs to compute; NULL: all */
    struct tensor *outputs; /* [contract n_outputs]: filled for wanted ones; data.owner set, caller unrefs */
};

struct engine_memory {
    uint64_t weights_bytes; /* what the model holds while loaded, as well as the engine can tell */
    uint64_t scratch_bytes; /* arenas, caches */
};

/* ---- token face ---- */

enum token_event_kind {
    TOKEN_EVENT_TEXT,   /* new text and/or tokens */
    TOKEN_EVENT_DONE,   /* final; finish and usage are set */
    TOKEN_EVENT_FAILED, /* final; status and error are set */
};

/* FILTERED: an output policy ended it; api/ says so, no engine does. */
enum token_finish { TOKEN_FINISH_NONE, TOKEN_FINISH_STOP, TOKEN_FINISH_LENGTH, TOKEN_FINISH_CANCELLED, TOKEN_FINISH_FILTERED };

struct token_usage {
    uint32_t prompt_tok, cached_tok, generated_tok;
};

struct token_logprob {
    int32_t id;
    float logprob;
    struct str bytes; /* the token's bytes, borrowed for the call */
};

/* Delivered on the engine's step thread; everything borrowed for the call. Must not block.
 *
 * Order: any number of TEXT events; the last one of a choice has `finish` set (its text may be empty). When every choice has ended,
 * or the request was cancelled or failed, exactly one final event: DONE (usage; finish CANCELLED, or that of the choice that ended last)
 * or FAILED (usage so far). A request with `embed` gets only that one event: DONE with the embedding and finish STOP. Tokens come with the event that gives the last of their bytes; tokens of a stop string and the
 * end-of-generation or stop id itself are counted in usage and not listed. */
struct token_event {
    enum token_event_kind kind;
    uint32_t choice; /* 0..n-1 */
    struct str text; /* whole UTF-8 characters, never part of a stop string */
    const int32_t *tokens;
    size_t n_tokens;
    const struct token_logprob *logprobs; /* per token: the chosen one, then top_n alternatives; NULL: not asked */
    size_t n_logprobs;                    /* n_tokens * (1 + top_n) */
    enum token_finish finish;
    struct str stop;        /* the stop string that ended it, if any */
    const float *embedding; /* [n_embedding] of a request with `embed`, in its DONE */
    size_t n_embedding;
    struct token_usage usage;
    int status;
    const char *error;
};

/* Sampling and limits of one request: the field names of OpenAI/vLLM. Defaults by token_params_default (llm). */
struct token_params {
    float temperature, top_p, min_p, typical_p, repetition_penalty, frequency_penalty, presence_penalty;
    int32_t top_k;
    uint64_t seed;
    bool has_seed, ignore_eos;
    uint32_t n, best_of, min_tok, max_tok; /* max_tok 0: up to the context */
    int32_t logprobs;                      /* -1: none, else top alternatives 0..20 */
    const struct str *stop;
    size_t n_stop;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    const struct token_bias {
        int32_t id;
        float bias;
    } * bias;
    size_t n_bias;
    bool control_text;                /* the text of control tokens belongs to the output (formats of tool calls) */
    struct str grammar_kind, grammar; /* "json_schema", "json", "regex", "gbnf", "choice"; empty: none */
};

/* What a token model says about text, for protocols. Immutable, valid while the model is loaded. */
struct engine_text {
    const char *chat_error; /* NULL: `chat` works; else why this model can't chat, as a sentence for clients */
    struct str
        chat_template; /* Jinja source of the template for conversations with tools, else of the only one; may be empty */
    bool chat_tools;   /* the template shows tools to the model; the others likewise */
    bool chat_tool_calls, chat_tool_responses, chat_system, chat_parts, chat_thinking, chat_parallel_calls;
    struct token_params defaults; /* the model's own generation defaults over OpenAI's */
};

struct token_request {
    const int32_t *prompt;
    size_t n_prompt;
    struct token_params params;
    struct str adapter;    /* LoRA name; empty: base */
    struct str cache_salt; /* tenant isolation of the prefix cache; empty: shared */
    struct str tenant;     /* fairness */
    int priority;          /* 0 highest */
    uint64_t deadline_ns;  /* monotonic; UINT64_MAX: none */
    bool embed;            /* pooled embedding instead of generation: for models with embedding_dims; params is not read */
    size_t n_first; /* embed, of a pair: tokens of the first text with its markers; the rest is the second. 0: one text */
    void (*on_event)(void *ctx, const struct token_event *ev); /* exactly one final event per request */
    void *ctx;
};

/* ---- the table ---- */

struct engine;          /* process-wide state of one engine: library handle, thread pools */
struct engine_model;    /* one loaded version; refcounted by model/, not by the engine */
struct engine_instance; /* one executor of a model; used by one thread at a time */

struct engine_ops {
    const char *name;         /* "onnxruntime", "llm", "fake": the value of `backend` in a model's config */
    const char *const *files; /* NULL-terminated default file names it recognises: "model.onnx" */

    /* Once per process. `options` are the server config's rows of this engine. (optional: no process state) */
    int (*open)(const struct engine_option *options, size_t n, struct logger *log, struct engine **out, struct error *err);
    void (*close)(struct engine *e);

    /* Bytes that a load is expected to need at its peak, from the file alone. (optional: file size x 1.3 is assumed) */
    int (*estimate)(struct engine *e, const struct engine_load *spec, uint64_t *bytes, struct error *err);

    /* Load; may take long; runs on a loader thread. On error nothing is left behind and `err` says why. */
    int (*load)(struct engine *e, const struct engine_load *spec, struct engine_model **out, struct error *err);
    /* All instances are destroyed and all outputs released before. */
    void (*unload)(struct engine_model *m);
    const struct engine_contract *(*contract)(const struct engine_model *m);
    /* (optional: zeros) Any thread. */
    void (*memory)(const struct engine_model *m, struct engine_memory *out);

    /* batch face */
    int (*instance_create)(struct engine_model *m, size_t index, struct engine_instance **out, struct error *err);
    void (*instance_destroy)(struct engine_instance *i);
    /* Blocking; on the instance's thread. STATUS_CANCELLED when cancelled. A model's own complaint about its input is
     * STATUS_INVALID where the engine can tell, else STATUS_INTERNAL. */
    int (*run)(struct engine_instance *i, struct engine_run *run, struct error *err);
    /* Ask the run in progress to stop soon; any thread, even when none runs. (optional: runs can't be cancelled) */
    void (*cancel)(struct engine_instance *i);

    /* token face (all optional for batch engines) */
    /* Queue a request: copies what it keeps. Any thread; never blocks on a step. `id` is never 0 and never reused.
     * EXHAUSTED: waiting queue full; INVALID: names the parameter. After an error no event follows. */
    int (*submit)(struct engine_model *m, const struct token_request *req, uint64_t *id, struct error *err);
    /* Ends with one final event (DONE with CANCELLED, or whatever won the race). Any thread; unknown ids are ignored. */
    void (*cancel_id)(struct engine_model *m, uint64_t id);
    /* Load the adapter `path` (a file, or a folder; beneath dir_fd) as `name`. CONFLICT: loaded or being loaded already; EXHAUSTED: the
     * engine's limit on adapters or their memory (text has the numbers); INVALID, UNIMPLEMENTED: it doesn't fit the model. Blocks on the
     * disk; any thread but an I/O thread. */
    int (*adapter_load)(struct engine_model *m, struct str name, int dir_fd, const char *path, struct error *err);
    /* New requests don't find it from now on; those that use it go on, and its memory is freed with the last of them. NOT_FOUND. Doesn't
     * block; any thread. */
    int (*adapter_unload)(struct engine_model *m, struct str name, struct error *err);
    /* Call back with each adapter that requests may name; borrowed for the call. (optional: none) Any thread. */
    void (*adapter_each)(struct engine_model *m, void (*each)(void *ctx, struct str name), void *ctx);
    /* Text <-> tokens; any thread. tokens: malloc'ed array that the caller frees. */
    /* `special`: add what the vocabulary puts around a text (BOS, CLS, ...); `control`: the text of a control token becomes that token. */
    int (*tokenize)(struct engine_model *m, struct str text, bool special, bool control, int32_t **tokens, size_t *n,
                    struct error *err);
    int (*detokenize)(struct engine_model *m, const int32_t *tokens, size_t n, struct buf *out, struct error *err);
    /* (optional: no facts, no chat) */
    const struct engine_text *(*text)(const struct engine_model *m);
    /* A conversation to prompt tokens by the model's chat template. `args`: a JSON object, the template's variables: messages, tools,
     * add_generation_prompt, anything else. Text in it never becomes a control token. tokens: malloc'ed array that the caller frees.
     * More than `max_tok` of them (0: no bound): TOO_LARGE. INVALID: the template's own complaint. Any thread; may take a while.
     * (optional: no chat) */
    int (*chat)(struct engine_model *m, struct str args, size_t max_tok, int32_t **tokens, size_t *n, struct error *err);
    /* Heartbeat for the watchdog: a counter that moves while steps are made, and whether work is pending. Any thread. */
    void (*progress)(const struct engine_model *m, uint64_t *steps, bool *busy);
    /* Prometheus text of this model's own series, labels already applied. (optional: none) Any thread. */
    void (*metrics)(const struct engine_model *m, struct buf *out);
};

#endif
