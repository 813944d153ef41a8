/* kserve_call.c: calls to a KServe v2 server by the blocking client; errors are the server's own sentences. */
#include <stdlib.h>

#include "base/status.h"
#include "cli/kserve.h"
#include "wire/json.h"

static const char *from_environment(const char *name)
{
    const char *z = getenv(name);
    return z && *z ? z : NULL;
}

const char *kserve_api_key(void)
{
    return from_environment("INFERD_API_KEY");
}

void kserve_server_init(struct kserve_server *s)
{
    const char *url = from_environment("INFERD_URL");
    *s = (struct kserve_server){.url = url ? url : "http://127.0.0.1:8000", .timeout_ns = 60000000000ull};
}

int kserve_connect(const struct kserve_server *s, struct http_client **out, struct error *err)
{
    const struct http_client_options options = {.timeout_ns = s->timeout_ns,
                                                .max_body_bytes = (size_t)1 << 30,
                                                .api_key = kserve_api_key(),
                                                .ca_file = from_environment("INFERD_CA")};
    return http_client_create(s->url, &options, out, err);
}

/* Which of our codes an HTTP status is; only the text matters to people. */
static int status_of(int http)
{
    for (int s = -1; s > -STATUS_COUNT; s--)
        if (s != STATUS_AGAIN && status_http(s) == http)
            return s;
    return STATUS_INTERNAL;
}

static int server_error(const struct http_client_answer *a, struct error *err)
{
    struct json body;
    struct str text = STR("");
    int code = status_of(a->status);
    if (json_parse(&body, a->body, NULL, NULL) < 0)
        return error_set(err, code, "the server answers %d (%s)", a->status, http1_reason(a->status));
    if (json_get_str(body.root, "error", JSON_OPTIONAL, &text, NULL, NULL) == 0 && text.n)
        (void)error_set(err, code, "the server answers %d: %.*s%s", a->status, STR_ARG(text),
                        a->status == 401 ? "; this command sends the key in $INFERD_API_KEY" : "");
    else
        (void)error_set(err, code, "the server answers %d (%s)", a->status, http1_reason(a->status));
    json_release(&body);
    return code;
}

int kserve_call(struct http_client *c, const char *method, const char *path, const struct http_header *headers,
                size_t n_headers, struct str body, struct http_client_answer *answer, struct error *err)
{
    const struct http_client_request r = {
        .method = method, .path = path, .headers = headers, .n_headers = n_headers, .body = body};
    struct error why = {0};
    int rc = http_client_call(c, &r, answer, &why);
    if (rc == STATUS_UNAVAILABLE)
        return error_set(err, rc, "%.400s; is a server running there? --url or $INFERD_URL says where", why.text);
    if (rc < 0)
        return error_set(err, rc, "%s", why.text);
    return answer->status >= 200 && answer->status < 300 ? 0 : server_error(answer, err);
}

static void append_encoded(struct buf *out, const char *z)
{
    for (; *z; z++) {
        unsigned char ch = (unsigned char)*z;
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || strchr("._-~", ch);
        if (plain)
            buf_append_c(out, *z);
        else
            buf_printf(out, "%%%02X", ch);
    }
}

void kserve_model_path(struct buf *out, const char *model, const char *version)
{
    buf_append_z(out, "/v2/models/");
    append_encoded(out, model);
    if (version && *version) {
        buf_append_z(out, "/versions/");
        append_encoded(out, version);
    }
}

int kserve_model_get(struct http_client *c, const char *model, const char *version, struct arena *a, struct kserve_model *out,
                     struct error *err)
{
    struct http_client_answer answer;
    struct buf path, metadata;
    struct error config_err = {0};
    buf_init(&path);
    buf_init(&metadata);
    kserve_model_path(&path, model, version);
    int rc = kserve_call(c, "GET", buf_z(&path), NULL, 0, STR(""), &answer, err);
    if (rc == 0) {
        buf_append_str(&metadata, answer.body); /* the next call reuses the answer's memory */
        buf_append_z(&path, "/config");
        /* servers of the plain protocol have no /config: then nothing is known of batching */
        bool config = kserve_call(c, "GET", buf_z(&path), NULL, 0, STR(""), &answer, &config_err) == 0;
        rc = kserve_model_parse(buf_str(&metadata), config ? answer.body : STR(""), a, out, err);
    }
    buf_release(&path);
    buf_release(&metadata);
    return rc;
}

struct http_header kserve_deadline_header(uint64_t deadline_ns, char text[KSERVE_DEADLINE_BYTES])
{
    snprintf(text, KSERVE_DEADLINE_BYTES, "%.9g", (double)deadline_ns * 1e-6);
    return (struct http_header){STR("x-inferd-timeout-ms"), str_of(text)};
}
