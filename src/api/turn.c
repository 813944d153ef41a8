/* turn.c: what many inferences of one iteration of an I/O loop do once: wake instances, and be woken.
 *
 * An I/O thread that finds 32 requests readable hands all of them to the batcher and then wakes the instance, and an instance that
 * answers 32 requests wakes the I/O thread once. With a wake-up each, threads that share a core take turns at every request: 0.8
 * switches of context a request and batches of 1.2 rows were measured with 32 connections on one core, which is half of nginx's rate.
 *
 * A note does not wait for a long iteration: one that is older than NOTE_MAX_NS wakes its instance at the next submit. With one
 * request at hand nothing is later than before: the iteration ends behind it. */
#include <stdlib.h>

#include "api/api_priv.h"
#include "base/check.h"

#define NOTE_MAX_NS 100000u

static void burst_begin(struct infer_waker *w)
{
    loop_burst_begin(CONTAINER_OF(w, struct api_turn, waker)->loop);
}

static void burst_end(struct infer_waker *w)
{
    loop_burst_end(CONTAINER_OF(w, struct api_turn, waker)->loop);
}

static void flush(struct loop_task *task)
{
    struct api_turn *t = CONTAINER_OF(task, struct api_turn, flush);
    t->flushing = false;
    infer_wake(&t->wakes);
}

struct api_turn *api__turn(struct loop *loop)
{
    struct api_turn *t = loop_local(loop, LOOP_SLOT_INFER);
    if (t)
        return t;
    t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    *t = (struct api_turn){.waker = {burst_begin, burst_end}, .flush.run = flush, .loop = loop};
    loop_set_local(loop, LOOP_SLOT_INFER, t, free);
    return t;
}

struct infer_wakes *api__turn_wakes(struct api_turn *t, uint64_t now_ns)
{
    if (!t->flushing) {
        t->flushing = true;
        loop_defer(t->loop, &t->flush);
    }
    if (!t->wakes.n)
        t->since_ns = now_ns;
    else if (now_ns - t->since_ns > NOTE_MAX_NS)
        infer_wake(&t->wakes);
    return &t->wakes;
}
