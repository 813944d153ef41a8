/* fair.c: see fair.h. A flow is in one of the FAIR_PROBES places behind its hash; a place is free when its flow has nothing queued and its line
 * ends before now, since then it would begin now like any newcomer. */
#include "sched/fair.h"

#include "base/check.h"
#include "base/size.h"

static struct fair_flow *find(struct fair *f, uint64_t flow)
{
    struct fair_flow *room = NULL;
    uint64_t home = (flow * 0x9e3779b97f4a7c15u) >> 32;
    for (uint64_t i = 0; i < FAIR_PROBES; i++) {
        struct fair_flow *at = &f->flows[(home + i) % FAIR_FLOWS];
        bool is_free = !at->queued && at->next <= f->now;
        if (at->id == flow && !is_free)
            return at;
        if (is_free && !room)
            room = at;
    }
    if (!room)
        return &f->flows[FAIR_FLOWS];
    *room = (struct fair_flow){.id = flow};
    return room;
}

uint64_t fair_start(struct fair *f, uint64_t flow)
{
    return MAX_OF(find(f, flow)->next, f->now);
}

void fair_enter(struct fair *f, uint64_t flow, uint32_t rows)
{
    struct fair_flow *at = find(f, flow);
    at->next = MAX_OF(at->next, f->now) + rows;
    at->queued++;
}

void fair_leave(struct fair *f, uint64_t flow, uint64_t start, bool served)
{
    struct fair_flow *at = find(f, flow);
    if (!at->queued) /* it entered among everybody else, when there was no place */
        at = &f->flows[FAIR_FLOWS];
    ASSERT(at->queued);
    at->queued--;
    if (served)
        f->now = MAX_OF(f->now, start);
}
