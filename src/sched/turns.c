/* turns.c: turns of tenants in a batcher's queue: fair.h's line of rows, cut into quarters of a batch.
 *
 * The cut leaves deadlines their say within a turn. Turns are apart for each class, since a class that is rarely served would else give
 * its tenants places that lag behind. */
#include <stdlib.h>

#include "base/check.h"
#include "sched/batcher_priv.h"

#define TURNS_PER_BATCH 4

static void place(struct batcher *b, struct batch_item *item)
{
    uint32_t quantum = MAX_OF(b->policy.max_rows / TURNS_PER_BATCH, 1u);
    item->start = fair_start(&b->fair[item->class], item->tenant);
    item->turn = item->start / quantum;
    item->fair = true;
}

/* What is queued, in order of arrival. Once in a batcher's life, so its cost doesn't matter. */
static void place_all(struct batcher *b)
{
    LIST_EACH(at, &b->arrivals)
    {
        struct batch_item *item = LIST_ENTRY(at, struct batch_item, link);
        rank_remove(&item->home->queue, &item->order);
        place(b, item);
        fair_enter(&b->fair[item->class], item->tenant, item->rows);
        rank_insert(&item->home->queue, &item->order);
    }
}

void batcher__turn(struct batcher *b, struct batch_item *item)
{
    item->fair = false;
    item->turn = 0;
    if (!b->any)
        b->tenant = item->tenant;
    b->any = true;
    if (!b->fair && item->tenant != b->tenant) {
        b->fair = calloc(BATCH_CLASSES, sizeof *b->fair);
        if (b->fair)
            place_all(b);
    }
    if (b->fair)
        place(b, item);
}

void batcher__turn_taken(struct batcher *b, struct batch_item *item)
{
    if (item->fair)
        fair_enter(&b->fair[item->class], item->tenant, item->rows);
}

void batcher__turn_over(struct batcher *b, struct batch_item *item, bool served)
{
    if (item->fair)
        fair_leave(&b->fair[item->class], item->tenant, item->start, served);
    item->fair = false;
}
