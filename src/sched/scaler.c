/* scaler.c: see scaler.h. Two thresholds far apart (a backlog that has lasted against a utilisation that would stay under 60 %
 * with one fewer) and a fresh window after each change are the hysteresis: an instance that was just added is measured for a
 * whole window before it can be taken away, and the load that made it necessary would have to fall by 40 % first. */
#include "sched/scaler.h"

#include <stdbool.h>

#include "base/size.h"

#define SHRINK_UTILISATION 0.6

void scaler_init(struct scaler *s, uint32_t min, uint32_t max, uint64_t now_ns)
{
    *s = (struct scaler){
        .min = MAX_OF(min, 1u),
        .max = MAX_OF(max, MAX_OF(min, 1u)),
        .grow_backlog_ns = 50000000,
        .grow_after_ns = 200000000,
        .shrink_after_ns = 10000000000,
        .window_start_ns = now_ns,
        .last_change_ns = now_ns,
    };
}

static uint32_t change(struct scaler *s, uint64_t now_ns, uint64_t busy_total_ns, uint32_t to)
{
    s->pressed_since_ns = 0;
    s->window_start_ns = s->last_change_ns = now_ns;
    s->busy_ns_at_window = busy_total_ns;
    return to;
}

/* Has the pressure lasted? pressed_since_ns is 0 while there is none (and time 0 itself counts as 1). */
static bool pressed(struct scaler *s, uint64_t now_ns, bool now_pressed)
{
    if (!now_pressed) {
        s->pressed_since_ns = 0;
        return false;
    }
    if (!s->pressed_since_ns)
        s->pressed_since_ns = MAX_OF(now_ns, (uint64_t)1);
    return now_ns >= s->pressed_since_ns && now_ns - s->pressed_since_ns >= s->grow_after_ns;
}

uint32_t scaler_decide(struct scaler *s, uint64_t now_ns, uint32_t instances, uint32_t busy, uint64_t busy_total_ns,
                       uint64_t backlog_ns)
{
    if (instances < s->min)
        return change(s, now_ns, busy_total_ns, instances + 1);
    if (instances > s->max)
        return change(s, now_ns, busy_total_ns, instances - 1);
    if (pressed(s, now_ns, busy >= instances && backlog_ns > s->grow_backlog_ns) && instances < s->max)
        return change(s, now_ns, busy_total_ns, instances + 1);
    uint64_t window = now_ns - MIN_OF(s->window_start_ns, now_ns);
    if (window < s->shrink_after_ns || !window)
        return instances;
    double work = (double)(busy_total_ns - MIN_OF(s->busy_ns_at_window, busy_total_ns)) / (double)window;
    if (instances > s->min && work < SHRINK_UTILISATION * (instances - 1))
        return change(s, now_ns, busy_total_ns, instances - 1);
    s->window_start_ns = now_ns;
    s->busy_ns_at_window = busy_total_ns;
    return instances;
}
