/* openai_messages.c: a conversation as OpenAI's clients write it, to the variables of a chat template.
 *
 * Templates were written for Hugging Face's form of messages, which differs from what clients send: content is a string (parts are
 * joined), arguments of tool calls are objects, null is the empty string, "developer" is "system". Nothing here writes markers: the
 * template does, and the engine sees to it that no text of a message becomes one. Nothing is fetched: a part that is no text is
 * refused. */
#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"

struct conversation {
    struct gen_call *c;
    yyjson_mut_doc *doc;
    yyjson_mut_val *messages;
    struct error *err;
};

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
}

static int part_text(struct conversation *v, size_t at, size_t i, yyjson_val *part, struct str *out)
{
    struct str type = {0};
    if (yyjson_is_str(part)) {
        *out = json_str(part);
        return 0;
    }
    int rc = openai__str(v->c, part, "type", JSON_REQUIRED, &type, v->err);
    if (rc < 0)
        return rc;
    if (str_eqz(type, "text") || str_eqz(type, "input_text") || str_eqz(type, "output_text"))
        return openai__str(v->c, part, "text", JSON_REQUIRED, out, v->err);
    if (str_eqz(type, "refusal"))
        return openai__str(v->c, part, "refusal", JSON_REQUIRED, out, v->err);
    return openai__invalid(
        v->c, "messages", v->err,
        "messages[%zu].content[%zu] has type \"%.*s\"; this server's models read text only, and nothing that a "
        "request names is fetched",
        at, i, STR_ARG(type));
}

/* The content of message `at` as one string; null is empty. */
static int content_text(struct conversation *v, size_t at, yyjson_val *content, struct buf *out)
{
    size_t i, n;
    yyjson_val *part;
    struct str text;
    if (!content || yyjson_is_null(content))
        return 0;
    if (yyjson_is_str(content)) {
        buf_append_str(out, json_str(content));
        return 0;
    }
    if (!yyjson_is_arr(content))
        return openai__invalid(v->c, "messages", v->err, "messages[%zu].content must be a string or an array of parts, not %s",
                               at, json_type_name(content));
    yyjson_arr_foreach(content, i, n, part)
    {
        int rc = part_text(v, at, i, part, &text);
        if (rc < 0)
            return rc;
        buf_append_str(out, text);
    }
    return 0;
}

/* arguments: the string that OpenAI has becomes the object that templates want, where it is one. */
static void fix_arguments(struct conversation *v, yyjson_mut_val *function)
{
    yyjson_mut_val *a = yyjson_mut_obj_get(function, "arguments");
    struct json j;
    if (!yyjson_mut_is_str(a) || json_parse(&j, (struct str){yyjson_mut_get_str(a), yyjson_mut_get_len(a)}, NULL, NULL) < 0)
        return;
    yyjson_mut_val *object = yyjson_is_obj(j.root) ? yyjson_val_mut_copy(v->doc, j.root) : NULL;
    if (object)
        yyjson_mut_obj_replace(function, yyjson_mut_str(v->doc, "arguments"), object);
    json_release(&j);
}

static int fix_calls(struct conversation *v, size_t at, yyjson_mut_val *m)
{
    yyjson_mut_val *calls = yyjson_mut_obj_get(m, "tool_calls"), *call;
    size_t i, n;
    if (!calls || yyjson_mut_is_null(calls) || (yyjson_mut_is_arr(calls) && !yyjson_mut_arr_size(calls))) {
        yyjson_mut_obj_remove_key(m, "tool_calls");
        return 0;
    }
    if (!yyjson_mut_is_arr(calls))
        return openai__invalid(v->c, "messages", v->err, "messages[%zu].tool_calls must be an array", at);
    yyjson_mut_arr_foreach(calls, i, n, call)
    {
        yyjson_mut_val *function = yyjson_mut_obj_get(call, "function");
        if (!yyjson_mut_is_obj(function) || !yyjson_mut_is_str(yyjson_mut_obj_get(function, "name")))
            return openai__invalid(v->c, "messages", v->err, "messages[%zu].tool_calls[%zu] must have a function with a name",
                                   at, i);
        fix_arguments(v, function);
    }
    return 0;
}

static bool is_known_role(struct str role)
{
    static const char *const known[] = {"system", "developer", "user", "assistant", "tool", "function"};
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (str_eqz(role, known[i]))
            return true;
    return false;
}

static int add_message(struct conversation *v, size_t at, yyjson_val *from)
{
    struct str role;
    struct buf text;
    if (!yyjson_is_obj(from))
        return openai__invalid(v->c, "messages", v->err, "messages[%zu] must be an object, not %s", at, json_type_name(from));
    int rc = openai__str(v->c, from, "role", JSON_REQUIRED, &role, v->err);
    if (rc < 0)
        return rc;
    if (!is_known_role(role))
        return openai__invalid(v->c, "messages", v->err,
                               "messages[%zu].role is \"%.*s\"; accepted: system, developer, user, assistant, tool", at,
                               STR_ARG(role));
    yyjson_mut_val *m = yyjson_val_mut_copy(v->doc, from);
    buf_init(&text);
    rc = m ? content_text(v, at, yyjson_obj_get(from, "content"), &text) : no_memory(v->err);
    if (rc == 0) {
        yyjson_mut_val *content = yyjson_mut_strncpy(v->doc, text.p ? text.p : "", text.n);
        bool ok = content && !text.failed && yyjson_mut_obj_put(m, yyjson_mut_str(v->doc, "content"), content) &&
                  yyjson_mut_arr_append(v->messages, m);
        if (ok && str_eqz(role, "developer"))
            ok = yyjson_mut_obj_put(m, yyjson_mut_str(v->doc, "role"), yyjson_mut_str(v->doc, "system"));
        rc = ok ? fix_calls(v, at, m) : no_memory(v->err);
    }
    buf_release(&text);
    return rc;
}

static int add_messages(struct conversation *v)
{
    yyjson_val *list = NULL, *m;
    size_t i, n;
    int rc =
        generate__fault(v->c, json_get_arr(v->c->doc.root, "messages", JSON_REQUIRED, &list, NULL, v->err), "messages", NULL);
    if (rc == 0 && !yyjson_arr_size(list))
        return openai__invalid(v->c, "messages", v->err, "messages is empty; send at least one message");
    yyjson_arr_foreach(list, i, n, m)
    {
        if (rc == 0)
            rc = add_message(v, i, m);
    }
    return rc;
}

/* The template's other variables: chat_template_kwargs, and whether an answer is to begin. */
static int add_variables(struct conversation *v, yyjson_mut_val *root)
{
    yyjson_val *kwargs = NULL, *key, *value;
    size_t i, n;
    bool prompt = true, go_on = false, ok = true;
    struct gen_call *c = v->c;
    int rc = generate__fault(c, json_get_obj(c->doc.root, "chat_template_kwargs", JSON_OPTIONAL, &kwargs, NULL, v->err),
                             "chat_template_kwargs", NULL);
    if (rc == 0)
        rc = openai__bool(c, c->doc.root, "add_generation_prompt", &prompt, v->err);
    if (rc == 0)
        rc = openai__bool(c, c->doc.root, "continue_final_message", &go_on, v->err);
    if (rc < 0)
        return rc;
    if (go_on)
        return openai__invalid(c, "continue_final_message", v->err, "continue_final_message is not supported");
    yyjson_obj_foreach(kwargs, i, n, key, value)
    {
        yyjson_mut_val *k = yyjson_val_mut_copy(v->doc, key), *x = yyjson_val_mut_copy(v->doc, value);
        ok = ok && k && x && yyjson_mut_obj_put(root, k, x);
    }
    ok = ok && yyjson_mut_obj_put(root, yyjson_mut_str(v->doc, "messages"), v->messages) &&
         yyjson_mut_obj_put(root, yyjson_mut_str(v->doc, "add_generation_prompt"), yyjson_mut_bool(v->doc, prompt));
    return ok ? 0 : no_memory(v->err);
}

static int too_long(struct gen_call *c, int rc, size_t most, struct error *err)
{
    if (rc != STATUS_TOO_LARGE)
        return rc;
    error_set(
        err, STATUS_INVALID,
        "This model's maximum context length is %zu tokens. However, your messages resulted in more than %zu tokens. Please "
        "reduce the length of the messages.",
        model_version_contract(c->version)->context_tokens, most);
    return generate__fault(c, STATUS_INVALID, "messages", "context_length_exceeded");
}

static int encode(struct conversation *v)
{
    struct gen_call *c = v->c;
    const struct engine_ops *ops = model_version_ops(c->version);
    struct gen_prompt *p = &c->prompts[0];
    size_t n, most = model_version_contract(c->version)->context_tokens * 4 + 4096; /* counted exactly up to here */
    char *text = yyjson_mut_write(v->doc, 0, &n);
    int rc = text ? ops->chat(model_version_engine(c->version), (struct str){text, n}, most, &p->tokens, &p->n_tokens, v->err)
                  : no_memory(v->err);
    free(text);
    if (rc == STATUS_INVALID)
        generate__fault(c, rc, "messages", NULL);
    return too_long(c, rc, most, v->err);
}

int openai__messages(struct gen_call *c, struct error *err)
{
    struct conversation v = {.c = c, .doc = yyjson_mut_doc_new(NULL), .err = err};
    yyjson_mut_val *root = v.doc ? yyjson_mut_obj(v.doc) : NULL;
    v.messages = root ? yyjson_mut_arr(v.doc) : NULL;
    int rc = v.messages ? generate__prompts(c, 1, err) : no_memory(err);
    if (rc == 0 && !model_version_ops(c->version)->chat)
        rc = openai__invalid(c, "model", err, "model \"%.*s\" can't chat; use /v1/completions", STR_ARG(c->model));
    if (rc == 0) {
        yyjson_mut_doc_set_root(v.doc, root);
        rc = add_messages(&v);
    }
    if (rc == 0)
        rc = add_variables(&v, root);
    if (rc == 0)
        rc = encode(&v);
    yyjson_mut_doc_free(v.doc);
    return rc;
}
