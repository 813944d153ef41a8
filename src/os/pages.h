/* pages.h: large zeroed memory straight from the kernel: weights, KV pools, step buffers. Page-aligned, in huge pages where the kernel gives
 * them, touched (and so paid for) only when used. Any thread. */
#ifndef INFERD_OS_PAGES_H
#define INFERD_OS_PAGES_H

#include <stddef.h>

/* NULL when refused, or when n is 0. */
void *os_pages_map(size_t n);
/* NULL is accepted. `n` as given to map. */
void os_pages_unmap(void *p, size_t n);

#endif
