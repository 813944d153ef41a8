/* kserve.h: the client's side of KServe v2 (Open Inference Protocol) over HTTP: what a model is, a request's bytes, an answer's
 * tensors. Pure but for the three functions that call a server. Used by `infer`, `models` and `bench`. */
#ifndef INFERD_CLI_KSERVE_H
#define INFERD_CLI_KSERVE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "cli/cli.h"
#include "net/http_client.h"
#include "tensor/tensor.h"

#define KSERVE_IO_MAX 64

struct kserve_io {
    struct str name;
    enum dtype dtype;
    struct shape shape; /* -1: any; with the batch axis */
    bool optional;
};

/* What GET /v2/models/{m} and its /config say. Strings live in the arena given. */
struct kserve_model {
    struct str name, versions, platform; /* versions: all that serve, with commas between */
    struct kserve_io inputs[KSERVE_IO_MAX], outputs[KSERVE_IO_MAX];
    size_t n_inputs, n_outputs;
    uint32_t max_batch; /* 0: axis 0 is no batch axis */
};

/* Read the metadata; `config` may be empty (then max_batch is 0 and no input is optional). INVALID names what is missing. */
int kserve_model_parse(struct str metadata, struct str config, struct arena *a, struct kserve_model *out,
                       struct error *err) MUST_CHECK;

struct kserve_request {
    const struct tensor *inputs;
    size_t n_inputs;
    bool json;                  /* tensors as JSON; else binary */
    const char *const *outputs; /* names; none: all */
    size_t n_outputs;
    uint32_t classes;              /* > 0: the outputs as this many classes each */
    const char *id;                /* NULL: none */
    uint64_t timeout_us, priority; /* 0: not sent */
};

/* Append the body. *header_bytes: value of Inference-Header-Content-Length, 0 when everything is JSON. The answer's outputs are asked
 * for in the same form as the inputs. INVALID: a tensor that JSON can't carry; NOMEM. */
int kserve_request_build(const struct kserve_request *r, const struct kserve_model *m, struct buf *body, size_t *header_bytes,
                         struct error *err) MUST_CHECK;

struct kserve_answer {
    struct str model_name, model_version, id;
    struct tensor outputs[KSERVE_IO_MAX]; /* names in the arena; release each with tensor_release */
    size_t n_outputs;
};

/* Read an answer of status 200; `header_bytes` as in its header, 0: all JSON. Binary data is borrowed from `body`. INVALID: not an
 * answer that the protocol allows. On error nothing is left to release. */
int kserve_answer_parse(struct str body, size_t header_bytes, struct arena *a, struct kserve_answer *out,
                        struct error *err) MUST_CHECK;
void kserve_answer_release(struct kserve_answer *a);

/* JSON data, flat or nested, into a slab that `t` owns; dtype and shape are set. INVALID when they don't fit. */
struct yyjson_val;
int kserve_json_data(struct yyjson_val *data, struct tensor *t, struct error *err) MUST_CHECK;

/* --- with a server --- */

/* The server that a client command talks to: --url and --timeout. */
struct kserve_server {
    const char *url;     /* default: $INFERD_URL, else http://127.0.0.1:8000 */
    uint64_t timeout_ns; /* of one call */
};
void kserve_server_init(struct kserve_server *s);
/* $INFERD_API_KEY, or NULL. From the environment only: a flag could be read by anybody who lists processes. */
const char *kserve_api_key(void);
/* What `infer` and `bench` are told alike about their requests. */
struct kserve_request_options {
    struct kserve_server server;
    struct cli_list data, shapes, outputs;
    const char *version; /* NULL: the model's default */
    uint64_t deadline_ns;
    bool zero;
};
/* clang-format off */
#define KSERVE_REQUEST_FLAGS(s, m) \
    CLI_FLAG_LIST(s, m.data, "data", 'D', "NAME=JSON", "Data of an input, as in ids=[[1,2,3]]. May be repeated."), \
    CLI_FLAG_LIST(s, m.shapes, "shape", 's', "NAME=DIMS", "Whole shape of an input without data, as in ids=1,128. May be repeated."), \
    CLI_FLAG_BOOL(s, m.zero, "zero", 0, "Zeros for inputs that have none."), \
    CLI_FLAG_LIST(s, m.outputs, "output", 'o', "NAME", "Only this output. May be repeated."), \
    CLI_FLAG_STRING(s, m.version, "version", 0, "VERSION", "Model version or label."), \
    CLI_FLAG_TIME(s, m.deadline_ns, "deadline", 0, 0, 0, "Send x-inferd-timeout-ms.")
#define KSERVE_SERVER_FLAGS(s, m) \
    CLI_FLAG_STRING(s, m.url, "url", 'u', "URL", "The server: http://host:port, https://host:port or unix:/path. Default: $INFERD_URL, else http://127.0.0.1:8000."), \
    CLI_FLAG_TIME(s, m.timeout_ns, "timeout", 0, 0.001, 86400, "How long one call may take.")
/* clang-format on */

/* The header that --deadline asks for; `text` has room for it. */
#define KSERVE_DEADLINE_BYTES 32
struct http_header kserve_deadline_header(uint64_t deadline_ns, char text[KSERVE_DEADLINE_BYTES]);

/* Connect, or say why not. The caller destroys *out. Blocks. */
int kserve_connect(const struct kserve_server *s, struct http_client **out, struct error *err) MUST_CHECK;

/* One call that must end in a status of 2xx; another one is an error whose text is the server's own. `headers` may be NULL. The answer is
 * borrowed until the next call. Blocks. */
int kserve_call(struct http_client *c, const char *method, const char *path, const struct http_header *headers,
                size_t n_headers, struct str body, struct http_client_answer *answer, struct error *err) MUST_CHECK;

/* Append "/v2/models/NAME[/versions/VERSION]", percent-encoded. */
void kserve_model_path(struct buf *out, const char *model, const char *version);

/* Ask for the model. NOT_FOUND and others as the server says. Blocks. */
int kserve_model_get(struct http_client *c, const char *model, const char *version, struct arena *a, struct kserve_model *out,
                     struct error *err) MUST_CHECK;

#endif
