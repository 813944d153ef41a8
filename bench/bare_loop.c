/* bare_loop.c: the least that ONNX Runtime can be asked to do: one session, one intra-op thread, one input value made once, Run in a loop.
 *
 *     bench_bare_loop LIBRARY MODEL BATCH SECONDS [DIM,...]          open dims besides the first, in order; the last stands for those
 *                                                                    that follow (default 1)
 *     bench_bare_loop LIBRARY MODEL BATCH PORT:METADATA [DIM,...]    the same loop behind the least of a server
 *
 * The first prints the median seconds of a run, and nothing else. The second answers any POST on 127.0.0.1:PORT with a run over the last
 * bytes of its body, and any GET with the file METADATA: one thread, poll, read, Run, write; no parser, queue, deadline, log or metric.
 * What it takes beyond the loop is what sockets and a machine that slept cost any server. The caller pins it to a core. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <onnxruntime_c_api.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/dynlib.h"

#define IO_MAX      16
#define RUNS_MAX    1000000
#define CLIENTS_MAX 8
#define MESSAGE_MAX (8u << 20)

static const OrtApi *api;

struct bare {
    OrtSession *session;
    OrtValue *in[IO_MAX], *out[IO_MAX];
    char *in_name[IO_MAX], *out_name[IO_MAX];
    size_t n_in, n_out, in_bytes; /* in_bytes: of the first input */
};

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

/* The next of a list of numbers; the last again when there is no more. */
static int64_t open_dim(const char **list)
{
    const char *comma = strchr(*list, ',');
    int64_t dim = atoll(*list);
    if (comma)
        *list = comma + 1;
    return dim;
}

/* A value of the declared shape: 0.5 in float tensors, 0 in others. */
static OrtValue *make_input(OrtAllocator *a, const OrtTypeInfo *type, int64_t batch, const char *open, size_t *bytes)
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
    *bytes = count * bytes_of(elem);
    memset(data, 0, *bytes);
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

static void open_model(struct bare *b, const char *model, int64_t batch, const char *dims)
{
    OrtAllocator *a;
    b->session = open_session(model);
    must(api->GetAllocatorWithDefaultOptions(&a));
    must(api->SessionGetInputCount(b->session, &b->n_in));
    must(api->SessionGetOutputCount(b->session, &b->n_out));
    if (b->n_in > IO_MAX || b->n_out > IO_MAX)
        exit(1);
    for (size_t i = b->n_in; i-- > 0;) {
        OrtTypeInfo *type;
        must(api->SessionGetInputName(b->session, i, a, &b->in_name[i]));
        must(api->SessionGetInputTypeInfo(b->session, i, &type));
        b->in[i] = make_input(a, type, batch, dims, &b->in_bytes);
    }
    for (size_t i = 0; i < b->n_out; i++)
        must(api->SessionGetOutputName(b->session, i, a, &b->out_name[i]));
}

/* One run. The first output stays in b->out[0] until the next. */
static void run(struct bare *b)
{
    for (size_t i = 0; i < b->n_out; i++) {
        if (b->out[i])
            api->ReleaseValue(b->out[i]);
        b->out[i] = NULL;
    }
    must(api->Run(b->session, NULL, (const char *const *)b->in_name, (const OrtValue *const *)b->in, b->n_in,
                  (const char *const *)b->out_name, b->n_out, b->out));
}

static void loop(struct bare *b, double seconds)
{
    uint64_t *times = calloc(RUNS_MAX, sizeof *times), start = os_monotonic_ns();
    uint64_t end = start + (uint64_t)(seconds * 1e9);
    size_t runs = 0;
    for (uint64_t at = start; at < end && runs < RUNS_MAX; runs++) {
        run(b);
        uint64_t now = os_monotonic_ns();
        times[runs] = now - at;
        at = now;
    }
    qsort(times, runs, sizeof *times, by_value);
    printf("%.9f\n", runs ? (double)times[runs / 2] * 1e-9 : 0.0);
    free(times);
}

/* A whole message of a client that sends one at a time, in `m`; its length, or 0 when the client left or sent more than fits. */
static size_t read_message(int fd, char *m)
{
    size_t n = 0, whole = 0;
    while (!whole || n < whole) {
        ssize_t got = n < MESSAGE_MAX ? read(fd, m + n, MESSAGE_MAX - n) : 0;
        if (got <= 0)
            return 0;
        n += (size_t)got;
        m[n] = 0;
        const char *end = whole ? NULL : strstr(m, "\r\n\r\n"), *length = end ? strcasestr(m, "\r\ncontent-length:") : NULL;
        if (end)
            whole = (size_t)(end + 4 - m) + (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
    }
    return n;
}

static int answer(struct bare *b, int fd, char *m, const char *metadata, size_t metadata_bytes)
{
    size_t n = read_message(fd, m), bytes = metadata_bytes;
    const void *body = metadata;
    char head[256];
    if (n == 0)
        return -1;
    if (m[0] == 'P' && n > b->in_bytes) {
        void *data;
        OrtTensorTypeAndShapeInfo *info;
        ONNXTensorElementDataType elem;
        must(api->GetTensorMutableData(b->in[0], &data));
        memcpy(data, m + n - b->in_bytes, b->in_bytes);
        run(b);
        must(api->GetTensorTypeAndShape(b->out[0], &info));
        must(api->GetTensorShapeElementCount(info, &bytes));
        must(api->GetTensorElementType(info, &elem));
        api->ReleaseTensorTypeAndShapeInfo(info);
        bytes *= bytes_of(elem);
        must(api->GetTensorMutableData(b->out[0], &data));
        body = data;
    }
    int length = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", bytes);
    struct iovec v[2] = {{.iov_base = head, .iov_len = (size_t)length},
                         {.iov_base = (void *)(uintptr_t)body, .iov_len = bytes}};
    return sendmsg(fd, &(struct msghdr){.msg_iov = v, .msg_iovlen = 2}, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static int listen_on(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, CLIENTS_MAX) < 0) {
        perror("bench_bare_loop: listen");
        exit(1);
    }
    return fd;
}

static void serve(struct bare *b, uint16_t port, const char *metadata_path)
{
    static char m[MESSAGE_MAX + 1], metadata[65536];
    FILE *f = fopen(metadata_path, "r");
    size_t metadata_bytes = f ? fread(metadata, 1, sizeof metadata, f) : 0, n = 1;
    struct pollfd p[1 + CLIENTS_MAX] = {{.fd = listen_on(port), .events = POLLIN}};
    if (f)
        (void)fclose(f);
    while (poll(p, n, -1) >= 0) {
        for (size_t i = n; i-- > 1;)
            if (p[i].revents && answer(b, p[i].fd, m, metadata, metadata_bytes) < 0) {
                close(p[i].fd);
                p[i] = p[--n];
            }
        if (p[0].revents && n <= CLIENTS_MAX) {
            int on = 1;
            p[n] = (struct pollfd){.fd = accept4(p[0].fd, NULL, NULL, SOCK_CLOEXEC), .events = POLLIN};
            setsockopt(p[n++].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        }
    }
}

int main(int argc, char **argv)
{
    struct error err = {0};
    void *lib;
    struct bare b = {0};
    if (argc < 5) {
        fprintf(stderr, "usage: bench_bare_loop LIBRARY MODEL BATCH SECONDS|PORT:METADATA [DIM,...]\n");
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
    open_model(&b, argv[2], atoll(argv[3]), argc > 5 ? argv[5] : "1");
    const char *metadata = strchr(argv[4], ':');
    if (metadata)
        serve(&b, (uint16_t)atoi(argv[4]), metadata + 1);
    else
        loop(&b, atof(argv[4]));
    return 0;
}
