/* quota_state.h: the file that budgets outlive their process in: the lines of quota_save between a head and a checksum.
 *
 *     inferd-quota 1
 *     policy TAB unit TAB window TAB used TAB subject in hex     (quota.c)
 *     ...
 *     sha256 64 hex digits of all that stands above
 *
 * The file is replaced whole by rename, so a checksum that doesn't fit means a disk or a hand at fault, never a write that was cut. Pure. */
#ifndef INFERD_EDGE_QUOTA_STATE_H
#define INFERD_EDGE_QUOTA_STATE_H

#include "base/buf.h"
#include "base/error.h"

/* Before the first line is appended / when the last one is there. */
void quota_state_begin(struct buf *out);
void quota_state_end(struct buf *out);
/* The lines of a whole file. INVALID: what is wrong with it (no head, another version, a checksum that doesn't fit). */
int quota_state_open(struct str file, struct str *lines, struct error *err) MUST_CHECK;

#endif
