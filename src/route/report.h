/* report.h: what a replica says of itself, read from the three forms in which replicas say it. Pure.
 *
 *   a header of its answers   endpoint-load-metrics: TEXT named_metrics.num_requests_waiting=3,named_metrics.kv_cache_usage_perc=0.4
 *   (ORCA; vLLM, Triton)      endpoint-load-metrics: JSON {"named_metrics":{"num_requests_waiting":3,"draining":1}}
 *   its metrics page          vllm:*, sglang:* and inferd's names
 *   an agent's line (HAProxy) "ready", "drain", "maint", "down#why", "75%", "maxconn:30", and of ours "loading"
 *
 * A report holds only what was there: the has_* members tell. What nobody of us knows is skipped, since other balancers read the same. */
#ifndef INFERD_ROUTE_REPORT_H
#define INFERD_ROUTE_REPORT_H

#include "base/error.h"
#include "base/str.h"
#include "route/pool.h"

/* As reports and requests name an adapter (for vLLM it is the request's model). */
uint64_t report_adapter(struct str name);

/* The value of an endpoint-load-metrics header. INVALID: neither of its forms, or a number that is none. */
int report_read_header(struct str value, struct upstream_report *out, struct error *err) MUST_CHECK;
/* A metrics page in Prometheus' text format: requests that wait are summed over models, of KV use the highest counts. INVALID: none of the
 * names that are looked for is there. */
int report_read_metrics(struct str text, struct upstream_report *out, struct error *err) MUST_CHECK;
/* The first line of an agent's answer. INVALID: a word that isn't an agent's, or no word at all. */
int report_read_agent(struct str text, struct upstream_report *out, struct error *err) MUST_CHECK;

#endif
