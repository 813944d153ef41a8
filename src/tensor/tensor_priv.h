/* tensor_priv.h: for the files of tensor/ only. */
#ifndef INFERD_TENSOR_TENSOR_PRIV_H
#define INFERD_TENSOR_TENSOR_PRIV_H

#include <string.h>

#include "base/error.h"
#include "base/str.h"

struct tensor;

/* tensor_check whose sentence starts with `what` instead of "tensor" ("input 'x': ..."). */
int tensor__check(const char *what, const struct tensor *t, struct error *err) MUST_CHECK;

/* For "%.*s" in messages: names come from clients, and a long one must not push the rest of the sentence out. */
#define NAME_ARG(s) (int)((s).n > 96 ? 96 : (s).n), ((s).p ? (s).p : "")

/* `s` is the literal: lengths first, then a comparison of constant size that needs no call. */
#define STR_IS(s, literal) ((s).n == sizeof("" literal) - 1 && memcmp((s).p, "" literal, sizeof("" literal) - 1) == 0)

/* v as a float with the lowest bit set when something was cut off ("round to odd"): rounding that again to at most 22 bits
 * is rounding v once (Boldo and Melquiond 2008). */
float f64_to_f32_odd(double v);

/* Little-endian loads and stores without alignment. inferd runs on little-endian machines only (asserted in tensor.c). */
static inline uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store_u32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

#endif
