/* kserve_grpc_priv.h: for api's own files: a gRPC call, how it is answered, and streams. */
#ifndef INFERD_API_KSERVE_GRPC_PRIV_H
#define INFERD_API_KSERVE_GRPC_PRIV_H

#include "api/api_priv.h"
#include "wire/coding.h"
#include "wire/grpc_frame.h"
#include "wire/protobuf.h"

/* What a call's metadata says; in the request's arena, at api_call.grpc. */
struct grpc_call {
    struct api *api;
    struct http_request *request;
    struct api_call *call;
    enum coding_kind coding; /* of the request's compressed messages */
    bool compress;           /* the answer too: the client takes that coding */
    uint64_t limit_bytes;    /* of a message, compressed or not */
    uint64_t deadline_ns;    /* SCHED_NEVER: none */
};

/* ---- kserve_grpc.c ---- */

/* Is it a gRPC call? By its content type, over HTTP/2. */
bool api__is_grpc(const struct http_request *r);
/* The call's metadata, once its route is known: on_headers of a gRPC call. INVALID, UNIMPLEMENTED, MEDIA_TYPE, NOMEM. */
int api__grpc_headers(struct api *a, struct http_request *r, struct api_call *call, struct error *err) MUST_CHECK;
/* http_handler.on_refuse for a gRPC call. */
void api__grpc_refuse(struct http_request *r, int http_status, const char *text, uint32_t retry_after_s);

/* A message to be sent: begin, append fields to `b`, then api__grpc_reply or api__grpc_frame. */
void api__grpc_begin(struct buf *b);
/* The finished message with its prefix, compressed where the call wants it; `b` is released. NOMEM. */
int api__grpc_frame(const struct grpc_call *g, struct buf *b, struct slice *out, struct error *err) MUST_CHECK;
/* The whole answer of a unary call: one message. `b` is released. */
void api__grpc_reply(struct grpc_call *g, struct buf *b);
/* The same, of pieces that make up the message with its prefix; their references are taken over. */
void api__grpc_reply_slices(struct grpc_call *g, bool compressed, struct slice *slices, size_t n);
/* The answer of a call that fails before it sent anything: status and text alone. `status` is an enum status. */
void api__grpc_fail(struct grpc_call *g, int status, const char *text, uint32_t retry_after_s);

/* Streams: send the head; then http_stream_write; then the end. */
void api__grpc_stream_begin(struct grpc_call *g, bool compressed, void (*on_writable)(struct http_request *r));
void api__grpc_stream_end(struct grpc_call *g, int status, const char *text);

/* ---- grpc_stream.c: the part that all streaming calls share ---- */

struct grpc_stream;

struct grpc_stream_ops {
    size_t bytes; /* of the struct that begins with a struct grpc_stream */
    /* A message came; its reference passes. Negative: the stream ends with that status. */
    int (*message)(struct grpc_stream *s, struct grpc_message *m, struct error *err);
    /* The client will send no more. */
    void (*input_end)(struct grpc_stream *s);
    /* Is it busy, so that no message should be taken? (optional) */
    bool (*busy)(const struct grpc_stream *s);
    /* Now and then, while it is open. (optional) */
    void (*tick)(struct grpc_stream *s);
    /* The client takes more again. (optional) */
    void (*writable)(struct grpc_stream *s);
    /* The stream has ended, however; nothing may be written any more: cancel what runs. (optional) */
    void (*over)(struct grpc_stream *s);
};

struct grpc_stream {
    struct grpc_call *g;
    const struct grpc_stream_ops *ops;
    struct grpc_reader reader;
    struct buf waiting; /* bytes that came while it was busy; not yet given back to the client's window */
    struct loop_timer timer;
    uint32_t running;    /* things under way that hold the request */
    uint64_t kept_bytes; /* of messages that they keep */
    bool feeding, input_ended, reading_ended, over, writable, complete;
};

/* on_request and on_body of streaming routes. */
void api__grpc_stream(struct api *a, struct http_request *r, struct api_call *call);
void api__grpc_stream_body(struct http_request *r, struct slice piece, bool last);
/* Send a message; its reference passes. */
void api__grpc_stream_send(struct grpc_stream *s, struct slice frame);
/* End it: OK, or with an error. Once. */
void api__grpc_stream_finish(struct grpc_stream *s, int status, const char *text);
/* Take what is waiting, as far as the stream isn't busy any more. */
void api__grpc_stream_resume(struct grpc_stream *s);
/* Something runs that will come back to the stream, and keeps `bytes` of a message: the request lives at least until the `release`, after
 * which the stream may be gone. */
void api__grpc_stream_hold(struct grpc_stream *s, uint64_t bytes);
void api__grpc_stream_release(struct grpc_stream *s, uint64_t bytes);

/* The reply is complete. True: something still runs, perhaps in another thread with the caller's identity and policies, and the last
 * `release` will end the call. */
bool api__grpc_stream_outlives(struct grpc_stream *s);

extern const struct grpc_stream_ops api__grpc_stream_infer; /* grpc_stream_infer.c */
extern const struct grpc_stream_ops api__grpc_health_watch; /* grpc_health.c */
extern const struct grpc_stream_ops api__grpc_reflection;   /* grpc_reflection.c */

/* ---- unary methods: read `message`, answer ---- */

typedef void (*grpc_method)(struct grpc_call *g, struct str message);
void api__grpc_unary(struct api *a, struct http_request *r, struct api_call *call);
void api__grpc_infer(struct api *a, struct http_request *r, struct api_call *call); /* kserve_grpc_infer.c */

void api__grpc_server_live(struct grpc_call *g, struct str message);
void api__grpc_server_ready(struct grpc_call *g, struct str message);
void api__grpc_model_ready(struct grpc_call *g, struct str message);
void api__grpc_server_metadata(struct grpc_call *g, struct str message);
void api__grpc_model_metadata(struct grpc_call *g, struct str message);
void api__grpc_model_config(struct grpc_call *g, struct str message);
void api__grpc_model_stats(struct grpc_call *g, struct str message);
void api__grpc_index(struct grpc_call *g, struct str message);
void api__grpc_load(struct grpc_call *g, struct str message);
void api__grpc_unload(struct grpc_call *g, struct str message);
void api__grpc_health_check(struct grpc_call *g, struct str message);

/* kserve_grpc_config.c: append a model's configuration as fields of ModelConfig. NOMEM, INTERNAL. */
struct model_version;
int api__grpc_append_config(struct buf *b, const struct model_version *v, struct error *err) MUST_CHECK;

/* A request of a `name` (field 1) and a `version` (field 2), checked to be spelled like ones and to be the caller's to know. Both may be
 * empty. INVALID, NOT_FOUND. */
int api__grpc_read_model(struct grpc_call *g, struct str message, struct str *name, struct str *version,
                         struct error *err) MUST_CHECK;
/* Is the name, and the version unless empty, spelled like one, and may the caller know it? NOT_FOUND. Any thread. */
int api__grpc_check_model(struct api_call *call, struct str name, struct str version, struct error *err) MUST_CHECK;

#endif
