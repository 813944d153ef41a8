/* dynlib.h: shared libraries opened at run time. A library stays mapped once opened (no unload): the big ones start threads and
 * register destructors that don't survive it. Main or loader thread; may block on the disk. */
#ifndef INFERD_OS_DYNLIB_H
#define INFERD_OS_DYNLIB_H

#include "base/buf.h"
#include "base/error.h"

/* Open `name`, a path or a name that the system's loader searches, with its own symbols kept private. UNAVAILABLE with the
 * loader's words. */
int os_dynlib_open(const char *name, void **library, struct error *err) MUST_CHECK;

/* The address of `symbol`, or NULL. */
void *os_dynlib_symbol(void *library, const char *symbol);

#endif
