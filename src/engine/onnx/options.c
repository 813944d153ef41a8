/* options.c: the options of this engine: one table of rows, each with the scopes it may be set in.
 *
 * Triton's names for the same things are rows too (intra_op_thread_count, enable_mem_arena, ...), so that an existing
 * config.pbtxt keeps its meaning. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/onnx/onnx_priv.h"

enum kind { TEXT, U64, BYTES, BOOL, NEGATED, PROVIDERS, LEVEL, SWITCH };
enum { SERVER = 1, MODEL = 2 };

static const struct row {
    const char *name;
    enum kind kind;
    int scope;
    size_t at;
    const char *accepts;
} rows[] = {
#define AT(member) offsetof(struct onnx_options, member)
    {"onnxruntime.library", TEXT, SERVER, AT(library), "a path"},
    {"onnxruntime.log_level", TEXT, SERVER, AT(log_level), "debug, info, warn or error"},
    {"onnxruntime.spinning", BOOL, SERVER, AT(spinning), "true or false"},
    {"onnxruntime.denormals_as_zero", BOOL, SERVER, AT(denormals_as_zero), "true or false"},
    {"onnxruntime.cache_dir", TEXT, SERVER, AT(cache_dir), "a folder"},
    {"onnxruntime.cache_bytes", BYTES, SERVER, AT(cache_bytes), "a size like 4GiB"},
    {"compute.threads", U64, SERVER, AT(threads), "a whole number"},
    {"onnxruntime.providers", PROVIDERS, SERVER, AT(providers), "a list of cpu, cuda, tensorrt, openvino, xnnpack"},
    {"onnxruntime.provider_fallback", BOOL, SERVER, AT(provider_fallback), "true or false"},
    {"onnxruntime.graph_optimization", LEVEL, SERVER, AT(level), "none, basic, extended or all"},
    {"providers", PROVIDERS, MODEL, AT(providers), "a list of cpu, cuda, tensorrt, openvino, xnnpack"},
    {"provider_fallback", BOOL, MODEL, AT(provider_fallback), "true or false"},
    {"strict_providers", NEGATED, MODEL, AT(provider_fallback), "true or false"},
    {"graph_optimization", LEVEL, MODEL, AT(level), "none, basic, extended or all"},
    {"intra_op_threads", U64, MODEL, AT(intra_op_threads), "a whole number"},
    {"intra_op_thread_count", U64, MODEL, AT(intra_op_threads), "a whole number"},
    {"parallel", BOOL, MODEL, AT(parallel), "true or false"},
    {"execution_mode", BOOL, MODEL, AT(parallel), "0 or 1"},
    {"arena", BOOL, MODEL, AT(arena), "true or false"},
    {"enable_mem_arena", BOOL, MODEL, AT(arena), "0 or 1"},
    {"arena_shrink", SWITCH, MODEL, AT(arena_shrink), "auto, true or false"},
    {"mem_pattern", SWITCH, MODEL, AT(mem_pattern), "auto, true or false"},
    {"enable_mem_pattern", SWITCH, MODEL, AT(mem_pattern), "0 or 1"},
    {"optional_inputs", BOOL, MODEL, AT(optional_inputs), "true or false"},
    {"optimized_model_cache", BOOL, MODEL, AT(use_cache), "true or false"},
#undef AT
};

/* Config entries of a session that a model may set. Left out on purpose: everything that names a file or folder, that lets the
 * runtime keep pointers into the model's bytes, or that contradicts the shared thread pool. */
static const char *const session_entries[] = {
    "session.disable_prepacking",
    "session.set_denormal_as_zero",
    "session.disable_quant_qdq",
    "session.disable_double_qdq_remover",
    "session.enable_quant_qdq_cleanup",
    "session.disable_aot_function_inlining",
    "session.qdqisint8allowed",
    "session.x64quantprecision",
    "session.dynamic_block_base",
    "session.intra_op.allow_spinning",
    "session.inter_op.allow_spinning",
    "session.force_spinning_stop",
    "session.disable_cpu_ep_fallback",
    "session.strict_shape_type_inference",
    "session.use_device_allocator_for_initializers",
    "session.qdq_matmulnbits_accuracy_level",
    "optimization.enable_gelu_approximation",
    "optimization.disable_specified_optimizers",
    "mlas.enable_gemm_fastmath_arm64_bfloat16",
};

static const char *const provider_names[ONNX_PROVIDERS_MAX] = {"cpu", "cuda", "tensorrt", "openvino", "xnnpack"};

const char *onnx_provider_name(enum onnx_provider p)
{
    return provider_names[p];
}

bool onnx_session_entry(struct str key)
{
    for (size_t i = 0; i < COUNT_OF(session_entries); i++)
        if (str_eqz(key, session_entries[i]))
            return true;
    return false;
}

void onnx_options_init(struct onnx_options *o)
{
    *o = (struct onnx_options){
        .cache_bytes = (uint64_t)4 << 30,
        .providers = {ONNX_CPU},
        .n_providers = 1,
        .provider_fallback = true,
        .level = ORT_ENABLE_ALL,
        .arena = true,
        .use_cache = true,
    };
}

static bool parse_bool(struct str v, bool *out)
{
    *out = str_eqz(v, "true") || str_eqz(v, "1");
    return *out || str_eqz(v, "false") || str_eqz(v, "0");
}

static bool parse_providers(struct str v, struct onnx_options *o)
{
    struct str part;
    o->n_providers = 0;
    while (str_cut(&v, ',', &part)) {
        part = str_trim(part);
        size_t p = 0;
        while (p < ONNX_PROVIDERS_MAX && !str_eqz(part, provider_names[p]))
            p++;
        if (p == ONNX_PROVIDERS_MAX || o->n_providers == ONNX_PROVIDERS_MAX)
            return false;
        o->providers[o->n_providers++] = (enum onnx_provider)p;
    }
    return o->n_providers > 0;
}

static bool parse_level(struct str v, GraphOptimizationLevel *out)
{
    static const struct {
        const char *name;
        GraphOptimizationLevel level;
    } levels[] = {
        {"none", ORT_DISABLE_ALL},         {"disable", ORT_DISABLE_ALL}, {"basic", ORT_ENABLE_BASIC},
        {"extended", ORT_ENABLE_EXTENDED}, {"all", ORT_ENABLE_ALL},
    };
    for (size_t i = 0; i < COUNT_OF(levels); i++) {
        if (str_eqz(v, levels[i].name)) {
            *out = levels[i].level;
            return true;
        }
    }
    return false;
}

static bool parse_value(const struct row *r, struct str v, struct onnx_options *o, struct arena *a)
{
    void *at = (char *)o + r->at;
    bool b;
    char *copy;
    switch (r->kind) {
    case TEXT:
        copy = a ? arena_strdup(a, v) : NULL;
        *(struct str *)at = (struct str){copy, copy ? v.n : 0};
        return copy != NULL;
    case U64:
        return str_to_u64(v, at) && *(uint64_t *)at <= 4096;
    case BYTES:
        return str_to_bytes(v, at);
    case BOOL:
        return parse_bool(v, at);
    case NEGATED:
        *(bool *)at = !(parse_bool(v, &b) && b);
        return parse_bool(v, &b);
    case PROVIDERS:
        return parse_providers(v, o);
    case LEVEL:
        return parse_level(v, at);
    case SWITCH:
        *(enum onnx_switch *)at = parse_bool(v, &b) ? (b ? ONNX_ON : ONNX_OFF) : ONNX_AUTO;
        return parse_bool(v, &b) || str_eqz(v, "auto");
    }
    return false;
}

static const struct row *find_row(struct str key, int scope)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if ((rows[i].scope & scope) && str_eqz(key, rows[i].name))
            return &rows[i];
    return NULL;
}

static int set_row(const struct row *r, struct str value, struct onnx_options *o, struct arena *a, struct error *err)
{
    if (parse_value(r, value, o, a))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "the value '%.*s' of '%s' is not %s", STR_ARG(value), r->name, r->accepts);
}

int onnx_options_server(struct onnx_options *o, const struct engine_option *opts, size_t n, struct arena *a, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct row *r = find_row(opts[i].key, SERVER);
        int rc = r ? set_row(r, opts[i].value, o, a, err) : STATUS_OK;
        if (rc)
            return rc;
    }
    return STATUS_OK;
}

/* "cuda.device_id": an option of a provider. */
static bool is_provider_option(struct str key)
{
    struct str rest = key, head;
    return str_cut(&rest, '.', &head) && rest.p && parse_providers(head, &(struct onnx_options){0});
}

int onnx_options_model(struct onnx_options *o, const struct engine_option *opts, size_t n, const char *model,
                       struct logger *log, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct str key = opts[i].key;
        const struct row *r = find_row(key, MODEL);
        if (r) {
            int rc = set_row(r, opts[i].value, o, NULL, err);
            if (rc)
                return rc;
        } else if ((str_starts(key, STR("session.")) || str_starts(key, STR("optimization.")) ||
                    str_starts(key, STR("mlas."))) &&
                   !onnx_session_entry(key)) {
            return error_set(err, STATUS_INVALID, "the parameter '%.*s' cannot be set from a model's configuration",
                             STR_ARG(key));
        } else if (!onnx_session_entry(key) && !is_provider_option(key)) {
            LOG(log, LOG_DEBUG, "onnx_option_skipped", LOG_S("model", model), LOG_STR("key", key));
        }
    }
    return STATUS_OK;
}
