/* from_config.c: struct config into the options of net, model and the engines. */
#include "cli/from_config.h"

#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "conf/options.h"
#include "os/cgroup.h"

static_assert((int)CONFIG_MODE_NONE == (int)REGISTRY_NONE && (int)CONFIG_MODE_POLL == (int)REGISTRY_POLL &&
                  (int)CONFIG_MODE_EXPLICIT == (int)REGISTRY_EXPLICIT,
              "the words of repository.mode are in the order of enum registry_mode");

uint32_t cli_threads(uint32_t configured)
{
    struct os_cpu_limits cpu;
    if (configured)
        return configured;
    os_cpu_limits_read(&cpu);
    return cpu.threads;
}

void cli_http_limits(const struct config *c, struct http_limits *out)
{
    *out = (struct http_limits){
        .max_connections = c->limits.max_connections,
        .max_header_bytes = c->limits.max_header_bytes,
        .max_headers = c->limits.max_headers,
        .max_url_bytes = c->limits.max_url_bytes,
        .max_body_bytes = c->limits.max_body_bytes,
        .max_inflate_ratio = c->limits.max_inflate_ratio,
        .max_pipeline = c->limits.max_pipeline,
        .max_requests = c->limits.max_requests,
        .header_timeout_ns = c->limits.header_timeout,
        .body_timeout_ns = c->limits.body_timeout,
        .idle_timeout_ns = c->limits.idle_timeout,
        .write_timeout_ns = c->limits.write_timeout,
        .min_body_rate = c->limits.min_body_rate,
        .http2_max_streams = c->limits.http2_max_streams,
        .http2_window_bytes = c->limits.http2_window_bytes,
        .http2_table_bytes = c->limits.http2_table_bytes,
        .http2_max_continuations = c->limits.http2_max_continuations,
        .http2_glitches = c->limits.http2_glitches,
        .http2_glitch_rate = c->limits.http2_glitch_rate,
        .handshake_timeout_ns = c->tls.handshake_timeout,
        .max_connections_per_address = c->limits.max_connections_per_address,
        .max_handshakes_per_address = c->limits.max_handshakes_per_address,
        .max_tunnels = c->limits.max_tunnels,
        .max_body_memory = c->limits.max_body_memory,
    };
}

void cli_registry_options(const struct config *c, struct registry_options *out)
{
    *out = (struct registry_options){
        .roots = c->repository.paths.v,
        .n_roots = c->repository.paths.n,
        .mode = (enum registry_mode)c->repository.mode,
        .load = c->repository.load.v,
        .n_load = c->repository.load.n,
        .poll_interval_ns = c->repository.poll_interval,
        .poll_settle_ns = c->repository.poll_settle,
        .follow_symlinks = c->repository.follow_symlinks,
        .strict_readiness = c->repository.strict_readiness,
        .memory_limit_bytes = c->repository.memory_limit,
        .queue_bytes_total = c->scheduler.queue_bytes,
        .compute_threads = cli_threads(c->compute.threads),
        .loader_threads = c->repository.loader_threads,
        .warmup_timeout_ns = c->repository.warmup_timeout,
        .hang_timeout_ns = c->scheduler.hang_timeout,
        .default_deadline_ns = c->scheduler.default_deadline,
        .engines = cli_engines,
        .seal = {.seal_keys = c->models.seal_keys.v,
                 .n_seal_keys = c->models.seal_keys.n,
                 .signature_keys = c->models.signature_keys.v,
                 .n_signature_keys = c->models.signature_keys.n,
                 .require_sealed = c->models.require_sealed,
                 .require_signature = c->models.require_signature},
    };
}

int cli_open_engines(const struct config *c, struct logger *log, struct engine *state[CLI_ENGINES_MAX], struct error *err)
{
    struct engine_option options[CONFIG_OPTIONS_MAX];
    struct buf text[CONFIG_OPTIONS_MAX];
    size_t n = option_count();
    bool failed = false;
    for (size_t i = 0; i < n; i++) {
        const struct option *row = option_at(i);
        buf_init(&text[i]);
        if (strcmp(row->name, "compute.threads") == 0)
            buf_append_u64(&text[i], cli_threads(c->compute.threads));
        else
            config_render_value(c, row, &text[i]);
        options[i] = (struct engine_option){str_of(row->name), buf_str(&text[i])};
        failed = failed || text[i].failed;
    }
    int rc = failed ? error_set(err, STATUS_NOMEM, "out of memory while opening the engines")
                    : cli_engines_open(options, n, log, state, err);
    for (size_t i = 0; i < n; i++)
        buf_release(&text[i]);
    return rc;
}
