/* hdr.c: see hdr.h. Bucket of v: below 2048 it is v itself; else with s = bit length - 11 the eleven leading bits m = v >> s
 * (1024..2047) give index s * 1024 + m. The two halves meet: v = 2047 is index 2047, v = 2048 is s = 1, m = 1024: index 2048. */
#include "obs/hdr.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/size.h"

#define HALF      1024u
#define HALF_BITS 10

static size_t index_of(uint64_t v)
{
    if (v < 2 * HALF)
        return (size_t)v;
    unsigned shift = 63u - (unsigned)__builtin_clzll(v) - HALF_BITS;
    return (size_t)shift * HALF + (size_t)(v >> shift);
}

/* The highest value that falls into the bucket. */
static uint64_t top_of(size_t index)
{
    if (index < 2 * HALF)
        return index;
    unsigned shift = (unsigned)(index / HALF) - 1;
    uint64_t lowest = (uint64_t)(index - (size_t)shift * HALF) << shift;
    return lowest + (((uint64_t)1 << shift) - 1);
}

struct hdr *hdr_create(uint64_t highest)
{
    struct hdr *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->highest = MAX_OF(highest, (uint64_t)2 * HALF);
    h->n_counts = index_of(h->highest) + 1;
    h->counts = calloc(h->n_counts, sizeof *h->counts);
    if (!h->counts) {
        free(h);
        return NULL;
    }
    h->min = UINT64_MAX;
    return h;
}

void hdr_destroy(struct hdr *h)
{
    if (h)
        free(h->counts);
    free(h);
}

void hdr_clear(struct hdr *h)
{
    memset(h->counts, 0, h->n_counts * sizeof *h->counts);
    h->n = h->max = h->clamped = 0;
    h->min = UINT64_MAX;
    h->sum = h->sum_squares = 0;
}

void hdr_record_n(struct hdr *h, uint64_t value, uint64_t times)
{
    if (!times)
        return;
    if (value > h->highest) {
        value = h->highest;
        h->clamped += times;
    }
    h->counts[index_of(value)] += times;
    h->n += times;
    h->min = MIN_OF(h->min, value);
    h->max = MAX_OF(h->max, value);
    h->sum += (double)value * (double)times;
    h->sum_squares += (double)value * (double)value * (double)times;
}

void hdr_record(struct hdr *h, uint64_t value)
{
    hdr_record_n(h, value, 1);
}

void hdr_record_corrected(struct hdr *h, uint64_t value, uint64_t expected_interval)
{
    hdr_record(h, value);
    if (!expected_interval)
        return;
    for (uint64_t v = MIN_OF(value, h->highest); v >= 2 * expected_interval;) {
        v -= expected_interval;
        hdr_record(h, v);
    }
}

void hdr_merge(struct hdr *h, const struct hdr *from)
{
    ASSERT(h->highest == from->highest);
    for (size_t i = 0; i < h->n_counts; i++)
        h->counts[i] += from->counts[i];
    h->n += from->n;
    h->min = MIN_OF(h->min, from->min);
    h->max = MAX_OF(h->max, from->max);
    h->sum += from->sum;
    h->sum_squares += from->sum_squares;
    h->clamped += from->clamped;
}

uint64_t hdr_percentile(const struct hdr *h, double percent)
{
    if (!h->n)
        return 0;
    /* One step down before multiplying: 99.9 / 100 * 1000 is a hair over 999 in binary and must not become rank 1000. */
    double rank = ceil(nextafter(percent, 0) / 100 * (double)h->n);
    uint64_t want = rank < 1 ? 1 : rank >= (double)h->n ? h->n : (uint64_t)rank, seen = 0;
    for (size_t i = 0; i < h->n_counts; i++) {
        seen += h->counts[i];
        if (seen >= want)
            return MIN_OF(top_of(i), h->max);
    }
    return h->max;
}

double hdr_mean(const struct hdr *h)
{
    return h->n ? h->sum / (double)h->n : 0;
}

double hdr_stddev(const struct hdr *h)
{
    if (!h->n)
        return 0;
    double mean = hdr_mean(h), variance = h->sum_squares / (double)h->n - mean * mean;
    return variance > 0 ? sqrt(variance) : 0;
}

uint64_t hdr_count_at_or_below(const struct hdr *h, uint64_t value)
{
    uint64_t n = 0;
    size_t last = index_of(MIN_OF(value, h->highest));
    for (size_t i = 0; i <= last; i++)
        n += h->counts[i];
    return n;
}
