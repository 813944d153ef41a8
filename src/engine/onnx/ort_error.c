/* ort_error.c: ONNX Runtime's complaints as ours.
 *
 * A message of the runtime looks like
 *     Non-zero status code returned while running Add node. Name:'add' Status Message: /src/x.h:560 void ns::F(T&) a == b
 *     was false. Attempting to broadcast an axis by a dimension other than 1. 3 by 5
 * Clients may see the sentence, not the build's paths, C++ signatures or addresses. What stands between a source position and "was
 * false." is source code and goes too.
 *
 * Whose fault a failed run is, the code alone doesn't say: kernels throw the same exception for a shape that they can't broadcast
 * and for their own trouble. Since the model itself ran during warm-up, texts about shapes, dimensions, indices and values
 * are taken as the input's fault. "Status Message: stod" and the like is all that a failed std::stod on a string says. */
#include <ctype.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/onnx/onnx_priv.h"

/* Length of the blank-separated word at `p`. */
static size_t word_length(const char *p)
{
    return strcspn(p, " \t\r\n");
}

static bool has(const char *p, size_t n, const char *what)
{
    return memmem(p, n, what, strlen(what)) != NULL;
}

/* A path with a position ("/a/b.cc:12"), a C++ name ("onnxruntime::X(...)"), an address. */
static bool is_noise(const char *p, size_t n)
{
    if (p[0] == '/' && memchr(p + 1, '/', n - 1))
        return true;
    if (has(p, n, "::") || has(p, n, ".cc:") || has(p, n, ".h:"))
        return true;
    return n > 4 && p[0] == '0' && p[1] == 'x' && isxdigit((unsigned char)p[2]);
}

/* From a source position on, skip to behind "was false." when that follows, since what is between is code. */
static const char *skip_code(const char *p, size_t n)
{
    const char *end = (has(p, n, ".h:") || has(p, n, ".cc:") || has(p, n, ".cpp:")) ? strstr(p, "was false. ") : NULL;
    return end ? end + strlen("was false. ") : p + n;
}

void onnx__clean_message(const char *message, char *out, size_t cap)
{
    size_t at = 0;
    for (const char *p = message; *p;) {
        if (isspace((unsigned char)*p)) {
            p++;
            continue;
        }
        size_t n = word_length(p);
        if (is_noise(p, n)) {
            p = skip_code(p, n);
            continue;
        }
        size_t need = n + (at ? 1 : 0);
        if (at + need + 1 > cap)
            break;
        if (at)
            out[at++] = ' ';
        memcpy(out + at, p, n);
        at += n;
        p += n;
    }
    out[at] = 0;
}

bool onnx__blames_input(const char *message)
{
    static const char *const words[] = {
        "shape",
        "dimension",
        "broadcast",
        "out of bounds",
        "out of range",
        "indices",
        "index ",
        "axis",
        "mismatch",
        "rank",
        "invalid input",
        "invalid value",
        "cannot cast",
        "expected",
        "must be",
        "size of",
        "divide by zero",
        "division by zero",
        "could not convert",
        "decode",
        "incompatible",
        "Status Message: sto",
    };
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (strcasestr(message, words[i]))
            return true;
    return false;
}

static int status_of(OrtErrorCode code, const char *message, enum onnx_doing doing)
{
    if (strstr(message, "bad_alloc") || strcasestr(message, "failed to allocate memory"))
        return STATUS_NOMEM;
    switch (code) {
    case ORT_INVALID_ARGUMENT:
    case ORT_INVALID_PROTOBUF:
    case ORT_INVALID_GRAPH:
    case ORT_NO_MODEL:
        return STATUS_INVALID;
    case ORT_NOT_IMPLEMENTED:
        return STATUS_UNIMPLEMENTED;
    case ORT_NO_SUCHFILE:
        return STATUS_NOT_FOUND;
    case ORT_EP_FAIL:
        return STATUS_INTERNAL;
    default:
        return doing == ONNX_LOADING || (doing == ONNX_RUNNING && onnx__blames_input(message)) ? STATUS_INVALID
                                                                                               : STATUS_INTERNAL;
    }
}

int onnx__take(const OrtApi *api, OrtStatus *status, enum onnx_doing doing, struct error *err, const char *what)
{
    if (!status)
        return STATUS_OK;
    char clean[ERROR_TEXT_BYTES];
    const char *message = api->GetErrorMessage(status);
    onnx__clean_message(message, clean, sizeof clean);
    int rc = error_set(err, status_of(api->GetErrorCode(status), message, doing), "%s: %s", what, clean);
    api->ReleaseStatus(status);
    return rc;
}
