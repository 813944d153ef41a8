/* options.c: the rows. To add an option: a field in struct config (config.h) and a row here; everything else follows. */
#include "conf/options.h"

#include <stdio.h>

#include "base/check.h"
#include "base/size.h"
#include "conf/config.h"

/* The offset of a field, refused by the compiler when the field is not of `type`. */
#define FIELD(type, field) (offsetof(struct config, field) + 0 * sizeof((type *)0 == &((struct config *)0)->field))

/* clang-format off */
#define BOOL(n, field, init, live, text) {.name = n, .initial = init, .help = text, .unit = "", .type = OPTION_BOOL, .reloadable = live, .offset = FIELD(bool, field)}
#define COUNT(n, field, init, lo, hi, u, live, text) {.name = n, .initial = init, .help = text, .unit = u, .type = OPTION_COUNT, .reloadable = live, .offset = FIELD(uint32_t, field), .min = lo, .max = hi}
#define BYTES(n, field, init, lo, hi, live, text) {.name = n, .initial = init, .help = text, .unit = "bytes", .type = OPTION_BYTES, .reloadable = live, .offset = FIELD(uint64_t, field), .min = lo, .max = hi}
#define BYTES32(n, field, init, lo, hi, live, text) {.name = n, .initial = init, .help = text, .unit = "bytes", .type = OPTION_BYTES32, .reloadable = live, .offset = FIELD(uint32_t, field), .min = lo, .max = hi}
#define TIME(n, field, init, lo, hi, live, text) {.name = n, .initial = init, .help = text, .unit = "time", .type = OPTION_DURATION, .reloadable = live, .offset = FIELD(uint64_t, field), .min = lo, .max = hi}
#define ENUM(n, field, init, w, live, text) {.name = n, .initial = init, .help = text, .unit = "", .type = OPTION_ENUM, .reloadable = live, .offset = FIELD(int, field), .words = w}
#define WORD(n, field, init, w, live, text) {.name = n, .initial = init, .help = text, .unit = "", .type = OPTION_WORD, .reloadable = live, .offset = FIELD(const char *, field), .words = w}
#define STRING(n, field, init, live, text) {.name = n, .initial = init, .help = text, .unit = "", .type = OPTION_STRING, .reloadable = live, .offset = FIELD(const char *, field), .max = 4095}
#define LIST(n, field, init, hi, live, check, ok, text) {.name = n, .initial = init, .help = text, .unit = "", .type = OPTION_LIST, .reloadable = live, .offset = FIELD(struct config_list, field), .max = hi, .valid = check, .accepts = ok}
/* clang-format on */

#define KIB     1024ull
#define MIB     (1024 * KIB)
#define GIB     (1024 * MIB)
#define TIB     (1024 * GIB)
#define MS      1000000ull
#define SEC     (1000 * MS)
#define HOUR    (3600 * SEC)
#define FIXED   false /* needs a restart */
#define LIVE    true  /* a reload applies it */
#define ADDRESS "HOST:PORT, [IPV6]:PORT, *:PORT or unix:/PATH"

static const char *const modes[] = {"none", "poll", "explicit", NULL};
static const char *const compats[] = {"none", "triton", "vllm", "all", NULL};
static const char *const levels[] = {"debug", "info", "warn", "error", "off", NULL};
static const char *const ort_levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const tls_versions[] = {"1.2", "1.3", NULL};
static const char *const client_auths[] = {"none", "optional", "required", NULL};
static const char *const listener_names[] = {"http", "metrics", "admin", NULL};
static const char *const sandboxes[] = {"off", "try", "require", NULL};
static const char *const formats[] = {"text", "json", NULL};
static const char *const graphs[] = {"none", "basic", "extended", "all", NULL};
static const char *const providers[] = {"cpu", "cuda", "tensorrt", "openvino", "xnnpack", NULL};

static bool is_load_name(struct str v)
{
    return str_eq(v, STR("*")) || str_is_model_name(v);
}

static bool is_listener(struct str v)
{
    for (size_t i = 0; listener_names[i]; i++)
        if (str_eqz(v, listener_names[i]))
            return true;
    return false;
}

static bool is_provider(struct str v)
{
    for (size_t i = 0; providers[i]; i++)
        if (str_eqz(v, providers[i]))
            return true;
    return false;
}

/* clang-format off */
static const struct option http_rows[] = {
    LIST("http.listen", http.listen, "127.0.0.1:8000", CONFIG_LISTEN_MAX, FIXED, config_listen_valid, ADDRESS, "Addresses of the inference API: HTTP/1.1, HTTP/2 and gRPC. Port 0 picks a free one."),
    COUNT("http.threads", http.threads, "0", 0, 256, "threads", FIXED, "I/O threads. 0: from the CPU quota."),
    COUNT("http.decode_threads", http.decode_threads, "0", 0, 64, "threads", FIXED, "Threads for decoding and encoding large bodies (JSON of more than 256 KiB) beside the I/O threads. 0: from the CPU quota, at most 4."),
    LIST("grpc.listen", grpc.listen, "127.0.0.1:8001", CONFIG_LISTEN_MAX, FIXED, config_listen_valid, ADDRESS, "More addresses of the same, where clients expect gRPC. Empty: none."),
};

static const struct option limit_rows[] = {
    COUNT("limits.max_connections", limits.max_connections, "16384", 1, 1000000, "connections", LIVE, "Open connections over all threads; past it a new one gets 503 and is closed."),
    COUNT("limits.max_connections_per_address", limits.max_connections_per_address, "0", 0, 1000000, "connections", LIVE, "Open connections of one client address (IPv6: of a /64); past it a new one is closed. 0: no limit. Trusted proxies are not counted."),
    COUNT("limits.max_handshakes_per_address", limits.max_handshakes_per_address, "0", 0, 1000000, "handshakes/s", LIVE, "TLS connections that one client address may begin a second, and as many at once; past it they are closed. 0: no limit."),
    COUNT("limits.max_tunnels", limits.max_tunnels, "4096", 0, 1000000, "connections", LIVE, "WebSockets at once (routes[].websocket), asked for or open; past it 503. 0: no limit."),
    BYTES32("limits.max_header_bytes", limits.max_header_bytes, "32KiB", 1 * KIB, 1 * MIB, LIVE, "All header lines of a request; past it 431."),
    COUNT("limits.max_headers", limits.max_headers, "100", 8, 1000, "headers", LIVE, "Header lines of a request; past it 431."),
    BYTES32("limits.max_url_bytes", limits.max_url_bytes, "8KiB", 256, 64 * KIB, LIVE, "Request target; past it 414."),
    BYTES("limits.max_body_bytes", limits.max_body_bytes, "64MiB", 1 * KIB, 1 * TIB, LIVE, "Request body, decompressed; past it 413."),
    BYTES("limits.max_body_memory", limits.max_body_memory, "1GiB", 0, 1 * TIB, LIVE, "Request bodies that the server holds at once; past it 503. 0: no limit."),
    COUNT("limits.max_inflate_ratio", limits.max_inflate_ratio, "100", 1, 100000, "times", LIVE, "Decompressed to compressed size of a body; past it 413."),
    COUNT("limits.max_pipeline", limits.max_pipeline, "16", 1, 1024, "requests", LIVE, "Pipelined requests of a connection that wait or run; past it reading pauses."),
    COUNT("limits.max_requests", limits.max_requests, "0", 0, 4294967295u, "requests", LIVE, "Requests of a connection before it is closed. 0: no limit."),
    TIME("limits.header_timeout", limits.header_timeout, "10s", 10 * MS, 1 * HOUR, LIVE, "From the first byte of a request to the end of its headers; past it 408."),
    TIME("limits.body_timeout", limits.body_timeout, "30s", 10 * MS, 24 * HOUR, LIVE, "From the headers to the end of the body, as long as it comes slower than min_body_rate; past it 408."),
    TIME("limits.idle_timeout", limits.idle_timeout, "75s", 10 * MS, 24 * HOUR, LIVE, "Between requests of a kept-alive connection."),
    TIME("limits.write_timeout", limits.write_timeout, "30s", 10 * MS, 24 * HOUR, LIVE, "Without progress while a reply is written; past it the connection is closed."),
    BYTES("limits.min_body_rate", limits.min_body_rate, "1KiB", 0, 1 * GIB, LIVE, "Bytes a second that a body must come at once body_timeout has passed. 0: none, the timeout is final."),
    COUNT("limits.http2_max_streams", limits.http2_max_streams, "128", 1, 65536, "streams", LIVE, "HTTP/2: requests of a connection at once; past it the stream is refused, and a connection that had acknowledged the limit ends."),
    BYTES32("limits.http2_window", limits.http2_window_bytes, "1MiB", 65535, 1 * GIB, LIVE, "HTTP/2: what a client may send on a stream ahead of its handler."),
    BYTES32("limits.http2_header_table", limits.http2_table_bytes, "4KiB", 0, 64 * KIB, LIVE, "HTTP/2: HPACK table of a connection, in each direction."),
    COUNT("limits.http2_max_continuations", limits.http2_max_continuations, "8", 1, 8, "frames", LIVE, "HTTP/2: CONTINUATION frames of a header block; past it the connection ends."),
    COUNT("limits.http2_glitches", limits.http2_glitches, "500", 10, 1000000, "glitches", LIVE, "HTTP/2: budget of a connection for what good clients do not do often (resets, empty frames, floods of control frames); spent, it ends with GOAWAY."),
    COUNT("limits.http2_glitch_rate", limits.http2_glitch_rate, "50", 0, 1000000, "glitches/s", LIVE, "HTTP/2: what that budget gets back a second."),
};

static const struct option repository_rows[] = {
    LIST("repository.paths", repository.paths, "", 64, FIXED, NULL, NULL, "Model repositories, or single model files or folders; also the arguments of `inferd serve`."),
    ENUM("repository.mode", repository.mode, "none", modes, FIXED, "none: load everything at start; poll: follow changes on disk; explicit: load and unload by API only."),
    LIST("repository.load", repository.load, "", 1024, FIXED, is_load_name, "a model name or *", "Models to load at start in explicit mode; * is all."),
    TIME("repository.poll_interval", repository.poll_interval, "1s", 100 * MS, 24 * HOUR, FIXED, "How often poll mode looks."),
    TIME("repository.poll_settle", repository.poll_settle, "2s", 0, 1 * HOUR, FIXED, "How long a change must have been stable before it counts (half-copied models)."),
    BYTES("repository.memory_limit", repository.memory_limit, "0", 0, 1024 * TIB, FIXED, "Loads that would take the process past it are refused. 0: from the cgroup or the machine."),
    COUNT("repository.loader_threads", repository.loader_threads, "2", 1, 16, "threads", FIXED, "Loads that may run at once."),
    TIME("repository.warmup_timeout", repository.warmup_timeout, "5m", 0, 24 * HOUR, FIXED, "A load whose warm-up takes longer fails. 0: no limit."),
    BOOL("repository.follow_symlinks", repository.follow_symlinks, "false", FIXED, "Allow links that lead out of the repository."),
    BOOL("repository.strict_readiness", repository.strict_readiness, "true", FIXED, "The server is ready only when every selected model is; else once the first pass over them is over."),
    LIST("models.seal_keys", models.seal_keys, "", 16, FIXED, NULL, NULL, "Files of keys for sealed model files, see docs/reference/sealed-models.md; read again by each load. $INFERD_SEAL_KEYS may hold more."),
    BOOL("models.require_sealed", models.require_sealed, "false", FIXED, "Refuse to load a model whose files are not sealed."),
    LIST("models.signature_keys", models.signature_keys, "", 16, FIXED, NULL, NULL, "PEM files of Ed25519 public keys; a version that has a signature is loaded only when one of them made it, and only the files that it lists."),
    BOOL("models.require_signature", models.require_signature, "false", FIXED, "Refuse to load a version without a signature."),
};

static const struct option scheduler_rows[] = {
    BYTES("scheduler.queue_bytes", scheduler.queue_bytes, "256MiB", 1 * MIB, 1 * TIB, FIXED, "Request data that all queues together may hold; past it 429."),
    TIME("scheduler.default_deadline", scheduler.default_deadline, "0", 0, 24 * HOUR, FIXED, "Deadline of requests that bring none, for models that declare none. 0: none."),
    TIME("scheduler.hang_timeout", scheduler.hang_timeout, "1m", 100 * MS, 24 * HOUR, FIXED, "An instance that runs one batch for longer is hung: its requests get 503. A model without another instance turns NOT READY, and its queue is answered."),
};

static const struct option engine_rows[] = {
    COUNT("compute.threads", compute.threads, "0", 0, 1024, "threads", FIXED, "Threads that all engines compute on. 0: from the CPU quota."),
    STRING("llm.adapter_path", llm.adapter_path, "", FIXED, "Folder that POST /v1/load_lora_adapter loads LoRA adapters from. Empty: none can be loaded."),
    STRING("onnxruntime.library", onnxruntime.library, "", FIXED, "Path of libonnxruntime.so. Empty: searched beside the binary and in the system's folders."),
    LIST("onnxruntime.providers", onnxruntime.providers, "cpu", 8, FIXED, is_provider, "cpu, cuda, tensorrt, openvino or xnnpack", "Execution providers in order of preference."),
    BOOL("onnxruntime.provider_fallback", onnxruntime.provider_fallback, "true", FIXED, "A provider that is not there is logged and skipped; false: loading fails."),
    WORD("onnxruntime.graph_optimization", onnxruntime.graph_optimization, "all", graphs, FIXED, "Graph optimisation level of models that do not name their own."),
    STRING("onnxruntime.cache_dir", onnxruntime.cache_dir, "", FIXED, "Folder of optimised models, for faster loads. Empty: off."),
    BYTES("onnxruntime.cache_bytes", onnxruntime.cache_bytes, "4GiB", 1 * MIB, 1024 * TIB, FIXED, "What cache_dir may hold; the least recently used go first."),
    BOOL("onnxruntime.spinning", onnxruntime.spinning, "false", FIXED, "Compute threads spin a while before they sleep: faster alone, wasteful beside others."),
    BOOL("onnxruntime.denormals_as_zero", onnxruntime.denormals_as_zero, "false", FIXED, "Treat denormal floats as zero: faster on some models, results may differ in the last bits."),
    WORD("onnxruntime.log_level", onnxruntime.log_level, "warn", ort_levels, FIXED, "The least important record of ONNX Runtime that is logged."),
};

static const struct option observe_rows[] = {
    LIST("metrics.listen", metrics.listen, "127.0.0.1:8002", CONFIG_LISTEN_MAX, FIXED, config_listen_valid, ADDRESS, "Addresses of GET /metrics. Empty: off."),
    ENUM("metrics.compat", metrics.compat, "none", compats, LIVE, "Names of others on the page: triton: nv_inference_*; vllm: vllm:* for language models; all: both."),
    ENUM("log.level", log.level, "info", levels, LIVE, "The least important record that is written."),
    ENUM("log.format", log.format, "text", formats, FIXED, "Form of a log record."),
    STRING("log.file", log.file, "", FIXED, "Log file, reopened on SIGUSR1. Empty: stderr."),
    STRING("access_log.file", access_log.file, "", FIXED, "One line per request, reopened on SIGUSR1. -: stdout; empty: off."),
    ENUM("access_log.format", access_log.format, "text", formats, FIXED, "Form of an access-log line."),
    COUNT("access_log.queue", access_log.queue, "8192", 64, 1048576, "records", FIXED, "Records that wait for a slow disk before they are dropped and counted."),
};

static const struct option auth_rows[] = {
    STRING("auth.keys_file", auth.keys_file, "", FIXED, "File of API keys, made by `inferd keys`; read again when it changes. Empty: no keys."),
    LIST("auth.open", auth.open, "live,ready,grpc_server_live,grpc_server_ready,grpc_health_check,grpc_health_watch", 64, FIXED, NULL, NULL, "Routes that ask for no credentials, by the names of docs/guide/security.md."),
    STRING("guard.file", guard.file, "", LIVE, "YAML file of input and output policies, see docs/guide/guards.md; read again at a reload. Empty: none."),
    STRING("overload.file", overload.file, "", FIXED, "YAML file of classes, limits, circuit breakers and fallbacks, see docs/guide/overload.md; read again at a reload. Empty: none."),
    STRING("quota.file", quota.file, "", FIXED, "YAML file of quota policies, see docs/guide/security.md. Empty: no quotas."),
    BOOL("quota.shared", quota.shared, "true", FIXED, "With redis.url: policies that don't say `shared:` are counted by all servers together."),
    COUNT("quota.replicas", quota.replicas, "0", 0, 65535, "servers", FIXED, "While the Redis is away each server admits this part of a shared limit. 0: as many as the Redis has seen alive."),
    TIME("quota.lease", quota.lease, "10s", 1 * SEC, 1 * HOUR, FIXED, "How long the Redis hears nothing of a server before others give back what its requests hold."),
    STRING("audit.file", audit.file, "", FIXED, "One JSON line per admin action and refused request, reopened on SIGUSR1. Empty: audit.log in state_dir; off: none."),
};

static const struct option redis_rows[] = {
    STRING("redis.url", redis.url, "", FIXED, "What servers share counts through: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS, unix:/PATH[?db=DB], redis+sentinel://HOST[:PORT],.../MASTER[/DB] for whoever sentinels name. Empty: nothing is shared."),
    STRING("redis.password_file", redis.password_file, "", FIXED, "File whose first line is the password, read at each connect; keeps it out of the configuration. Empty: the URL's."),
    STRING("redis.ca", redis.ca, "", FIXED, "PEM file of the authorities to believe behind rediss://. Empty: the system's."),
    STRING("redis.prefix", redis.prefix, "inferd", FIXED, "What all keys begin with, in braces; servers with the same one share. 1 to 64 of A-Z a-z 0-9 . _ -"),
    TIME("redis.deadline", redis.deadline, "50ms", 1 * MS, 1 * SEC, FIXED, "How long a request may wait for the Redis before it is judged without it."),
};

static const struct option jwt_rows[] = {
    STRING("jwt.keys", jwt.keys, "", FIXED, "The token issuer's public keys, a JWK set: a file, or an http:// or https:// URL that is asked again. Empty: no tokens are taken."),
    STRING("jwt.issuer", jwt.issuer, "", FIXED, "The `iss` that a token must have."),
    STRING("jwt.audience", jwt.audience, "", FIXED, "The `aud` that a token must have among its own."),
    STRING("jwt.scope_claim", jwt.scope_claim, "scope", FIXED, "The claim that holds infer, read or admin among its words."),
    STRING("jwt.scope_prefix", jwt.scope_prefix, "", FIXED, "What stands in front of our scopes there: `inferd:` for inferd:read."),
    STRING("jwt.tenant_claim", jwt.tenant_claim, "tenant", FIXED, "The claim that names the tenant; without it the tenant is `default`."),
    STRING("jwt.ca", jwt.ca, "", FIXED, "PEM file of the authorities to believe behind https://. Empty: the system's."),
    TIME("jwt.skew", jwt.skew, "30s", 0, 60 * SEC, FIXED, "How far the clocks of issuer and server may be apart."),
    TIME("jwt.refresh", jwt.refresh, "10m", 30 * SEC, 24 * HOUR, FIXED, "How often a URL is asked; an unknown key asks at once, but once in 30 s at most."),
};

static const struct option client_rows[] = {
    LIST("proxy.trusted", proxy.trusted, "", 64, FIXED, NULL, "an address or a network such as 10.0.0.0/8", "Proxies in front: from these, and only these, x-forwarded-for and the PROXY protocol name the client."),
    BOOL("proxy.protocol", proxy.protocol, "false", FIXED, "TCP connections to http.listen begin with a PROXY header (version 1 or 2), and only proxy.trusted may connect."),
    LIST("cors.origins", cors.origins, "", 64, FIXED, NULL, "https://HOST, https://*.DOMAIN or *", "Web pages whose scripts may use the server, by their origin. Empty: none."),
    TIME("cors.max_age", cors.max_age, "10m", 0, 24 * HOUR, FIXED, "How long browsers may remember what they were told before a request."),
};

static const struct option tls_rows[] = {
    LIST("tls.certificates", tls.certificates, "", 32, FIXED, NULL, NULL, "PEM files of certificates with their chains; chosen by the name a client asks for, else the first. Read again when they change. Empty: no TLS."),
    LIST("tls.keys", tls.keys, "", 32, FIXED, NULL, NULL, "PEM files of their private keys, in the same order. Empty: the keys are in the certificates' files."),
    LIST("tls.listeners", tls.listeners, "http", 3, FIXED, is_listener, "http, metrics or admin", "Listeners that speak TLS."),
    ENUM("tls.min_version", tls.min_version, "1.2", tls_versions, FIXED, "The oldest protocol that is spoken."),
    BOOL("tls.check_host", tls.check_host, "true", FIXED, "With several certificates: 421 where the Host is another certificate's than the one that SNI chose. false: for a proxy that names one server by SNI and passes other names on as Host."),
    STRING("tls.client_ca", tls.client_ca, "", FIXED, "PEM file of authorities for client certificates."),
    ENUM("tls.client_auth", tls.client_auth, "none", client_auths, FIXED, "Whether clients are asked for a certificate; optional: who has none may still show a key."),
    STRING("tls.crl", tls.crl, "", FIXED, "PEM file with the revocation list of every authority of clients. Empty: revocation is not checked."),
    TIME("tls.handshake_timeout", tls.handshake_timeout, "10s", 10 * MS, 1 * HOUR, LIVE, "From accepting a connection to the end of its handshake; past it it is closed."),
    TIME("tls.ticket_rotation", tls.ticket_rotation, "12h", 1 * SEC, 84 * HOUR, FIXED, "How often the key of session tickets changes; a session can be resumed for one to two of these."),
};

static const struct option operate_rows[] = {
    LIST("agent.listen", agent.listen, "", CONFIG_LISTEN_MAX, FIXED, config_listen_valid, ADDRESS, "Addresses where each connection is told in a line, as HAProxy's agent-check wants it, whether this server is up, loading or draining and what share of its weight it can take. Empty: off."),
    LIST("admin.listen", admin.listen, "", CONFIG_LISTEN_MAX, FIXED, config_listen_valid, ADDRESS, "Addresses of the admin API (reload, log level); usually 127.0.0.1:8003. Empty: off."),
    TIME("shutdown.grace", shutdown.grace, "0", 0, 1 * HOUR, LIVE, "After SIGTERM: how long to go on serving while readiness says no, so that balancers look away."),
    TIME("shutdown.drain_timeout", shutdown.drain_timeout, "30s", 0, 24 * HOUR, LIVE, "After the grace: how long running requests may take to finish."),
    STRING("zone", zone, "", FIXED, "The zone this process is in, as servers of `upstreams` name theirs. Empty: zones don't matter."),
    STRING("resolver", resolver, "", FIXED, "DNS server that is asked for the names of upstreams, as IPv4:port. Empty: the system's resolver."),
    BOOL("load_report", load_report, "true", FIXED, "Tell a balancer that asks (endpoint-load-metrics-format: text or json) how loaded this server is, in the answer's header endpoint-load-metrics."),
    BOOL("insecure", insecure, "false", FIXED, "Allow listeners off loopback although there is no authentication or TLS."),
    ENUM("sandbox.files", sandbox.files, "off", sandboxes, FIXED, "Give up all files but the system's and those that the configuration names, and the right to execute programs (Landlock). try: go on with a warning on a kernel without it; require: don't start."),
    LIST("sandbox.read", sandbox.read, "", 64, FIXED, NULL, NULL, "Further files and folders that may be read in the sandbox, such as targets of links in the repository."),
    LIST("sandbox.write", sandbox.write, "", 64, FIXED, NULL, NULL, "Further files and folders that may be written in the sandbox."),
    STRING("state_dir", state_dir, "", FIXED, "Folder for what should outlive the process (crash reports). Empty: $STATE_DIRECTORY, $XDG_STATE_HOME/inferd or ~/.local/state/inferd; -: none is written."),
};
/* clang-format on */

#define GROUP(id, text, r)                                                                                                     \
    {                                                                                                                          \
        .name = id, .title = text, .rows = r, .n = COUNT_OF(r)                                                                 \
    }

static const struct option_group groups[] = {
    GROUP("http", "HTTP", http_rows),
    GROUP("limits", "Limits of a client", limit_rows),
    GROUP("repository", "Models", repository_rows),
    GROUP("scheduler", "Queues and deadlines", scheduler_rows),
    GROUP("engines", "Engines", engine_rows),
    GROUP("observe", "Metrics and logs", observe_rows),
    GROUP("auth", "Who may do what", auth_rows),
    GROUP("redis", "What servers share", redis_rows),
    GROUP("client", "Proxies and web pages", client_rows),
    GROUP("jwt", "Tokens", jwt_rows),
    GROUP("tls", "TLS", tls_rows),
    GROUP("operate", "Operation", operate_rows),
};

static const struct option_alias aliases[] = {
    {"port", "http.listen", "127.0.0.1:%s", "http.listen on loopback with this port"},
    {"http-port", "http.listen", "127.0.0.1:%s", "the same, under Triton's name"},
    {"grpc-port", "grpc.listen", "127.0.0.1:%s", "grpc.listen on loopback with this port, under Triton's name"},
    {"metrics-port", "metrics.listen", "127.0.0.1:%s", "metrics.listen on loopback with this port"},
    {"admin-port", "admin.listen", "127.0.0.1:%s", "admin.listen on loopback with this port"},
    {"model-repository", "repository.paths", NULL, "Triton's name of repository.paths"},
    {"model-control-mode", "repository.mode", NULL, "Triton's name of repository.mode"},
    {"load-model", "repository.load", NULL, "Triton's name of repository.load"},
    {"log-level", "log.level", NULL, "log.level"},
};

#define ROWS                                                                                                                   \
    (COUNT_OF(http_rows) + COUNT_OF(limit_rows) + COUNT_OF(repository_rows) + COUNT_OF(scheduler_rows) +                       \
     COUNT_OF(engine_rows) + COUNT_OF(observe_rows) + COUNT_OF(auth_rows) + COUNT_OF(tls_rows) + COUNT_OF(jwt_rows) +          \
     COUNT_OF(redis_rows) + COUNT_OF(client_rows) + COUNT_OF(operate_rows))
static_assert(ROWS <= CONFIG_OPTIONS_MAX, "raise CONFIG_OPTIONS_MAX");

const struct option_group *option_groups(size_t *n)
{
    *n = COUNT_OF(groups);
    return groups;
}

const struct option_alias *option_aliases(size_t *n)
{
    *n = COUNT_OF(aliases);
    return aliases;
}

size_t option_count(void)
{
    return ROWS;
}

const struct option *option_at(size_t index)
{
    ASSERT(index < ROWS);
    size_t g = 0;
    while (index >= groups[g].n)
        index -= groups[g++].n;
    return &groups[g].rows[index];
}

size_t option_index(const struct option *row)
{
    size_t i = 0;
    while (option_at(i) != row)
        i++;
    return i;
}

const struct option *option_find(struct str name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (str_eqz(name, option_at(i)->name))
            return option_at(i);
    return NULL;
}

void option_suggest(struct suggest *s, bool flags)
{
    for (size_t i = 0; i < ROWS; i++)
        suggest_offer(s, option_at(i)->name);
    for (size_t i = 0; flags && i < COUNT_OF(aliases); i++)
        suggest_offer(s, aliases[i].flag);
}

struct unit {
    const char *name;
    uint64_t factor;
};

static const char *format_units(uint64_t v, const struct unit *units, size_t n, char *text, size_t cap)
{
    size_t i = 0;
    while (i + 1 < n && (v < units[i].factor || v % units[i].factor))
        i++;
    snprintf(text, cap, "%llu%s", (unsigned long long)(v / units[i].factor), v ? units[i].name : "");
    return text;
}

const char *option_format_bytes(uint64_t v, char *text, size_t cap)
{
    static const struct unit units[] = {{"TiB", TIB}, {"GiB", GIB}, {"MiB", MIB}, {"KiB", KIB}, {"", 1}};
    return format_units(v, units, COUNT_OF(units), text, cap);
}

const char *option_format_duration(uint64_t ns, char *text, size_t cap)
{
    static const struct unit units[] = {{"h", HOUR}, {"m", 60 * SEC}, {"s", SEC}, {"ms", MS}, {"us", 1000}, {"ns", 1}};
    return format_units(ns, units, COUNT_OF(units), text, cap);
}

static const char *accepts_words(const struct option *row, char *text, size_t cap)
{
    size_t at = 0;
    for (size_t i = 0; row->words[i] && at < cap; i++)
        at += (size_t)snprintf(text + at, cap - at, "%s%s", i == 0 ? "" : row->words[i + 1] ? ", " : " or ", row->words[i]);
    return text;
}

const char *option_accepts(const struct option *row, char *text, size_t cap)
{
    char lo[32], hi[32];
    switch (row->type) {
    case OPTION_BOOL:
        snprintf(text, cap, "true or false");
        break;
    case OPTION_COUNT:
        snprintf(text, cap, "a whole number in %llu..%llu", (unsigned long long)row->min, (unsigned long long)row->max);
        break;
    case OPTION_BYTES:
    case OPTION_BYTES32:
        snprintf(text, cap, "a size in %s..%s", option_format_bytes(row->min, lo, sizeof lo),
                 option_format_bytes(row->max, hi, sizeof hi));
        break;
    case OPTION_DURATION:
        snprintf(text, cap, "a time in %s..%s", option_format_duration(row->min, lo, sizeof lo),
                 option_format_duration(row->max, hi, sizeof hi));
        break;
    case OPTION_ENUM:
    case OPTION_WORD:
        return accepts_words(row, text, cap);
    case OPTION_STRING:
        snprintf(text, cap, "%s", row->accepts ? row->accepts : "text");
        break;
    case OPTION_LIST:
        snprintf(text, cap, "a list of at most %llu%s%s", (unsigned long long)row->max, row->accepts ? ", each " : "",
                 row->accepts ? row->accepts : "");
        break;
    }
    return text;
}
