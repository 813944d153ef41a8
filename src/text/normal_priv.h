/* normal_priv.h: for text/normal*.c only. */
#ifndef INFERD_TEXT_NORMAL_PRIV_H
#define INFERD_TEXT_NORMAL_PRIV_H

#include "text/normal.h"

/* normal_charsmap.c */
int normal__charsmap_check(struct str map, struct error *err) MUST_CHECK;
void normal__charsmap(struct str map, struct str text, struct buf *out);

#endif
