/* random.c: getrandom, once. */
#include "os/random.h"

#include <errno.h>
#include <sys/random.h>

#include "base/check.h"

void os_random_bytes(void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = getrandom((char *)p + done, n - done, 0);
        if (got < 0 && errno == EINTR)
            continue;
        ASSERT(got > 0);
        done += (size_t)got;
    }
}

uint64_t os_random_u64(void)
{
    uint64_t v;
    os_random_bytes(&v, sizeof v);
    return v;
}
