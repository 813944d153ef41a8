/* hdr.h: latency recorder with a fixed relative error, after Gil Tene's HdrHistogram.
 *
 * Values are integers (ns, say). Buckets are linear below 2048 and then 1024 for every doubling, so a recorded value is known to 1
 * part in 1024 or better: three significant digits, with memory that depends only on the largest value (one hour in ns: 33
 * doublings, 270 KiB), and O(1) recording. Owned by one thread; one recorder a thread, merged afterwards. */
#ifndef INFERD_OBS_HDR_H
#define INFERD_OBS_HDR_H

#include <stddef.h>
#include <stdint.h>

struct hdr {
    uint64_t n;              /* values recorded */
    uint64_t min, max;       /* as recorded, exact; min is UINT64_MAX while empty */
    double sum, sum_squares; /* exact values, not bucket middles */
    uint64_t clamped;        /* values over `highest`, recorded as `highest` */
    uint64_t highest;
    size_t n_counts;
    uint64_t *counts;
};

/* A recorder for 0..highest (at least 2048). NULL when out of memory. */
struct hdr *hdr_create(uint64_t highest);
void hdr_destroy(struct hdr *h);
void hdr_clear(struct hdr *h);

/* Count one value, or `times` equal ones. Values over `highest` are counted as `highest` and in `clamped`. */
void hdr_record(struct hdr *h, uint64_t value);
void hdr_record_n(struct hdr *h, uint64_t value, uint64_t times);
/* Record with correction for coordinated omission: a closed-loop client that meant to send every `expected_interval` but waited `value`
 * for an answer has left out the requests in between; they are recorded as value - interval, value - 2 interval, ... down to the
 * interval. 0: no correction. Takes value / interval steps. */
void hdr_record_corrected(struct hdr *h, uint64_t value, uint64_t expected_interval);
/* Add what `from` has recorded; both must have the same `highest`. */
void hdr_merge(struct hdr *h, const struct hdr *from);

/* The value that `percent` (0..100) of the recorded values do not exceed (nearest rank), as the highest value of its bucket, never
 * above the largest recorded one. 0 when empty. */
uint64_t hdr_percentile(const struct hdr *h, double percent);
double hdr_mean(const struct hdr *h);   /* 0 when empty */
double hdr_stddev(const struct hdr *h); /* of the population */
/* How many values are <= the bucket that holds `value`. */
uint64_t hdr_count_at_or_below(const struct hdr *h, uint64_t value);

#endif
