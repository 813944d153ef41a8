/* check.c: what happens when an assertion fails or a warning is counted.
 * Exception: two process-wide variables live here (the warning count and the thread's request id): an assertion has
 * no context pointer to carry them. */
#include "base/check.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static _Atomic uint64_t warnings;
static _Thread_local const char *current_request;

void check_set_request(const char *request_id)
{
    current_request = request_id;
}
const char *check_get_request(void)
{
    return current_request;
}

_Noreturn void check_fail(const char *file, int line, const char *expr)
{
    fprintf(stderr, "inferd: assertion failed at %s:%d: %s (request %s)\n", file, line, expr,
            current_request ? current_request : "none");
    abort();
}

bool check_warn(const char *file, int line, const char *expr, uint32_t *seen)
{
    atomic_fetch_add_explicit(&warnings, 1, memory_order_relaxed);
    if (!__atomic_exchange_n(seen, 1, __ATOMIC_RELAXED))
        fprintf(stderr, "inferd: unexpected but survivable at %s:%d: %s (request %s)\n", file, line, expr,
                current_request ? current_request : "none");
    return true;
}

uint64_t check_warnings(void)
{
    return atomic_load_explicit(&warnings, memory_order_relaxed);
}
