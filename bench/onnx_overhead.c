/* onnx_overhead.c: a run through the engine against a bare ONNX Runtime loop, on the same model, library, thread and batch.
 *
 *     bench_onnx_overhead [seconds per model]
 *
 * The bare loop is what a C programmer writes: input value made once, Run, release the output. The engine's side wraps its input and
 * hands out its output each time, as the server does. Both sessions have one intra-op thread and the process is pinned to one core.
 * Turns of some 1 ms alternate, so that a noisy machine hits both alike; the ratio is bare's best decile of time per run over the
 * engine's. */
#include <fcntl.h>
#include <onnxruntime_c_api.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/onnx/onnx.h"
#include "os/clock.h"
#include "os/dynlib.h"

#define ROUNDS_MAX 65536

static const OrtApi *api;

static void must(OrtStatus *st)
{
    if (st) {
        fprintf(stderr, "%s\n", api->GetErrorMessage(st));
        exit(1);
    }
}

static void need(int rc, const struct error *err)
{
    if (rc) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

struct bare {
    OrtSession *session;
    OrtValue *in[2];
    size_t n;
};

struct model {
    const char *name;
    size_t n_in;
    enum dtype dtype;
    ONNXTensorElementDataType type;
    struct shape shape;
    const char *in[2], *out[2];
    size_t n_out;
    bool gated; /* the others only show the fixed cost */
};

static void *input; /* zeros and ones, big enough for every model */

static struct engine_model *engine_load(struct engine *e, const char *name)
{
    char folder[1024];
    struct error err;
    struct engine_model *m;
    snprintf(folder, sizeof folder, "%s/models/%s", TEST_DATA, name);
    struct engine_load spec = {
        .name = name, .dir_fd = open(folder, O_RDONLY | O_DIRECTORY), .dir_path = folder, .file = "model.onnx"};
    need(engine_onnx.load(e, &spec, &m, &err), &err);
    close(spec.dir_fd);
    return m;
}

static struct bare bare_open(OrtEnv *env, const struct model *m)
{
    struct bare b = {.n = m->n_in};
    char path[1024];
    OrtSessionOptions *so;
    OrtMemoryInfo *cpu;
    size_t bytes = 0;
    must(api->CreateSessionOptions(&so));
    must(api->SetIntraOpNumThreads(so, 1));
    snprintf(path, sizeof path, "%s/models/%s/model.onnx", TEST_DATA, m->name);
    must(api->CreateSession(env, path, so, &b.session));
    must(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &cpu));
    (void)tensor_bytes(m->dtype, &m->shape, &bytes);
    for (size_t i = 0; i < m->n_in; i++)
        must(api->CreateTensorWithDataAsOrtValue(cpu, input, bytes, m->shape.dim, m->shape.rank, m->type, &b.in[i]));
    api->ReleaseMemoryInfo(cpu);
    api->ReleaseSessionOptions(so);
    return b;
}

static void bare_run(struct bare *b, const struct model *m)
{
    OrtValue *out[2] = {NULL, NULL};
    must(api->Run(b->session, NULL, m->in, (const OrtValue *const *)b->in, m->n_in, m->out, m->n_out, out));
    for (size_t i = 0; i < m->n_out; i++)
        api->ReleaseValue(out[i]);
}

static void engine_run_once(struct engine_instance *i, const struct model *m, struct engine_run *run)
{
    struct error err;
    need(engine_onnx.run(i, run, &err), &err);
    for (size_t k = 0; k < m->n_out; k++)
        tensor_release(&run->outputs[k]);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double best_decile(double *v, size_t n)
{
    qsort(v, n, sizeof v[0], ascending);
    return v[n / 10];
}

static double measure(struct engine *e, OrtEnv *env, const struct model *m, double seconds)
{
    struct bare b = bare_open(env, m);
    struct error err;
    struct engine_model *em = engine_load(e, m->name);
    struct engine_instance *i;
    need(engine_onnx.instance_create(em, 0, &i, &err), &err);
    size_t bytes = 0;
    (void)tensor_bytes(m->dtype, &m->shape, &bytes);
    struct tensor in[2], out[2];
    for (size_t k = 0; k < m->n_in; k++)
        in[k] = (struct tensor){str_of(m->in[k]), m->dtype, m->shape, slice_borrow(input, bytes)};
    struct engine_run run = {in, m->n_in, NULL, out};
    for (int w = 0; w < 50; w++) {
        bare_run(&b, m);
        engine_run_once(i, m, &run);
    }
    uint64_t t0 = os_monotonic_ns();
    bare_run(&b, m);
    uint64_t one = os_monotonic_ns() - t0 + 1;
    int turns = (int)(1000000 / one) + 1;
    static double bare_ns[ROUNDS_MAX], ours_ns[ROUNDS_MAX];
    size_t n = 0;
    for (t0 = os_monotonic_ns(); n < ROUNDS_MAX && (double)(os_monotonic_ns() - t0) < seconds * 1e9; n++) {
        uint64_t a = os_monotonic_ns();
        for (int k = 0; k < turns; k++)
            bare_run(&b, m);
        uint64_t c = os_monotonic_ns();
        for (int k = 0; k < turns; k++)
            engine_run_once(i, m, &run);
        uint64_t d = os_monotonic_ns();
        bare_ns[n] = (double)(c - a) / turns;
        ours_ns[n] = (double)(d - c) / turns;
    }
    double bare = best_decile(bare_ns, n), ours = best_decile(ours_ns, n);
    printf("%-8s batch %2lld  bare %10.2f us  engine %10.2f us  added %6.2f us  ratio %.4f\n", m->name,
           (long long)m->shape.dim[0], bare / 1e3, ours / 1e3, (ours - bare) / 1e3, bare / ours);
    engine_onnx.instance_destroy(i);
    engine_onnx.unload(em);
    for (size_t k = 0; k < b.n; k++)
        api->ReleaseValue(b.in[k]);
    api->ReleaseSession(b.session);
    return bare / ours;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 6;
    const char *library = getenv("INFERD_ORT_LIB");
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        fprintf(stderr, "not pinned\n");
    struct engine *e = NULL;
    struct error err;
    struct engine_option o = {STR("compute.threads"), STR("1")};
    need(engine_onnx.open(&o, 1, NULL, &e, &err), &err);
    void *lib;
    need(os_dynlib_open(library ? library : ".deps/onnxruntime/lib/libonnxruntime.so.1", &lib, &err), &err);
    const OrtApiBase *(*base)(void);
    void *symbol = os_dynlib_symbol(lib, "OrtGetApiBase");
    memcpy(&base, &symbol, sizeof symbol);
    api = base()->GetApi(ORT_API_VERSION);
    input = aligned_alloc(64, 16 << 20);
    memset(input, 0, 16 << 20);
    const struct model models[] = {
        {"simple",
         2,
         DTYPE_INT32,
         ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
         {2, {1, 16}},
         {"INPUT0", "INPUT1"},
         {"OUTPUT0", "OUTPUT1"},
         2,
         false},
        {"mlp", 1, DTYPE_FP32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, {2, {1, 512}}, {"x"}, {"y"}, 1, false},
        {"conv", 1, DTYPE_FP32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, {4, {1, 3, 56, 56}}, {"x"}, {"y"}, 1, true},
        {"conv", 1, DTYPE_FP32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, {4, {4, 3, 56, 56}}, {"x"}, {"y"}, 1, true},
    };
    double ratio = 1;
    /* The library has one environment a process; the engine's must be it, with its shared pool of one thread. */
    struct engine_model *first = engine_load(e, "simple");
    OrtEnv *env = NULL;
    must(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "bare", &env));
    for (size_t k = 0; k < sizeof models / sizeof models[0]; k++) {
        double r = measure(e, env, &models[k], seconds);
        if (models[k].gated)
            ratio = r < ratio ? r : ratio;
    }
    printf("ratio %.4f (the least of conv; wanted >= 0.97)\n", ratio);
    engine_onnx.unload(first);
    api->ReleaseEnv(env);
    engine_onnx.close(e);
    free(input);
    return ratio >= 0.97 ? 0 : 1;
}
