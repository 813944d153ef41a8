/* pressure.c: see pressure.h. */
#include "edge/pressure.h"

#include "base/size.h"

#define CUT_MAX(class) ((double)LIMIT_LOW - (double)(class)) /* classes below it */

bool pressure_window_add(struct pressure_window *w, uint64_t latency_ns, uint64_t run_ns, uint64_t alone_ns, uint32_t in_flight,
                         uint32_t busy, double tolerance, uint64_t now_ns, bool *squeezed)
{
    if (!w->began_ns)
        *w = (struct pressure_window){.began_ns = now_ns ? now_ns : 1};
    w->answers++;
    w->peak = MAX_OF(w->peak, in_flight);
    w->blind |= !run_ns;
    w->latency_ns += (double)latency_ns;
    w->run_ns += (double)run_ns;
    w->alone_ns += (double)alone_ns;
    if (w->answers < PRESSURE_WINDOW_MIN || now_ns - w->began_ns < PRESSURE_WINDOW_NS)
        return false;
    double slack = w->answers * PRESSURE_SLACK_NS;
    bool stretched = !w->blind && w->run_ns > PRESSURE_STRETCH * w->alone_ns + slack;
    bool kept_waiting = w->peak <= busy && w->latency_ns > tolerance * w->alone_ns + slack;
    *squeezed = stretched || kept_waiting;
    w->began_ns = 0;
    return true;
}

/* Take back what time has earned. */
static void relax(struct pressure *p, uint64_t now_ns)
{
    uint64_t from = MAX_OF(p->at_ns, p->squeezed_ns + PRESSURE_CALM_NS);
    if (now_ns <= p->at_ns)
        return;
    p->at_ns = now_ns;
    if (p->cut == 0 || now_ns <= from)
        return;
    double back = (double)(now_ns - from) / (double)(PRESSURE_BACK_NS << p->backoff);
    p->back = true;
    if (back < p->cut) {
        p->cut -= back;
        return;
    }
    *p = (struct pressure){.at_ns = now_ns, .squeezed_ns = p->squeezed_ns};
}

void pressure_tell(struct pressure *p, enum limit_class class, bool squeezed, uint64_t now_ns)
{
    relax(p, now_ns);
    if (!squeezed || class >= LIMIT_LOW)
        return;
    if (p->back && p->backoff < PRESSURE_BACKOFF_MAX)
        p->backoff++;
    p->back = false;
    p->squeezed_ns = now_ns;
    if (p->cut < CUT_MAX(class))
        p->cut = MIN_OF(p->cut + PRESSURE_STEP, CUT_MAX(class));
}

double pressure_share(struct pressure *p, enum limit_class class, uint64_t now_ns)
{
    relax(p, now_ns);
    double cut = p->cut - (double)(LIMIT_LOW - class);
    return class == LIMIT_CORE ? 1 : 1 - MIN_OF(MAX_OF(cut, 0.0), 1.0);
}

bool pressure_admit(struct pressure *p, enum limit_class class, uint64_t now_ns)
{
    double share = pressure_share(p, class, now_ns);
    if (share >= 1)
        return true;
    p->credit[class] += share;
    if (p->credit[class] < 1)
        return false;
    p->credit[class] -= 1;
    return true;
}
