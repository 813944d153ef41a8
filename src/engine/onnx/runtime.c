/* runtime.c: find ONNX Runtime's library, check its version, make the one environment.
 *
 * Searched, first hit wins: the option onnxruntime.library and the variable INFERD_ORT_LIB (a name given there must work, nothing
 * else is tried), ../lib/inferd beside the binary (an installation), .deps/onnxruntime/lib up to four folders above the
 * binary (a checkout), the system loader's own search. The library is never unmapped.
 *
 * One environment with one intra-op pool for the whole process, sized from the cgroup quota: sessions of all models share it, so ten
 * models don't make ten times as many threads as there are cores. Workers don't spin unless told to: in a container, spinning
 * burns the quota that the next request needs.
 *
 * Opening is done by a thread that the engine starts when it is opened itself and that waits for the first load: threads inherit the
 * nice value of the one that starts them, so a pool made on a loader thread, which runs at low priority, would compute at low priority
 * for ever. It takes place without the lock held: the state says that it is under way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/onnx/onnx_priv.h"
#include "os/dynlib.h"
#include "os/file.h"

static void log_from_runtime(void *param, OrtLoggingLevel severity, const char *category, const char *logid,
                             const char *code_location, const char *message)
{
    struct engine *e = param;
    enum log_level level = severity >= ORT_LOGGING_LEVEL_ERROR     ? LOG_ERROR
                           : severity == ORT_LOGGING_LEVEL_WARNING ? LOG_WARN
                           : severity == ORT_LOGGING_LEVEL_INFO    ? LOG_INFO
                                                                   : LOG_DEBUG;
    LOG(e->log, level, "onnxruntime", LOG_S("model", logid), LOG_S("category", category), LOG_S("at", code_location),
        LOG_S("message", message));
}

/* Try "<folder>/<rest>". */
static bool try_folder(struct engine *e, struct str folder, const char *rest)
{
    struct buf path;
    buf_init(&path);
    buf_append_str(&path, folder);
    buf_append_z(&path, rest);
    bool ok = !path.failed && os_dynlib_open(buf_z(&path), &e->library, NULL) == 0;
    buf_release(&path);
    return ok;
}

static struct str parent(struct str path)
{
    while (path.n && path.p[path.n - 1] != '/')
        path.n--;
    if (path.n)
        path.n--;
    return path;
}

static bool try_beside_binary(struct engine *e)
{
    static const char *const names[] = {"/lib/inferd/libonnxruntime.so.1", "/lib/inferd/libonnxruntime.so"};
    struct buf exe;
    buf_init(&exe);
    bool found = false;
    if (os_exe_path(&exe, NULL) == 0) {
        struct str folder = parent(buf_str(&exe)), up = parent(folder);
        for (size_t i = 0; i < COUNT_OF(names) && !found; i++)
            found = try_folder(e, up, names[i]);
        for (int level = 0; level < 4 && !found && folder.n; level++) {
            folder = parent(folder);
            found = try_folder(e, folder, "/.deps/onnxruntime/lib/libonnxruntime.so.1");
        }
    }
    buf_release(&exe);
    return found;
}

static int find_library(struct engine *e, struct error *err)
{
    const char *given = e->options.library.n ? e->options.library.p : getenv("INFERD_ORT_LIB");
    const char *by = e->options.library.n ? "the option onnxruntime.library" : "INFERD_ORT_LIB";
    struct error why = {0};
    if (given && *given) {
        if (os_dynlib_open(given, &e->library, &why) == 0)
            return STATUS_OK;
        LOG(e->log, LOG_ERROR, "onnxruntime_not_loaded", LOG_S("library", given), LOG_S("reason", why.text));
        return error_set(err, STATUS_UNAVAILABLE, "the ONNX Runtime library that %s names cannot be loaded", by);
    }
    if (try_beside_binary(e) || os_dynlib_open("libonnxruntime.so.1", &e->library, &why) == 0 ||
        os_dynlib_open("libonnxruntime.so", &e->library, &why) == 0)
        return STATUS_OK;
    LOG(e->log, LOG_ERROR, "onnxruntime_not_loaded", LOG_S("reason", why.text));
    return error_set(err, STATUS_UNAVAILABLE,
                     "ONNX models need the ONNX Runtime library (libonnxruntime.so), which was not found; install it or name "
                     "it with the option onnxruntime.library");
}

/* "1.24.4": the minor version is the number of the API. */
static bool parse_version(const char *text, uint64_t *major, uint64_t *minor)
{
    struct str rest = str_of(text), a, b;
    return str_cut(&rest, '.', &a) && str_cut(&rest, '.', &b) && str_to_u64(a, major) && str_to_u64(b, minor);
}

/* The API at min(header's version, library's version). */
static int find_api(struct engine *e, struct error *err)
{
    const OrtApiBase *(*get_base)(void);
    void *symbol = os_dynlib_symbol(e->library, "OrtGetApiBase");
    if (!symbol)
        return error_set(err, STATUS_UNAVAILABLE, "the library given as ONNX Runtime is another one (it has no OrtGetApiBase)");
    memcpy(&get_base, &symbol, sizeof symbol);
    const OrtApiBase *base = get_base();
    snprintf(e->version, sizeof e->version, "%s", base->GetVersionString());
    uint64_t major = 0, minor = 0;
    if (!parse_version(e->version, &major, &minor) || major != 1 || minor < ORT_API_OLDEST)
        return error_set(err, STATUS_UNAVAILABLE, "the ONNX Runtime library has version %s, at least 1.%d is needed",
                         e->version, ORT_API_OLDEST);
    e->api = base->GetApi(minor < ORT_API_VERSION ? (uint32_t)minor : ORT_API_VERSION);
    if (!e->api)
        return error_set(err, STATUS_UNAVAILABLE, "the ONNX Runtime library %s does not give API version %d", e->version,
                         ORT_API_VERSION);
    return STATUS_OK;
}

static OrtLoggingLevel log_level(const struct engine *e)
{
    enum log_level level = LOG_WARN;
    log_level_parse(e->options.log_level, &level);
    return level == LOG_DEBUG  ? ORT_LOGGING_LEVEL_VERBOSE
           : level == LOG_INFO ? ORT_LOGGING_LEVEL_INFO
           : level == LOG_WARN ? ORT_LOGGING_LEVEL_WARNING
                               : ORT_LOGGING_LEVEL_ERROR;
}

static int make_env(struct engine *e, struct error *err)
{
    const OrtApi *api = e->api;
    OrtThreadingOptions *t = NULL;
    int rc = onnx__take(api, api->CreateThreadingOptions(&t), ONNX_CALLING, err, "ONNX Runtime's thread options");
    if (!rc)
        rc = onnx__take(api, api->SetGlobalIntraOpNumThreads(t, (int)e->options.threads), ONNX_CALLING, err, "compute.threads");
    if (!rc)
        rc = onnx__take(api, api->SetGlobalInterOpNumThreads(t, (int)e->options.threads), ONNX_CALLING, err, "compute.threads");
    if (!rc)
        rc = onnx__take(api, api->SetGlobalSpinControl(t, e->options.spinning), ONNX_CALLING, err, "onnxruntime.spinning");
    if (!rc && e->options.denormals_as_zero)
        rc = onnx__take(api, api->SetGlobalDenormalAsZero(t), ONNX_CALLING, err, "onnxruntime.denormals_as_zero");
    if (!rc)
        rc = onnx__take(
            api, api->CreateEnvWithCustomLoggerAndGlobalThreadPools(log_from_runtime, e, log_level(e), "inferd", t, &e->env),
            ONNX_CALLING, err, "ONNX Runtime cannot start");
    if (!rc)
        rc = onnx__take(api, api->DisableTelemetryEvents(e->env), ONNX_CALLING, err, "ONNX Runtime's telemetry");
    if (!rc)
        rc = onnx__take(api, api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &e->cpu), ONNX_CALLING, err,
                        "ONNX Runtime's memory description");
    if (!rc)
        rc = onnx__take(api, api->GetAllocatorWithDefaultOptions(&e->allocator), ONNX_CALLING, err, "ONNX Runtime's allocator");
    if (t)
        api->ReleaseThreadingOptions(t);
    return rc;
}

static int list_providers(struct engine *e, struct error *err)
{
    static const char *const names[ONNX_PROVIDERS_MAX] = {"CPUExecutionProvider", "CUDAExecutionProvider",
                                                          "TensorrtExecutionProvider", "OpenVINOExecutionProvider",
                                                          "XnnpackExecutionProvider"};
    char **have = NULL;
    int n = 0;
    int rc = onnx__take(e->api, e->api->GetAvailableProviders(&have, &n), ONNX_CALLING, err, "ONNX Runtime's providers");
    if (rc)
        return rc;
    for (int i = 0; i < n; i++)
        for (size_t p = 0; p < ONNX_PROVIDERS_MAX; p++)
            e->built_in[p] |= strcmp(have[i], names[p]) == 0;
    OrtStatus *ignored = e->api->ReleaseAvailableProviders(have, n);
    if (ignored)
        e->api->ReleaseStatus(ignored);
    return STATUS_OK;
}

static void drop(struct engine *e)
{
    if (e->cpu)
        e->api->ReleaseMemoryInfo(e->cpu);
    if (e->env)
        e->api->ReleaseEnv(e->env);
    e->cpu = NULL;
    e->env = NULL;
}

static int open_all(struct engine *e, struct error *err)
{
    int rc = find_library(e, err);
    if (!rc)
        rc = find_api(e, err);
    if (!rc)
        rc = make_env(e, err);
    if (!rc)
        rc = list_providers(e, err);
    if (rc)
        drop(e);
    else
        LOG(e->log, LOG_INFO, "onnxruntime_loaded", LOG_S("version", e->version), LOG_U("threads", e->options.threads));
    return rc;
}

/* Waits for the first wish, and for the next one after a failure. */
static void opener_main(void *arg)
{
    struct engine *e = arg;
    os_mutex_lock(&e->lock);
    while (!e->closing && e->state != RUNTIME_OPEN) {
        if (e->state != RUNTIME_OPENING) {
            os_cond_wait(&e->changed, &e->lock);
            continue;
        }
        os_mutex_unlock(&e->lock);
        int rc = open_all(e, &e->open_error);
        os_mutex_lock(&e->lock);
        e->open_rc = rc;
        e->state = rc ? RUNTIME_CLOSED : RUNTIME_OPEN;
        os_cond_broadcast(&e->changed);
    }
    os_mutex_unlock(&e->lock);
}

int onnx__runtime_start(struct engine *e, struct error *err)
{
    int rc = os_thread_start(&e->opener, "onnx-open", opener_main, e, err);
    e->opener_started = rc == 0;
    return rc;
}

/* Lock held. */
static void want(struct engine *e)
{
    if (e->state != RUNTIME_CLOSED)
        return;
    e->state = RUNTIME_OPENING;
    os_cond_broadcast(&e->changed);
}

void onnx__runtime_want(struct engine *e)
{
    os_mutex_lock(&e->lock);
    want(e);
    os_mutex_unlock(&e->lock);
}

int onnx__runtime_open(struct engine *e, struct error *err)
{
    os_mutex_lock(&e->lock);
    want(e);
    while (e->state == RUNTIME_OPENING)
        os_cond_wait(&e->changed, &e->lock);
    int rc = e->state == RUNTIME_OPEN ? STATUS_OK : e->open_rc;
    if (rc && err)
        *err = e->open_error;
    os_mutex_unlock(&e->lock);
    return rc;
}

void onnx__runtime_close(struct engine *e)
{
    os_mutex_lock(&e->lock);
    e->closing = true;
    os_cond_broadcast(&e->changed);
    os_mutex_unlock(&e->lock);
    if (e->opener_started)
        os_thread_join(&e->opener);
    if (e->state == RUNTIME_OPEN)
        drop(e);
    e->state = RUNTIME_CLOSED;
}
