/* delivery.c: RFC 6298's smoothing of delivery times, with its gains of 1/8 and 1/4. */
#include "sched/delivery.h"

#include "base/size.h"

#define ALLOWANCE_SHARE 5 /* at most this part of the time that is left */
#define WAYS            2 /* in and out */
#define NS_MAX          (UINT64_MAX / 64)

void delivery_learn(struct delivery *d, uint64_t ns)
{
    ns = MIN_OF(ns, NS_MAX);
    uint64_t mean = atomic_load_explicit(&d->mean_ns, memory_order_relaxed);
    uint64_t deviation = atomic_load_explicit(&d->deviation_ns, memory_order_relaxed);
    if (!mean) {
        mean = ns;
        deviation = ns / 2;
    } else {
        uint64_t error = ns > mean ? ns - mean : mean - ns;
        deviation = deviation - deviation / 4 + error / 4;
        mean = mean - mean / 8 + ns / 8;
    }
    atomic_store_explicit(&d->mean_ns, mean, memory_order_relaxed);
    atomic_store_explicit(&d->deviation_ns, deviation, memory_order_relaxed);
}

uint64_t delivery_allowance_ns(const struct delivery *d, uint64_t left_ns)
{
    uint64_t mean = atomic_load_explicit(&d->mean_ns, memory_order_relaxed);
    uint64_t deviation = atomic_load_explicit(&d->deviation_ns, memory_order_relaxed);
    return MIN_OF(WAYS * (mean + 4 * deviation), left_ns / ALLOWANCE_SHARE);
}
