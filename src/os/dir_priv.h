/* dir_priv.h: for dir.c and its test only. */
#ifndef INFERD_OS_DIR_PRIV_H
#define INFERD_OS_DIR_PRIV_H

/* The component-wise walk that stands in for openat2: an fd opened with `flags`, or -errno. `rel` is checked already. */
int dir__walk(int dir, const char *rel, int flags);

#endif
