/* openai_json.c: pieces of JSON that several of OpenAI's replies share, and the shape of its errors. */
#include <math.h>

#include "api/openai_priv.h"
#include "base/status.h"

const char *openai__finish_name(enum token_finish f)
{
    return f == TOKEN_FINISH_LENGTH ? "length" : f == TOKEN_FINISH_FILTERED ? "content_filter" : "stop";
}

void openai__member(struct buf *out, const char *key, struct str text)
{
    buf_printf(out, "\"%s\":", key);
    buf_append_json_str(out, text);
}

void openai__usage(struct buf *out, const struct token_usage *u)
{
    buf_printf(out,
               "{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%llu,\"prompt_tokens_details\":"
               "{\"cached_tokens\":%u}}",
               u->prompt_tok, u->generated_tok, (unsigned long long)u->prompt_tok + u->generated_tok, u->cached_tok);
}

/* A token of no probability has none that JSON could say; -9999 is what OpenAI answers. */
static double sayable(float logprob)
{
    return isfinite(logprob) && logprob > -9999 ? (double)logprob : -9999.0;
}

static void append_token(struct buf *out, const struct token_logprob *lp)
{
    buf_append_c(out, '{');
    openai__member(out, "token", lp->bytes);
    buf_printf(out, ",\"logprob\":%.9g,\"bytes\":[", sayable(lp->logprob));
    for (size_t i = 0; i < lp->bytes.n; i++)
        buf_printf(out, i ? ",%u" : "%u", (unsigned char)lp->bytes.p[i]);
    buf_append_c(out, ']');
}

void openai__logprobs(struct buf *out, const struct gen_event *ev, uint32_t row)
{
    for (size_t i = 0; i < ev->n_tokens; i++) {
        const struct token_logprob *lp = ev->logprobs + i * row;
        if (i)
            buf_append_c(out, ',');
        append_token(out, lp);
        buf_append_z(out, ",\"top_logprobs\":[");
        for (uint32_t k = 1; k < row && lp[k].id >= 0; k++) {
            if (k > 1)
                buf_append_c(out, ',');
            append_token(out, &lp[k]);
            buf_append_c(out, '}');
        }
        buf_append_z(out, "]}");
    }
}

static const char *error_type(int http_status)
{
    switch (http_status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 429:
        return "rate_limit_error";
    default:
        return http_status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void api__openai_error(struct buf *body, int http_status, const char *text, const char *param, const char *code)
{
    buf_append_z(body, "{\"error\":{");
    openai__member(body, "message", str_of(text));
    buf_append_c(body, ',');
    openai__member(body, "type", str_of(error_type(http_status)));
    buf_append_z(body, ",\"param\":");
    param ? buf_append_json_str(body, str_of(param)) : buf_append_z(body, "null");
    buf_append_z(body, ",\"code\":");
    code ? buf_append_json_str(body, str_of(code)) : buf_append_z(body, "null");
    buf_append_z(body, "}}");
}

bool api__is_openai(const struct http_request *r)
{
    return str_starts(r->path, STR("/v1/")) || str_eqz(r->path, "/tokenize") || str_eqz(r->path, "/detokenize") ||
           str_eqz(r->path, "/rerank");
}
