/* kserve_grpc_generate.c: language models over ModelInfer and ModelStreamInfer, with the tensors that Triton's vLLM backend has.
 *
 *   in:  text_input BYTES [1]; stream BOOL [1], sampling_parameters BYTES [1] (a JSON object of OpenAI's and vLLM's names), and
 *        exclude_input_in_output, return_finish_reason, return_num_input_tokens, return_num_output_tokens BOOL [1], all optional
 *   out: text_output BYTES [1]; finish_reason BYTES [1], num_input_tokens and num_output_tokens UINT32 [1] where they were asked for
 *
 * With `stream`, which takes a stream, text leaves in parts as it is made; the last message has the parameter triton_final_response: true.
 * Differences to that backend: the prompt is in front of the answer only where exclude_input_in_output is false, and ModelInfer
 * is answered (with the whole text) where Triton refuses it for models that may answer several times. */
#include <string.h>

#include "api/guard.h"
#include "api/kserve_grpc_infer_priv.h"
#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"
#include "conf/model_config.h"
#include "tensor/infer_proto.h"

enum { RESPONSE_MODEL = 1, RESPONSE_VERSION = 2, RESPONSE_PARAMETERS = 4, RESPONSE_OUTPUTS = 5, RESPONSE_RAW = 6 };
enum { OUTPUT_NAME = 1, OUTPUT_DATATYPE = 2, OUTPUT_SHAPE = 3 };
enum { MAP_KEY = 1, MAP_VALUE = 2, PARAMETER_BOOL = 1 };

struct grpc_generate {
    struct infer_proto m; /* holds the message's tensors */
    struct openai_reply reply;
    struct str prompt, sampling;
    bool stream, exclude, finish_reason, n_input, n_output;
    bool begun;
    struct buf text;
    uint32_t n_made, n_reported; /* tokens since the last message; up to it */
    enum token_finish finish;
};

static struct grpc_generate *generate_of(const struct gen_call *c)
{
    return c->state;
}

static const struct grpc_infer *message_of(const struct gen_call *c)
{
    return CONTAINER_OF(c->at, struct grpc_infer, generation);
}

/* Is it ModelInfer's, or one of a stream's? */
static bool is_alone(const struct gen_call *c)
{
    return c->call->gen == c;
}

/* ---- prepare ---- */

static int wrong_input(const struct tensor *t, const char *what, struct error *err)
{
    return error_set(err, STATUS_INVALID, "input \"%.*s\" must be %s with one element", STR_ARG(t->name), what);
}

static int take_text(const struct tensor *t, struct str *out, struct error *err)
{
    uint64_t n = 0;
    if (t->dtype != DTYPE_BYTES || !shape_elements(&t->shape, &n) || n != 1)
        return wrong_input(t, "BYTES", err);
    *out = (struct str){(const char *)t->data.p + 4, t->data.n - 4}; /* behind its length, which was checked */
    for (size_t at = 0, n_char; at < out->n; at += n_char)
        if (!(n_char = str_utf8_at(*out, at)))
            return error_set(err, STATUS_INVALID, "input \"%.*s\" is not UTF-8 at byte %zu", STR_ARG(t->name), at);
    return 0;
}

static int take_flag(const struct tensor *t, bool *out, struct error *err)
{
    uint64_t n = 0;
    if (t->dtype != DTYPE_BOOL || !shape_elements(&t->shape, &n) || n != 1)
        return wrong_input(t, "BOOL", err);
    *out = t->data.p[0] != 0;
    return 0;
}

static int take_input(struct grpc_generate *g, const struct tensor *t, struct error *err)
{
    const struct {
        const char *name;
        struct str *text;
        bool *flag;
    } rows[] = {{"text_input", &g->prompt, NULL},
                {"sampling_parameters", &g->sampling, NULL},
                {"stream", NULL, &g->stream},
                {"exclude_input_in_output", NULL, &g->exclude},
                {"return_finish_reason", NULL, &g->finish_reason},
                {"return_num_input_tokens", NULL, &g->n_input},
                {"return_num_output_tokens", NULL, &g->n_output}};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (str_eqz(t->name, rows[i].name))
            return rows[i].text ? take_text(t, rows[i].text, err) : take_flag(t, rows[i].flag, err);
    return error_set(
        err, STATUS_INVALID,
        "unknown input \"%.*s\"; a language model takes text_input, stream, sampling_parameters, exclude_input_in_output, "
        "return_finish_reason, return_num_input_tokens, return_num_output_tokens",
        STR_ARG(t->name));
}

static int check_outputs(const struct infer_json *in, struct error *err)
{
    for (size_t i = 0; i < in->n_outputs; i++) {
        struct str name = in->outputs[i].name;
        if (!str_eqz(name, "text_output") && !str_eqz(name, "finish_reason") && !str_eqz(name, "num_input_tokens") &&
            !str_eqz(name, "num_output_tokens"))
            return error_set(err, STATUS_INVALID,
                             "unknown output \"%.*s\"; a language model gives text_output, finish_reason, num_input_tokens, "
                             "num_output_tokens",
                             STR_ARG(name));
    }
    return 0;
}

static int take_inputs(struct gen_call *c, struct grpc_generate *g, struct error *err)
{
    int rc = check_outputs(&g->m.request, err);
    g->exclude = true;
    for (size_t i = 0; rc == 0 && i < g->m.request.n_inputs; i++)
        rc = take_input(g, &g->m.request.inputs[i], err);
    if (rc == 0 && !g->prompt.p)
        rc = error_set(err, STATUS_INVALID, "the request has no input text_input");
    if (rc == 0 && g->stream && is_alone(c))
        rc = error_set(err, STATUS_INVALID, "stream is true: ModelInfer has one answer, use ModelStreamInfer");
    if (rc == 0 && g->stream && !g->exclude)
        rc = error_set(err, STATUS_INVALID, "exclude_input_in_output is false: a streamed answer can't begin with its prompt");
    return rc;
}

/* sampling_parameters as the object that openai_params.c reads. */
static int take_sampling(struct gen_call *c, struct grpc_generate *g, struct error *err)
{
    struct error why = {0};
    int rc = json_parse(&c->doc, g->sampling.n ? g->sampling : STR("{}"), NULL, &why);
    if (rc == STATUS_NOMEM)
        return error_set(err, rc, "%s", why.text);
    if (rc < 0)
        return error_set(err, STATUS_INVALID, "sampling_parameters: %s", why.text);
    if (!yyjson_is_obj(c->doc.root))
        return error_set(err, STATUS_INVALID, "sampling_parameters is %s; send a JSON object", json_type_name(c->doc.root));
    c->fields = c->doc.root;
    return 0;
}

static void set_deadline(struct gen_call *c, const struct grpc_infer *q, uint64_t timeout_us)
{
    uint64_t ms = model_version_config(c->version)->default_deadline_ms, ns, at;
    c->deadline_ns = q->g->deadline_ns;
    if (ms && !__builtin_mul_overflow(ms, (uint64_t)1000000, &ns) && !__builtin_add_overflow(ns, c->received_ns, &at))
        c->deadline_ns = MIN_OF(c->deadline_ns, at);
    if (timeout_us && !__builtin_mul_overflow(timeout_us, (uint64_t)1000, &ns) &&
        !__builtin_add_overflow(ns, c->received_ns, &at))
        c->deadline_ns = MIN_OF(c->deadline_ns, at);
}

static int take_parameters(struct gen_call *c, struct grpc_generate *g, const struct grpc_infer *q, struct error *err)
{
    set_deadline(c, q, g->m.request.timeout_us);
    int rc = openai__sampling(c, &g->reply, false, err);
    if (rc == 0)
        rc = openai__constraints(c, err);
    if (rc == 0 && c->params.n != 1)
        rc = openai__invalid(c, "n", err, "n is %u; a request over gRPC has one answer", c->params.n);
    if (rc == 0 && g->m.request.priority)
        c->priority = (int)MIN_OF(g->m.request.priority, 1000u);
    return rc;
}

static int prepare(struct gen_call *c, struct error *err)
{
    const struct grpc_infer *q = message_of(c);
    struct grpc_generate *g = ARENA_NEW(&c->arena, struct grpc_generate);
    if (!g)
        return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
    c->state = g;
    int rc = infer_proto_decode(q->plain.p ? q->plain : q->message.data, &c->arena, NULL, &g->m, err);
    if (rc < 0)
        return rc;
    rc = take_inputs(c, g, err);
    c->stream = g->stream;
    if (rc == 0)
        rc = take_sampling(c, g, err);
    if (rc == 0)
        rc = generate__find(c, g->m.model_name, g->m.model_version, err);
    if (rc == 0)
        rc = take_parameters(c, g, q, err);
    if (rc == 0)
        rc = generate__prompts(c, 1, err);
    return rc ? rc : generate__tokenize(c, g->prompt, 0, err);
}

static void release(struct gen_call *c)
{
    struct grpc_generate *g = generate_of(c);
    if (!g)
        return;
    infer_proto_release(&g->m);
    buf_release(&g->text);
}

/* ---- reply ---- */

static void put_output(struct buf *b, const char *name, const char *datatype)
{
    const int64_t one = 1;
    size_t opened = pb_open_message(b, RESPONSE_OUTPUTS);
    pb_put_str(b, OUTPUT_NAME, str_of(name));
    pb_put_str(b, OUTPUT_DATATYPE, str_of(datatype));
    pb_put_packed_i64(b, OUTPUT_SHAPE, &one, 1);
    pb_close_message(b, opened);
}

static void append_u32(struct buf *b, uint32_t v)
{
    const uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    buf_append(b, bytes, sizeof bytes);
}

static void put_raw_text(struct buf *b, struct str text)
{
    pb_append_tag(b, RESPONSE_RAW, PB_LEN);
    pb_append_varint(b, text.n + 4);
    append_u32(b, (uint32_t)text.n);
    buf_append_str(b, text);
}

static void put_raw_u32(struct buf *b, uint32_t v)
{
    pb_append_tag(b, RESPONSE_RAW, PB_LEN);
    pb_append_varint(b, 4);
    append_u32(b, v);
}

static void put_final(struct buf *b, bool final)
{
    size_t entry = pb_open_message(b, RESPONSE_PARAMETERS);
    pb_put_str(b, MAP_KEY, STR("triton_final_response"));
    size_t value = pb_open_message(b, MAP_VALUE);
    pb_append_u64(b, PARAMETER_BOOL, final); /* of a oneof: written although false */
    pb_close_message(b, value);
    pb_close_message(b, entry);
}

/* `u`: NULL while it goes on. */
static void put_response(struct gen_call *c, const struct token_usage *u)
{
    struct grpc_generate *g = generate_of(c);
    struct buf *b = &c->out;
    uint32_t made = u ? u->generated_tok - g->n_reported : g->n_made; /* in the end, with what gave no text */
    pb_put_str(b, RESPONSE_MODEL, model_version_model(c->version));
    pb_put_str(b, RESPONSE_VERSION, model_version_version(c->version));
    pb_put_str(b, RESPONSE_ID, g->m.request.id);
    if (!is_alone(c))
        put_final(b, u != NULL);
    put_output(b, "text_output", "BYTES");
    if (g->finish_reason)
        put_output(b, "finish_reason", "BYTES");
    if (g->n_input)
        put_output(b, "num_input_tokens", "UINT32");
    if (g->n_output)
        put_output(b, "num_output_tokens", "UINT32");
    put_raw_text(b, buf_str(&g->text));
    if (g->finish_reason)
        put_raw_text(b, u ? str_of(openai__finish_name(g->finish)) : (struct str){0});
    if (g->n_input)
        put_raw_u32(b, (uint32_t)c->prompts[0].n_tokens);
    if (g->n_output)
        put_raw_u32(b, made);
    g->n_reported += made;
    g->n_made = 0;
}

/* One message with its prefix; in a stream, the response is a member of it. */
static void put_message(struct gen_call *c, const struct token_usage *u)
{
    struct grpc_generate *g = generate_of(c);
    struct buf *b = &c->out;
    size_t at = b->n, response = 0;
    buf_append(b, (const char[GRPC_PREFIX_BYTES]){0}, GRPC_PREFIX_BYTES);
    if (!is_alone(c))
        response = pb_open_message(b, STREAM_RESPONSE);
    put_response(c, u);
    if (!is_alone(c))
        pb_close_message(b, response);
    b->failed |= g->text.failed;
    if (!b->failed)
        grpc_prefix_write((uint8_t *)b->p + at, false, (uint32_t)(b->n - at - GRPC_PREFIX_BYTES));
    buf_clear(&g->text);
}

/* In front of the answer, where it is wanted. */
static void put_prompt(struct grpc_generate *g)
{
    if (!g->exclude && !g->begun)
        buf_append_str(&g->text, g->prompt);
    g->begun = true;
}

static void on_piece(void *ctx, enum calls_piece kind, struct str text)
{
    (void)kind;
    buf_append_str(ctx, text);
}

static void on_event(struct gen_call *c, const struct gen_event *ev)
{
    struct grpc_generate *g = generate_of(c);
    const struct calls_sink sink = {on_piece, &g->text};
    put_prompt(g);
    g->n_made += (uint32_t)ev->n_tokens;
    int finish = generate__push(c, ev, NULL, &sink);
    if (finish != TOKEN_FINISH_NONE)
        g->finish = (enum token_finish)finish;
    else if (c->stream && g->text.n)
        put_message(c, NULL);
    c->out.failed |= g->text.failed;
}

static void on_end(struct gen_call *c)
{
    struct grpc_generate *g = generate_of(c);
    struct token_usage u = generate__usage(c);
    put_prompt(g);
    put_message(c, &u);
}

void api__grpc_generate(struct grpc_infer *q, const struct gen_carrier *carrier, void *owner, bool alone)
{
    static const struct gen_protocol protocol = {
        .prepare = prepare, .event = on_event, .end = on_end, .release = release, .prompt_field = "text_input"};
    generate__start_carried(q->g->api, q->g->request, q->g->call, &protocol, carrier, owner, &q->generation, alone);
}
