/* gRPC messages handed in whole and cut: the same name, the same end. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "wire/grpc_peek.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run(struct grpc_peek *p, const uint8_t *data, size_t size, size_t step)
{
    struct error err;
    int rc = 0;
    grpc_peek_init(p);
    for (size_t at = 0; at < size && !rc; at += step)
        rc = grpc_peek_feed(p, data + at, MIN_OF(step, size - at), &err);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grpc_peek whole, cut;
    if (size == 0)
        return 0;
    int rc = run(&whole, data, size, size);
    if (rc != run(&cut, data, size, 1 + data[0] % 5) || whole.known != cut.known)
        abort();
    if (whole.known && strcmp(whole.name, cut.name) != 0)
        abort();
    return 0;
}
