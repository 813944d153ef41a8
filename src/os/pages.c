/* pages.c: anonymous mmap. */
#include "os/pages.h"

#include <sys/mman.h>

void *os_pages_map(size_t n)
{
    if (!n)
        return NULL;
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, n, MADV_HUGEPAGE);
    return p;
}

void os_pages_unmap(void *p, size_t n)
{
    if (p)
        munmap(p, n);
}
