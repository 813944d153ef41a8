/* access_log_priv.h: for access_log.c, access_render.c and their tests: a record as a line. */
#ifndef INFERD_OBS_ACCESS_LOG_PRIV_H
#define INFERD_OBS_ACCESS_LOG_PRIV_H

#include "base/buf.h"
#include "obs/access_log.h"

/* Append the line, newline included; never more than 4096 bytes (a path that would not fit is left out). */
void access__render(struct buf *out, enum log_format format, const struct access_record *r);

#endif
