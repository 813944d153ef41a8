/* chat.c: from a conversation to prompt tokens, by the template that the model brings.
 *
 * Templates are compiled at load, so one that uses what the interpreter lacks is found there: the model then loads, says in its log
 * and in each answer why it can't chat, and completes plain prompts. Rendering gives spans (text/chat_template.h): what the template
 * wrote may become control tokens, what came with the request never does. A vocabulary with ChatML's markers and no template is
 * served with ChatML. */
#include <math.h>
#include <stdlib.h>

#include "base/status.h"
#include "engine/llm/engine_priv.h"
#include "os/clock.h"
#include "text/chat_template.h"
#include "wire/json.h"

#define NS_PER_S 1000000000ull

struct llm_chat {
    struct chat_template *plain, *tools; /* tools: NULL where one template does both */
    char reason[ERROR_TEXT_BYTES + 256];
};

static const char chatml[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* ---- load ---- */

static struct str template_of(const struct engine_model *m)
{
    const struct model_desc *d = m->weights->desc;
    if (d->chat_template.n)
        return d->chat_template;
    return tokenizer_find(m->tokenizer, STR("<|im_start|>")) != TOKEN_NONE ? str_of(chatml) : (struct str){0};
}

static void no_chat(struct engine_model *m, const char *why)
{
    snprintf(m->chat->reason, sizeof m->chat->reason, "model \"%.128s\" can't chat: %.300s; use /v1/completions", m->name, why);
    m->text_facts.chat_error = m->chat->reason;
}

static void compile(struct engine_model *m, struct str source, struct chat_template **out)
{
    struct error err = {0};
    if (chat_template_compile(source, out, &err) == 0)
        return;
    LOG(m->log, LOG_WARN, "chat_template_unusable", LOG_S("model", m->name), LOG_S("reason", err.text));
    no_chat(m, err.text);
}

/* The model's own defaults where its file gives them. */
static void fill_defaults(struct engine_model *m)
{
    const struct model_desc *d = m->weights->desc;
    struct token_params *p = &m->text_facts.defaults;
    sampler_params_default(p);
    p->temperature = isnan(d->temperature) ? p->temperature : d->temperature;
    p->top_p = isnan(d->top_p) || d->top_p == 0 ? p->top_p : d->top_p;
    p->min_p = isnan(d->min_p) ? p->min_p : d->min_p;
    p->repetition_penalty =
        isnan(d->repetition_penalty) || d->repetition_penalty == 0 ? p->repetition_penalty : d->repetition_penalty;
    p->top_k = d->top_k ? d->top_k : p->top_k;
}

static void fill_facts(struct engine_model *m)
{
    struct llm_chat *c = m->chat;
    const struct model_desc *d = m->weights->desc;
    struct chat_template_caps caps;
    if (m->text_facts.chat_error)
        return;
    chat_template_probe(c->tools ? c->tools : c->plain, &caps);
    m->text_facts.chat_template = c->tools ? d->chat_template_tools : template_of(m);
    m->text_facts.chat_tools = caps.tools;
    m->text_facts.chat_tool_calls = caps.tool_calls;
    m->text_facts.chat_tool_responses = caps.tool_responses;
    m->text_facts.chat_system = caps.system_role;
    m->text_facts.chat_parts = caps.content_parts;
    m->text_facts.chat_thinking = caps.thinking;
    m->text_facts.chat_parallel_calls = caps.parallel_tool_calls;
}

int llm_chat_open(struct engine_model *m, struct error *err)
{
    m->chat = calloc(1, sizeof *m->chat);
    if (!m->chat)
        return error_set(err, STATUS_NOMEM, "no memory for the model's chat template");
    struct str source = template_of(m), tools = m->weights->desc->chat_template_tools;
    fill_defaults(m);
    if (source.n)
        compile(m, source, &m->chat->plain);
    else
        no_chat(m, "its file has no chat template");
    if (source.n && tools.n && !m->text_facts.chat_error)
        compile(m, tools, &m->chat->tools);
    fill_facts(m);
    return 0;
}

void llm_chat_close(struct engine_model *m)
{
    if (!m->chat)
        return;
    chat_template_destroy(m->chat->plain);
    chat_template_destroy(m->chat->tools);
    free(m->chat);
    m->chat = NULL;
}

const struct engine_text *llm_text(const struct engine_model *m)
{
    return &m->text_facts;
}

/* ---- a conversation ---- */

static bool add_token_text(yyjson_mut_doc *doc, yyjson_mut_val *root, const char *key, const struct tokenizer *t, int32_t id)
{
    struct str s = id == TOKEN_NONE ? (struct str){"", 0} : tokenizer_bytes(t, id, true);
    yyjson_mut_val *v = yyjson_mut_strncpy(doc, s.p ? s.p : "", s.n);
    return v && yyjson_mut_obj_put(root, yyjson_mut_str(doc, key), v);
}

/* The request's variables and the model's own, as one document. */
static yyjson_doc *complete_args(const struct engine_model *m, yyjson_doc *args)
{
    yyjson_mut_doc *doc = yyjson_doc_mut_copy(args, NULL);
    yyjson_mut_val *root = doc ? yyjson_mut_doc_get_root(doc) : NULL;
    yyjson_doc *out = NULL;
    if (root && add_token_text(doc, root, "bos_token", m->tokenizer, tokenizer_bos(m->tokenizer)) &&
        add_token_text(doc, root, "eos_token", m->tokenizer, tokenizer_eos(m->tokenizer)))
        out = yyjson_mut_doc_imut_copy(doc, NULL);
    yyjson_mut_doc_free(doc);
    return out;
}

static int render(const struct engine_model *m, yyjson_val *args, size_t max_tok, struct token_list *list, struct error *err)
{
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    const struct llm_chat *c = m->chat;
    bool tools = c->tools && yyjson_arr_size(yyjson_obj_get(args, "tools")) > 0;
    struct text_span *spans;
    size_t n_spans;
    struct arena a;
    arena_init(&a, 16384, 0);
    int rc = chat_template_render(tools ? c->tools : c->plain, args, trusted, (int64_t)(os_wall_ns() / NS_PER_S), NULL, &a,
                                  &spans, &n_spans, err);
    if (rc == STATUS_EXHAUSTED) /* a limit of the sandbox: this conversation's fault, not the moment's */
        rc = err->code = STATUS_INVALID;
    if (rc == 0)
        rc = tokenizer_encode(m->tokenizer, spans, n_spans, false, max_tok, list, err);
    arena_release(&a);
    return rc;
}

int llm_chat(struct engine_model *m, struct str args, size_t max_tok, int32_t **tokens, size_t *n, struct error *err)
{
    struct token_list list = {0};
    struct json j;
    if (m->text_facts.chat_error)
        return error_set(err, STATUS_INVALID, "%s", m->text_facts.chat_error);
    int rc = json_parse(&j, args, NULL, err);
    if (rc < 0)
        return rc;
    yyjson_doc *whole = yyjson_is_obj(j.root) ? complete_args(m, j.doc) : NULL;
    json_release(&j);
    rc = whole ? render(m, yyjson_doc_get_root(whole), max_tok, &list, err)
               : error_set(err, STATUS_NOMEM, "no memory for the conversation");
    yyjson_doc_free(whole);
    if (rc < 0) {
        token_list_release(&list);
        return rc;
    }
    *tokens = list.v;
    *n = list.n;
    return 0;
}
