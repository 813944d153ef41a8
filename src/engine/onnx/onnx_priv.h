/* onnx_priv.h: for siblings in engine/onnx only: the runtime, a loaded model, an instance, and who does what. */
#ifndef INFERD_ENGINE_ONNX_ONNX_PRIV_H
#define INFERD_ENGINE_ONNX_ONNX_PRIV_H

#include <onnxruntime_c_api.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "engine/engine.h"
#include "engine/onnx/scan.h"
#include "os/blob.h"
#include "os/thread.h"

/* Oldest library that has everything we call (AddExternalInitializersFromFilesInMemory came with 1.18). */
#define ORT_API_OLDEST 18

#define ONNX_PROVIDERS_MAX 5
enum onnx_provider { ONNX_CPU, ONNX_CUDA, ONNX_TENSORRT, ONNX_OPENVINO, ONNX_XNNPACK };

enum onnx_switch { ONNX_AUTO, ONNX_ON, ONNX_OFF };

/* Options of the server and, over them, of a model; options.c has the table. */
struct onnx_options {
    /* server only */
    struct str library, log_level;
    uint64_t threads; /* 0: as many as the machine has cores */
    bool spinning, denormals_as_zero;
    struct str cache_dir;
    uint64_t cache_bytes;
    /* server's default, a model's own */
    enum onnx_provider providers[ONNX_PROVIDERS_MAX];
    size_t n_providers;
    bool provider_fallback; /* a provider that isn't there is logged and left out; false: the load fails */
    GraphOptimizationLevel level;
    /* a model's own */
    uint64_t intra_op_threads;     /* > 0: a thread pool of its own instead of the shared one */
    bool parallel;                 /* independent branches in parallel */
    bool arena;                    /* keep freed memory for the next run */
    enum onnx_switch arena_shrink; /* give it back: after each run, never, or (auto) some runs after a burst */
    enum onnx_switch mem_pattern;
    bool optional_inputs; /* initializers that are also graph inputs are offered as optional inputs */
    bool use_cache;
};

/* What a server without options has. */
void onnx_options_init(struct onnx_options *o);
/* Server rows ("onnxruntime.*", "compute.threads"): other keys are skipped. Texts are copied into `a`. INVALID names key and value. */
int onnx_options_server(struct onnx_options *o, const struct engine_option *rows, size_t n, struct arena *a,
                        struct error *err) MUST_CHECK;
/* A model's rows; keys of nobody are skipped and, when they look like ours, logged. */
int onnx_options_model(struct onnx_options *o, const struct engine_option *rows, size_t n, const char *model,
                       struct logger *log, struct error *err) MUST_CHECK;
/* Is `key` a session config entry ("session.*", ...) that a model may set? Those that name files aren't. */
bool onnx_session_entry(struct str key);
const char *onnx_provider_name(enum onnx_provider p); /* "cuda" */

/* Process state. The library is opened by the first load, so a server without ONNX models never has it in memory. */
struct engine {
    struct arena arena; /* option texts */
    struct onnx_options options;
    struct logger *log;
    struct os_mutex lock; /* RANK_ENGINE; guards state */
    struct os_cond changed;
    enum { RUNTIME_CLOSED, RUNTIME_OPENING, RUNTIME_OPEN } state;
    bool closing;
    int open_rc; /* of the last attempt, with its error */
    struct error open_error;
    struct os_thread opener;
    bool opener_started;
    /* written by the one thread that moves OPENING to OPEN, constant afterwards */
    void *library;
    const OrtApi *api;
    OrtEnv *env;
    OrtMemoryInfo *cpu;
    OrtAllocator *allocator; /* the default one, the library's */
    char version[32];        /* "1.24.4" */
    bool built_in[ONNX_PROVIDERS_MAX];
};

/* runtime.c: start the thread that will open the runtime, with this thread's priority. */
int onnx__runtime_start(struct engine *e, struct error *err) MUST_CHECK;
/* A load is near: begin to open it. Doesn't wait. */
void onnx__runtime_want(struct engine *e);
/* Open the library and make the environment unless done; any loader thread; waits. UNAVAILABLE: one sentence on where it was looked
 * for; the next load tries again. */
int onnx__runtime_open(struct engine *e, struct error *err) MUST_CHECK;
void onnx__runtime_close(struct engine *e);

/* ort_error.c: what was asked of the runtime decides whose fault a failure is. */
enum onnx_doing {
    ONNX_CALLING, /* anything else: INTERNAL unless the code says better */
    ONNX_LOADING, /* reading a model: the model's fault, INVALID, unless the code says better */
    ONNX_RUNNING, /* the text decides between INVALID (the input's fault) and INTERNAL */
};
/* Take over `status` (released): STATUS_OK for NULL, else fill `err` with "what: message", where the message has no paths, pointers
 * or C++ signatures. */
int onnx__take(const OrtApi *api, OrtStatus *status, enum onnx_doing doing, struct error *err, const char *what) MUST_CHECK;
/* Clean a message in place of `out` (NUL-terminated, cut to cap). Exposed for its unit test. */
void onnx__clean_message(const char *message, char *out, size_t cap);
/* Does a run's error text blame the input's shape or values? Exposed for its unit test. */
bool onnx__blames_input(const char *message);

/* One run's outputs as one refcounted block: its slab is the owner of every output's slice, and the last reference releases all
 * values. Blocks are recycled through the model's spare slots. */
struct onnx_block {
    struct slab slab; /* first: the block is found from it */
    struct engine_model *model;
    size_t spare_slot, n;
    OrtValue *values[];
};

#define ONNX_SPARES 16

struct engine_model {
    struct engine *e;
    struct arena arena;
    OrtSession *session;
    struct engine_contract contract;
    struct engine_io *inputs, *outputs;
    const char **input_names, **output_names; /* NUL-terminated, contract order */
    ONNXTensorElementDataType *input_types;
    enum onnx_switch arena_shrink;
    uint64_t weights_bytes;
    char devices[64];
    _Atomic(struct onnx_block *) spares[ONNX_SPARES];
};

/* session.c: a session from the file's bytes and, beside them, its external data files. Fills m->session and m->devices. */
struct onnx_source {
    const struct engine_load *spec;
    const struct onnx_options *options;
    const struct onnx_scan *scan;
    struct os_blob file;
    enum engine_file kind; /* of `file` */
};
int onnx__session_create(struct engine_model *m, const struct onnx_source *src, struct error *err) MUST_CHECK;

/* onnx.c: the file `rel` of the model, sealed, signed or plain. */
int onnx__file_read(const struct engine_load *spec, const char *rel, uint64_t limit_bytes, struct os_blob *out,
                    enum engine_file *kind, struct error *err) MUST_CHECK;

/* external.c: check and read the external data files that a scan found. Every `location` must be a file inside the model's
 * folder. FORBIDDEN, NOT_FOUND, NOMEM: names the location. */
struct onnx_external {
    enum engine_file kind; /* the strictest of them */
    size_t n;
    const char **names; /* arena */
    struct os_blob *files;
};
int onnx__external_read(const struct engine_load *spec, const struct onnx_scan *scan, struct arena *a,
                        struct onnx_external *out, struct error *err) MUST_CHECK;
void onnx__external_release(struct onnx_external *x);
/* Their sizes only. */
int onnx__external_bytes(const struct engine_load *spec, const struct onnx_scan *scan, uint64_t *bytes,
                         struct error *err) MUST_CHECK;

/* contract.c: read names, types and shapes from the session into the model's arena. */
int onnx__contract_read(struct engine_model *m, const struct onnx_scan *scan, bool optional_inputs,
                        struct error *err) MUST_CHECK;

/* cache.c: optimised models on disk. The key is a digest of everything that the result depends on. */
struct onnx_cache_key {
    char hex[65];
};
void onnx__cache_key(const struct onnx_source *src, const char *runtime_version, struct onnx_cache_key *key);
/* The cached bytes, or an empty blob. Touches the entry's time, which is what eviction goes by. */
void onnx__cache_get(const struct onnx_options *o, const struct onnx_cache_key *key, struct os_blob *out);
/* Where the runtime may write its optimised model: a path of at most `cap` bytes. False: the folder can't be used (logged). */
bool onnx__cache_temp(const struct onnx_options *o, const struct onnx_cache_key *key, struct logger *log, char *path,
                      size_t cap);
/* Put the finished file in its place, atomically, and evict the oldest entries above the bound. `keep` false: throw it away. */
void onnx__cache_commit(const struct onnx_options *o, const struct onnx_cache_key *key, const char *temp, bool keep,
                        struct logger *log);
/* Drop an entry that turned out to be unusable. */
void onnx__cache_drop(const struct onnx_options *o, const struct onnx_cache_key *key);

/* text.c: BYTES between the wire form and the runtime's strings. */
int onnx__text_in(const struct engine *e, const struct tensor *t, OrtValue **out, struct error *err) MUST_CHECK;
int onnx__text_out(const struct engine *e, OrtValue *v, uint64_t elements, struct slice *out, struct error *err) MUST_CHECK;

/* run.c */
int onnx__instance_create(struct engine_model *m, size_t index, struct engine_instance **out, struct error *err) MUST_CHECK;
void onnx__instance_destroy(struct engine_instance *i);
int onnx__run(struct engine_instance *i, struct engine_run *run, struct error *err) MUST_CHECK;
void onnx__cancel(struct engine_instance *i);
void onnx__spares_release(struct engine_model *m);

#endif
