/* guard_gate.c: the set in force and its counters; see guard_gate.h. References are guard_recording.c's. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "edge/guard_gate_priv.h"
#include "obs/metrics.h"
#include "os/clock.h"

#define LOG_LINES_PER_SECOND 20
#define NS_PER_S             1000000000u

struct guard_gate *guard_gate_create(const struct guard_gate_options *o)
{
    static const char *const input_labels[] = {"policy", "check", "mode", NULL};
    static const char *const output_labels[] = {"policy", "rule", "action", NULL};
    struct guard_gate *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->o = *o;
    os_mutex_init(&g->lock, RANK_LEAF);
    list_init(&g->slots);
    if (!o->metrics)
        return g;
    g->inputs = metrics_family(o->metrics, METRIC_COUNTER, "inferd_guard_findings_total",
                               "Inputs that an input policy found fault with, by policy, check and what came of it.",
                               input_labels, NULL, 0);
    g->outputs = metrics_family(o->metrics, METRIC_COUNTER, "inferd_policy_matches_total",
                                "Matches of output policies' rules, by policy, rule and action.", output_labels, NULL, 0);
    return g;
}

void guard_gate_destroy(struct guard_gate *g)
{
    if (!g)
        return;
    guard_set_unref(g->set);
    guard__slots_release(g);
    os_mutex_release(&g->lock);
    free(g);
}

/* ---- counters ---- */

static void make_counters(struct guard_gate *g, struct guard_set *s)
{
    for (size_t i = 0; g->inputs && i < s->n_inputs; i++) {
        struct guard_input *p = &s->inputs[i];
        for (int c = 0; c < GUARD_CHECKS; c++) {
            enum guard_mode mode = c == GUARD_SCORE && p->reference ? p->reference->mode : p->mode;
            if (c == GUARD_SCORE && !p->reference)
                continue;
            p->hits[c] = metrics_series(
                g->inputs, (const char *const[]){p->name, guard_check_name((enum guard_check)c), guard_mode_name(mode)});
        }
    }
    for (size_t i = 0; g->outputs && i < s->n_outputs; i++) {
        struct guard_output *p = &s->outputs[i];
        for (size_t k = 0; k < p->n_rules; k++)
            p->hits[k] = metrics_series(g->outputs, (const char *const[]){p->name, policy_rule_name(p->rules[k]),
                                                                          policy_action_name(policy_rule_action(p->rules[k]))});
    }
}

/* ---- the set ---- */

int guard_gate_load(struct guard_gate *g, struct str text, const char *where, const struct gateway_config *routes,
                    struct error *err)
{
    struct guard_set *fresh = NULL, *old;
    int rc = text.n ? guard_set_parse(text, where, &fresh, err) : 0;
    if (rc == 0 && fresh)
        rc = guard_check_routes(fresh, routes, err);
    if (rc == 0 && fresh)
        rc = guard__slots_bind(g, fresh, err);
    if (rc < 0) {
        guard_set_unref(fresh);
        return rc;
    }
    if (fresh)
        make_counters(g, fresh);
    os_mutex_lock(&g->lock);
    old = g->set;
    g->set = fresh;
    atomic_store_explicit(&g->has_set, fresh != NULL, memory_order_release);
    os_mutex_unlock(&g->lock);
    guard_set_unref(old);
    return 0;
}

struct guard_set *guard_gate_set(struct guard_gate *g)
{
    struct guard_set *s;
    if (!atomic_load_explicit(&g->has_set, memory_order_acquire))
        return NULL;
    os_mutex_lock(&g->lock);
    s = g->set ? guard_set_ref(g->set) : NULL;
    os_mutex_unlock(&g->lock);
    return s;
}

/* ---- what is told ---- */

/* A flood of bad inputs shall not flood the log: the counters have them all. */
static bool may_log(struct guard_gate *g)
{
    uint64_t second = os_monotonic_ns() / NS_PER_S, old = atomic_load_explicit(&g->log_second, memory_order_relaxed);
    if (!g->o.log)
        return false;
    if (old != second &&
        atomic_compare_exchange_strong_explicit(&g->log_second, &old, second, memory_order_relaxed, memory_order_relaxed))
        atomic_store_explicit(&g->log_lines, 0, memory_order_relaxed);
    return atomic_fetch_add_explicit(&g->log_lines, 1, memory_order_relaxed) < LOG_LINES_PER_SECOND;
}

void guard_gate_note_input(struct guard_gate *g, const struct guard_input *p, enum guard_check check, enum guard_mode mode,
                           const struct guard_who *who, const char *request_id, const char *text)
{
    metric_inc(p->hits[check]);
    if (may_log(g))
        LOG(g->o.log, LOG_WARN, "input_guard", LOG_S("policy", p->name), LOG_S("check", guard_check_name(check)),
            LOG_S("mode", guard_mode_name(mode)), LOG_STR("model", who->model), LOG_STR("tenant", who->tenant),
            LOG_S("request", request_id ? request_id : ""), LOG_S("finding", text));
}

void guard_gate_note_output(struct guard_gate *g, const struct guard_output *p, size_t i, uint64_t hits,
                            const struct guard_who *who, const char *request_id)
{
    metric_add(p->hits[i], hits);
    if (may_log(g))
        LOG(g->o.log, LOG_WARN, "output_policy", LOG_S("policy", p->name), LOG_S("rule", policy_rule_name(p->rules[i])),
            LOG_S("action", policy_action_name(policy_rule_action(p->rules[i]))), LOG_U("matches", hits),
            LOG_STR("model", who->model), LOG_STR("tenant", who->tenant), LOG_S("request", request_id ? request_id : ""));
}
