/* seal_sign_priv.h: for seal_sign*.c only. */
#ifndef INFERD_MODEL_SEAL_SIGN_PRIV_H
#define INFERD_MODEL_SEAL_SIGN_PRIV_H

#include "model/seal_sign.h"

/* Exactly 2n lower-case hex digits into n bytes. */
bool sign__unhex(struct str text, uint8_t *out, size_t n);

#endif
