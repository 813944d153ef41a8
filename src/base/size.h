/* size.h: overflow-checked size arithmetic. Each returns true when the result fits and stores it; on overflow it
 * returns false and leaves `*out` alone. Every size that a file or a client has a say in goes through here. */
#ifndef INFERD_BASE_SIZE_H
#define INFERD_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool size_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

static inline bool size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}

/* Round `n` up to a multiple of `align` (a power of two). */
static inline bool size_align(size_t n, size_t align, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(n, align - 1, &r))
        return false;
    *out = r & ~(align - 1);
    return true;
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MIN_OF(a, b)    ((a) < (b) ? (a) : (b))
#define MAX_OF(a, b)    ((a) > (b) ? (a) : (b))

/* The struct that embeds `ptr` as its member `member`. */
#define CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#endif
