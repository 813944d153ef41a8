/* fault.h: named fault points, compiled into test builds only (INFERD_FAULTS).
 *
 *     INFERD_FAULT="onnx_run:delay=200ms,queue_push:error,arena:oom@100" inferd serve ...
 *
 * `fault_point("name")` returns 0, or the negative status the environment asks for at that point (error -> INTERNAL, oom
 * -> NOMEM), after an optional delay; "@N" starts at the N-th hit, "xN" stops after N. In other builds it is the
 * constant 0 and the branch disappears. The environment is read once, at the first hit. Any thread; may sleep. */
#ifndef INFERD_BASE_FAULT_H
#define INFERD_BASE_FAULT_H

#ifdef INFERD_FAULTS
int fault_point(const char *name);
#else
static inline int fault_point(const char *name)
{
    return (void)name, 0;
}
#endif

#endif
