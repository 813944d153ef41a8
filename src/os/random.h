/* random.h: bits that nobody can guess, from the kernel. Any thread. */
#ifndef INFERD_OS_RANDOM_H
#define INFERD_OS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Fill with getrandom(2). May block only in the first moments of a machine's life. Aborts when the kernel has no such call:
 * there is no safe substitute. */
void os_random_bytes(void *p, size_t n);
/* 64 of those bits: seeds of hash tables, request ids and struct rand. */
uint64_t os_random_u64(void);

#endif
