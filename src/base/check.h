/* check.h: the assert ladder, on in production.
 *
 * ASSERT   cheap, always on: prints file, line, the expression and the request id of this thread, then aborts
 *          (the crash report of os/crash.h follows). For our own bugs only, never for what came from a network, a
 *          file or a model.
 * DASSERT  expensive, debug builds only.
 * WARN_ON  counts into a process-wide atomic that obs renders as inferd_warnings_total, logs the first hit of each
 *          place to stderr, and goes on; its value is the truth of the expression.
 * The current request id is a thread-local that the code serving a request sets (check_set_request). */
#ifndef INFERD_BASE_CHECK_H
#define INFERD_BASE_CHECK_H

#include <assert.h> /* static_assert */
#include <stdbool.h>
#include <stdint.h>

/* What ASSERT and WARN_ON call: print one line to stderr and abort; count, print where *seen is 0 and set it. Any thread. */
_Noreturn void check_fail(const char *file, int line, const char *expr);
bool check_warn(const char *file, int line, const char *expr, uint32_t *seen);

/* Warnings counted so far in this process. Any thread. */
uint64_t check_warnings(void);

/* Name the request that this thread works on (NULL: none). Borrowed until replaced. */
void check_set_request(const char *request_id);
const char *check_get_request(void);

#define ASSERT(expr)                                                                                                           \
    do {                                                                                                                       \
        if (__builtin_expect(!(expr), 0))                                                                                      \
            check_fail(__FILE__, __LINE__, #expr);                                                                             \
    } while (0)

#ifdef INFERD_DEBUG
#define DASSERT(expr) ASSERT(expr)
#else
#define DASSERT(expr)                                                                                                          \
    do {                                                                                                                       \
        (void)sizeof(expr);                                                                                                    \
    } while (0)
#endif

#define WARN_ON(expr)                                                                                                          \
    __extension__({                                                                                                            \
        static uint32_t seen_;                                                                                                 \
        bool hit_ = (expr);                                                                                                    \
        if (__builtin_expect(hit_, 0))                                                                                         \
            check_warn(__FILE__, __LINE__, #expr, &seen_);                                                                     \
        hit_;                                                                                                                  \
    })

#endif
