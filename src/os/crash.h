/* crash.h: the report that a crash leaves: to stderr, and to a file that survives a lost stderr.
 *
 * On SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT (a failed ASSERT ends there) a handler on its own stack writes the signal and
 * address, version, build id, thread, the request id that the thread worked on (base/check.h) and the stack as
 * module+offset and symbol+offset; then the signal takes its default course (exit status, core dump). Only async-signal-safe
 * calls, with one exception that is guarded: the unwinder and dladdr may take the loader's lock, so an alarm ends a report that hangs. */
#ifndef INFERD_OS_CRASH_H
#define INFERD_OS_CRASH_H

#include "base/error.h"

/* Install the handlers for the process. `folder` (NULL: stderr only) is made if absent; reports are named
 * crash-<unix seconds>-<pid>.txt, mode 0600, and all but the newest 20 are removed here. `version` is borrowed for ever. Main thread,
 * once. On an unusable folder the handlers are installed all the same, for stderr. */
int os_crash_install(const char *folder, const char *version, struct error *err) MUST_CHECK;

/* The build id of the running binary as hex, "none" when it has none. Static; any thread. Reads no file. */
const char *os_build_id(void);

/* A signal stack for the calling thread, so that a stack overflow is reported too; os/thread.h calls both. The stack is what
 * enter returned; NULL is accepted. */
void *os_crash_stack_enter(void);
void os_crash_stack_leave(void *stack);

#endif
