/* breaker.c: see breaker.h. */
#include "edge/breaker.h"

#include <string.h>

#include "base/check.h"
#include "base/size.h"

#define LONGER_MAX 4 /* doublings of open_ns */

const char *breaker_state_name(enum breaker_state s)
{
    static const char *const names[] = {"closed", "half_open", "open"};
    return names[s];
}

void breaker_configure(struct breaker *b, const struct breaker_options *o)
{
    b->o = *o;
    b->o.minimum = MAX_OF(o->minimum, 1u);
    b->o.probes = MAX_OF(o->probes, 1u);
    b->o.window_ns = MAX_OF(o->window_ns, (uint64_t)BREAKER_SLOTS);
}

void breaker_init(struct breaker *b, const struct breaker_options *o)
{
    memset(b, 0, sizeof *b);
    breaker_configure(b, o);
}

static void change(struct breaker *b, enum breaker_state to)
{
    b->state = to;
    b->epoch++;
    b->probing = b->succeeded = 0;
    memset(b->slots, 0, sizeof b->slots);
}

static void open(struct breaker *b, uint64_t now_ns)
{
    uint32_t times = 1u << MIN_OF(b->failures, (uint32_t)LONGER_MAX);
    b->until_ns = now_ns + b->o.open_ns * times;
    b->failures++;
    change(b, BREAKER_OPEN);
}

bool breaker_begin(struct breaker *b, uint64_t now_ns, uint32_t *epoch, uint64_t *wait_ns)
{
    *wait_ns = 0;
    if (b->state == BREAKER_OPEN) {
        if (now_ns < b->until_ns) {
            *wait_ns = b->until_ns - now_ns;
            return false;
        }
        change(b, BREAKER_HALF_OPEN);
    }
    if (b->state == BREAKER_HALF_OPEN) {
        if (b->probing >= b->o.probes)
            return false;
        b->probing++;
    }
    *epoch = b->epoch;
    return true;
}

/* ---- the window ---- */

static uint64_t slot_index(const struct breaker *b, uint64_t now_ns)
{
    return now_ns / (b->o.window_ns / BREAKER_SLOTS) + 1; /* never 0: that is a slot never used */
}

struct breaker_slot breaker_counts(const struct breaker *b, uint64_t now_ns)
{
    struct breaker_slot sum = {.index = slot_index(b, now_ns)};
    for (int i = 0; i < BREAKER_SLOTS; i++) {
        const struct breaker_slot *s = &b->slots[i];
        if (!s->index || s->index + BREAKER_SLOTS <= sum.index)
            continue;
        sum.answers += s->answers;
        sum.errors += s->errors;
        sum.slow += s->slow;
    }
    return sum;
}

static bool is_slow(const struct breaker *b, uint64_t latency_ns)
{
    return b->o.slow_ns && latency_ns > b->o.slow_ns;
}

static void count(struct breaker *b, bool error, bool slow, uint64_t now_ns)
{
    uint64_t index = slot_index(b, now_ns);
    struct breaker_slot *s = &b->slots[index % BREAKER_SLOTS];
    if (s->index != index)
        *s = (struct breaker_slot){.index = index};
    s->answers++;
    s->errors += error;
    s->slow += slow;
}

static bool too_many(const struct breaker *b, uint64_t now_ns)
{
    struct breaker_slot sum = breaker_counts(b, now_ns);
    if (sum.answers < b->o.minimum)
        return false;
    return (b->o.error_rate > 0 && sum.errors >= b->o.error_rate * sum.answers) ||
           (b->o.slow_ns && sum.slow >= b->o.slow_rate * sum.answers);
}

static void end_probe(struct breaker *b, bool bad, uint64_t now_ns)
{
    ASSERT(b->probing);
    b->probing--;
    if (bad) {
        open(b, now_ns);
    } else if (++b->succeeded >= b->o.probes) {
        b->failures = 0;
        change(b, BREAKER_CLOSED);
    }
}

void breaker_end(struct breaker *b, uint32_t epoch, enum breaker_outcome outcome, uint64_t latency_ns, uint64_t now_ns)
{
    if (epoch != b->epoch)
        return;
    bool error = outcome == BREAKER_ERROR && b->o.error_rate > 0, slow = is_slow(b, latency_ns);
    if (outcome == BREAKER_SAYS_NOTHING || (outcome == BREAKER_LATE && !slow)) {
        b->probing -= b->state == BREAKER_HALF_OPEN;
        return;
    }
    if (b->state == BREAKER_HALF_OPEN) {
        end_probe(b, error || slow, now_ns);
        return;
    }
    count(b, error, slow, now_ns);
    if ((error || slow) && too_many(b, now_ns))
        open(b, now_ns);
}
