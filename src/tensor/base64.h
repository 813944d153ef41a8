/* base64.h: strict base64 (RFC 4648 section 4): the standard alphabet, padding required, no white space, and the unused bits
 * of the last group zero, so that every value has exactly one spelling. */
#ifndef INFERD_TENSOR_BASE64_H
#define INFERD_TENSOR_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Decode into `out` (room for 3/4 of the text; may be the text's own memory) and store the length; false when the text is
 * not base64. Pure. */
bool base64_decode(struct str text, uint8_t *out, size_t *n);

/* Bytes of the text that base64_encode writes for `n`; n is less than a quarter of the address space. */
static inline size_t base64_encoded_size(size_t n)
{
    return (n + 2) / 3 * 4;
}
/* Encode into `out`, which has room for base64_encoded_size(n); no NUL. Pure. */
void base64_encode(const uint8_t *p, size_t n, char *out);

#endif
