/* futex.h: sleep until a word changes. For teams of compute threads that mostly spin; everything else uses os/thread.h. */
#ifndef INFERD_OS_FUTEX_H
#define INFERD_OS_FUTEX_H

#include <stdatomic.h>
#include <stdint.h>

/* Sleep while *word == seen. May return early for no reason: the caller looks again. Blocks. */
void os_futex_wait(_Atomic uint32_t *word, uint32_t seen);
/* Wake everybody who sleeps on `word`. Any thread; doesn't block. */
void os_futex_wake_all(_Atomic uint32_t *word);

#endif
