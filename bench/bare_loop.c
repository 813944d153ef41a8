/* bare_loop.c: the least that ONNX Runtime can be asked to do: one session, one intra-op thread, one input value made once, Run in a loop.
 *
 *     bench_bare_loop LIBRARY MODEL BATCH SECONDS [DIM,...]      open dims besides the first, in order; the last stands for those that
 *                                                                follow (default 1)
 *
 * Prints the median seconds of a run, and nothing else. The caller pins it to a core. Beside what bench scripts give inferd, this is
 * what a C programmer would write without a server. */
#include <onnxruntime_c_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/clock.h"
#include "os/dynlib.h"

#define IO_MAX   16
#define RUNS_MAX 1000000

static const OrtApi *api;

static void must(OrtStatus *st)
{
    if (st) {
        fprintf(stderr, "%s\n", api->GetErrorMessage(st));
        exit(1);
    }
}

static size_t bytes_of(ONNXTensorElementDataType t)
{
    switch (t) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32:
        return 4;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE:
        return 8;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16:
        return 2;
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8:
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL:
        return 1;
    default:
        fprintf(stderr, "an input has an element type that this program does not fill\n");
        exit(1);
    }
}

/* A value of the declared shape: 0.5 in float tensors, 1 in others. */
/* The next of a list of numbers; the last again when there is no more. */
static int64_t open_dim(const char **list)
{
    const char *comma = strchr(*list, ',');
    int64_t dim = atoll(*list);
    if (comma)
        *list = comma + 1;
    return dim;
}

static OrtValue *make_input(OrtAllocator *a, const OrtTypeInfo *type, int64_t batch, const char *open)
{
    const OrtTensorTypeAndShapeInfo *info;
    ONNXTensorElementDataType elem;
    size_t rank, count = 1;
    int64_t dims[16];
    void *data;
    OrtValue *v;
    must(api->CastTypeInfoToTensorInfo(type, &info));
    must(api->GetTensorElementType(info, &elem));
    must(api->GetDimensionsCount(info, &rank));
    if (rank > 16)
        exit(1);
    must(api->GetDimensions(info, dims, rank));
    for (size_t d = 0; d < rank; d++) {
        if (dims[d] < 0)
            dims[d] = d == 0 ? batch : open_dim(&open);
        count *= (size_t)dims[d];
    }
    must(api->CreateTensorAsOrtValue(a, dims, rank, elem, &v));
    must(api->GetTensorMutableData(v, &data));
    memset(data, 0, count * bytes_of(elem));
    for (size_t i = 0; i < count && elem == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; i++)
        ((float *)data)[i] = 0.5f;
    return v;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static OrtSession *open_session(const char *model)
{
    OrtEnv *env;
    OrtSessionOptions *so;
    OrtSession *s;
    must(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "bare", &env));
    must(api->CreateSessionOptions(&so));
    must(api->SetIntraOpNumThreads(so, 1));
    must(api->SetSessionGraphOptimizationLevel(so, ORT_ENABLE_ALL));
    must(api->CreateSession(env, model, so, &s));
    return s;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    void *lib;
    if (argc < 5) {
        fprintf(stderr, "usage: bench_bare_loop LIBRARY MODEL BATCH SECONDS [DIM,...]\n");
        return 2;
    }
    if (os_dynlib_open(argv[1], &lib, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const OrtApiBase *(*base)(void);
    void *symbol = os_dynlib_symbol(lib, "OrtGetApiBase");
    memcpy(&base, &symbol, sizeof base);
    api = base()->GetApi(ORT_API_VERSION);
    OrtSession *s = open_session(argv[2]);
    OrtAllocator *a;
    OrtValue *in[IO_MAX], *out[IO_MAX];
    char *in_name[IO_MAX], *out_name[IO_MAX];
    size_t n_in, n_out, runs = 0;
    must(api->GetAllocatorWithDefaultOptions(&a));
    must(api->SessionGetInputCount(s, &n_in));
    must(api->SessionGetOutputCount(s, &n_out));
    if (n_in > IO_MAX || n_out > IO_MAX)
        return 1;
    for (size_t i = 0; i < n_in; i++) {
        OrtTypeInfo *type;
        must(api->SessionGetInputName(s, i, a, &in_name[i]));
        must(api->SessionGetInputTypeInfo(s, i, &type));
        in[i] = make_input(a, type, atoll(argv[3]), argc > 5 ? argv[5] : "1");
    }
    for (size_t i = 0; i < n_out; i++)
        must(api->SessionGetOutputName(s, i, a, &out_name[i]));
    uint64_t *times = calloc(RUNS_MAX, sizeof *times), start = os_monotonic_ns();
    uint64_t end = start + (uint64_t)(atof(argv[4]) * 1e9);
    for (uint64_t at = start; at < end && runs < RUNS_MAX; runs++) {
        memset(out, 0, sizeof out);
        must(api->Run(s, NULL, (const char *const *)in_name, (const OrtValue *const *)in, n_in, (const char *const *)out_name,
                      n_out, out));
        for (size_t i = 0; i < n_out; i++)
            api->ReleaseValue(out[i]);
        uint64_t now = os_monotonic_ns();
        times[runs] = now - at;
        at = now;
    }
    qsort(times, runs, sizeof *times, by_value);
    printf("%.9f\n", runs ? (double)times[runs / 2] * 1e-9 : 0.0);
    return 0;
}
