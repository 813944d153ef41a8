/* openai_messages.c: a conversation as OpenAI's clients write it, to the variables of a chat template.
 *
 * Templates were written for Hugging Face's form of messages, which differs from what clients send: content is a string (parts are
 * joined), arguments of tool calls are objects, null is the empty string, "developer" is "system". What a template can't show (the
 * engine has probed it) is said in words: tools in the system message, calls and results in Hermes' form, a system message in front of
 * the first question. The engine sees to it that no text of a message becomes a control token. Nothing is fetched: a part that is no
 * text is refused. */
#include <stdlib.h>

#include "api/guard.h"
#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"

struct conversation {
    struct gen_call *c;
    struct openai_format *f;         /* may be NULL */
    const struct engine_text *facts; /* what the template can show */
    struct buf system;               /* said in front of the next question, where the template has no system role */
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

/* The content of message `at` as one string; null is empty, where it may be (a call without words). */
static int content_text(struct conversation *v, size_t at, struct str role, yyjson_val *content, struct buf *out)
{
    size_t i, n;
    yyjson_val *part;
    struct str text;
    if (!content || yyjson_is_null(content)) {
        if (str_eqz(role, "assistant"))
            return 0;
        return openai__invalid(v->c, "messages", v->err,
                               "messages[%zu].content is %s; it must be a string or an array of parts", at,
                               content ? "null" : "missing");
    }
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

static int check_calls(struct conversation *v, size_t at, yyjson_mut_val *calls)
{
    size_t i, n;
    yyjson_mut_val *call;
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

/* Calls in words, for a template that can't show them. */
static void say_calls(yyjson_mut_val *calls, struct buf *text)
{
    size_t i, n;
    yyjson_mut_val *call;
    yyjson_mut_arr_foreach(calls, i, n, call)
    {
        char *json = yyjson_mut_val_write(yyjson_mut_obj_get(call, "function"), 0, NULL);
        buf_append_z(text, text->n ? "\n<tool_call>\n" : "<tool_call>\n");
        buf_append_z(text, json ? json : "");
        buf_append_z(text, "\n</tool_call>");
        text->failed |= !json;
        free(json);
    }
}

static int fix_calls(struct conversation *v, size_t at, yyjson_mut_val *m, struct buf *text)
{
    yyjson_mut_val *calls = yyjson_mut_obj_get(m, "tool_calls");
    bool none = !calls || yyjson_mut_is_null(calls) || (yyjson_mut_is_arr(calls) && !yyjson_mut_arr_size(calls));
    int rc = none ? 0 : check_calls(v, at, calls);
    if (rc == 0 && !none && !v->facts->chat_tool_calls)
        say_calls(calls, text);
    if (none || !v->facts->chat_tool_calls)
        yyjson_mut_obj_remove_key(m, "tool_calls");
    return rc;
}

bool openai__known_role(struct str role)
{
    static const char *const known[] = {"system", "developer", "user", "assistant", "tool", "function"};
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (str_eqz(role, known[i]))
            return true;
    return false;
}

static bool put_text(struct conversation *v, yyjson_mut_val *m, const char *key, struct str text)
{
    yyjson_mut_val *k = yyjson_mut_str(v->doc, key), *x = yyjson_mut_strncpy(v->doc, text.p ? text.p : "", text.n);
    return k && x && yyjson_mut_obj_put(m, k, x);
}

/* A result in words, for a template that can't show it. */
static void say_result(struct buf *text)
{
    struct buf said;
    buf_init(&said);
    buf_append_z(&said, "<tool_response>\n");
    buf_append_str(&said, buf_str(text));
    buf_append_z(&said, "\n</tool_response>");
    said.failed |= text->failed;
    buf_release(text);
    *text = said;
}

/* Put what waits to be said in front of `text`. */
static void say_system(struct conversation *v, struct buf *text)
{
    if (!v->system.n)
        return;
    buf_append_z(&v->system, "\n\n");
    buf_append_str(&v->system, buf_str(text));
    v->system.failed |= text->failed;
    buf_release(text);
    *text = v->system;
    buf_init(&v->system);
}

/* The message `m` with its role as the template knows it. */
static int place(struct conversation *v, size_t at, struct str role, yyjson_mut_val *m, struct buf *text)
{
    int rc = fix_calls(v, at, m, text);
    if (rc < 0)
        return rc;
    if (str_eqz(role, "developer"))
        role = STR("system");
    if (str_eqz(role, "system") && !v->facts->chat_system) {
        if (v->system.n)
            buf_append_z(&v->system, "\n\n");
        buf_append_str(&v->system, buf_str(text));
        return text->failed ? no_memory(v->err) : 0;
    }
    if (str_eqz(role, "tool") && !v->facts->chat_tool_responses) {
        say_result(text);
        role = STR("user");
    }
    if (str_eqz(role, "user"))
        say_system(v, text);
    bool ok = !text->failed && put_text(v, m, "content", buf_str(text)) && put_text(v, m, "role", role) &&
              yyjson_mut_arr_append(v->messages, m);
    return ok ? 0 : no_memory(v->err);
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
    if (!openai__known_role(role))
        return openai__invalid(v->c, "messages", v->err,
                               "messages[%zu].role is \"%.*s\"; accepted: system, developer, user, assistant, tool", at,
                               STR_ARG(role));
    yyjson_mut_val *m = yyjson_val_mut_copy(v->doc, from);
    buf_init(&text);
    rc = m ? content_text(v, at, role, yyjson_obj_get(from, "content"), &text) : no_memory(v->err);
    if (rc == 0)
        rc = generate__guard_text(v->c, buf_str(&text), v->c->protocol->prompt_field, at, v->err);
    if (rc == 0)
        rc = place(v, at, role, m, &text);
    buf_release(&text);
    return rc;
}

/* Tools in words, as a system message of their own in front of everything. */
static int say_tools(struct conversation *v)
{
    struct buf text;
    size_t i, n;
    yyjson_val *t;
    buf_init(&text);
    buf_append_z(&text, "You can call functions. They are listed as JSON between <tools> and </tools>:\n<tools>\n");
    yyjson_arr_foreach(v->f->tools, i, n, t)
    {
        char *json = yyjson_val_write(yyjson_obj_get(t, "function"), 0, NULL);
        buf_append_z(&text, json ? json : "");
        buf_append_c(&text, '\n');
        text.failed |= !json;
        free(json);
    }
    buf_append_z(&text,
                 "</tools>\nTo call one, answer with its name and arguments as JSON between <tool_call> and </tool_call>:\n"
                 "<tool_call>\n{\"name\": \"the function\", \"arguments\": {}}\n</tool_call>");
    yyjson_mut_val *m = yyjson_mut_obj(v->doc);
    int rc = m ? place(v, 0, STR("system"), m, &text) : no_memory(v->err);
    buf_release(&text);
    return rc;
}

static void append_content(struct buf *out, yyjson_mut_val *m)
{
    yyjson_mut_val *content = yyjson_mut_obj_get(m, "content");
    buf_append(out, yyjson_mut_get_str(content), yyjson_mut_get_len(content));
}

/* A system message behind that of the tools continues it: templates take one. */
static int join_systems(struct conversation *v)
{
    yyjson_mut_val *a = yyjson_mut_arr_get(v->messages, 0), *b = yyjson_mut_arr_get(v->messages, 1);
    if (!yyjson_mut_equals_str(yyjson_mut_obj_get(b, "role"), "system"))
        return 0;
    struct buf text;
    buf_init(&text);
    append_content(&text, b);
    buf_append_z(&text, "\n\n");
    append_content(&text, a);
    bool ok = !text.failed && put_text(v, a, "content", buf_str(&text));
    yyjson_mut_arr_remove(v->messages, 1);
    buf_release(&text);
    return ok ? 0 : no_memory(v->err);
}

static int add_messages(struct conversation *v, yyjson_val *list)
{
    yyjson_val *m;
    size_t i, n;
    int rc = 0;
    bool in_words = v->f && v->f->tools && !v->facts->chat_tools;
    if (!list)
        rc = generate__fault(v->c, json_get_arr(v->c->doc.root, "messages", JSON_REQUIRED, &list, NULL, v->err), "messages",
                             NULL);
    if (rc == 0 && !yyjson_arr_size(list))
        return openai__invalid(v->c, "messages", v->err, "messages is empty; send at least one message");
    if (rc == 0 && in_words)
        rc = say_tools(v);
    yyjson_arr_foreach(list, i, n, m)
    {
        if (rc == 0)
            rc = add_message(v, i, m);
    }
    if (rc == 0 && v->system.n) { /* no question came after it: it is one */
        yyjson_mut_val *last = yyjson_mut_obj(v->doc);
        bool ok = last && put_text(v, last, "role", STR("user")) && put_text(v, last, "content", buf_str(&v->system)) &&
                  yyjson_mut_arr_append(v->messages, last);
        rc = ok ? 0 : no_memory(v->err);
    }
    return rc == 0 && in_words && v->facts->chat_system ? join_systems(v) : rc;
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
    yyjson_val *effort = yyjson_obj_get(c->doc.root, "reasoning_effort");
    if (ok && yyjson_is_str(effort))
        ok = put_text(v, root, "reasoning_effort", json_str(effort));
    if (ok && v->f && v->f->tools && v->facts->chat_tools)
        ok = yyjson_mut_obj_put(root, yyjson_mut_str(v->doc, "tools"), yyjson_val_mut_copy(v->doc, v->f->tools));
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
    return generate__fault(c, STATUS_INVALID, c->protocol->prompt_field, "context_length_exceeded");
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

/* Does the prompt end in an open <think>? Then the answer begins inside. */
static bool ends_in_thought(struct gen_call *c)
{
    const struct gen_prompt *p = &c->prompts[0];
    size_t n = MIN_OF(p->n_tokens, (size_t)8);
    struct buf tail;
    buf_init(&tail);
    int rc = model_version_ops(c->version)
                 ->detokenize(model_version_engine(c->version), p->tokens + p->n_tokens - n, n, &tail, NULL);
    while (tail.n && (tail.p[tail.n - 1] == '\n' || tail.p[tail.n - 1] == ' '))
        tail.n--;
    bool open = rc == 0 && str_ends(buf_str(&tail), STR("<think>"));
    buf_release(&tail);
    return open;
}

int openai__messages(struct gen_call *c, yyjson_val *messages, struct openai_format *f, struct error *err)
{
    static const struct engine_text nothing = {.chat_system = true};
    const struct engine_ops *ops = model_version_ops(c->version);
    struct conversation v = {.c = c, .f = f, .doc = yyjson_mut_doc_new(NULL), .err = err};
    v.facts = ops->text ? ops->text(model_version_engine(c->version)) : &nothing;
    yyjson_mut_val *root = v.doc ? yyjson_mut_obj(v.doc) : NULL;
    v.messages = root ? yyjson_mut_arr(v.doc) : NULL;
    int rc = v.messages ? generate__prompts(c, 1, err) : no_memory(err);
    if (rc == 0 && (!ops->chat || v.facts->chat_error))
        rc = openai__invalid(c, "model", err, "%s", v.facts->chat_error ? v.facts->chat_error : "this model can't chat");
    if (rc == 0) {
        yyjson_mut_doc_set_root(v.doc, root);
        rc = add_messages(&v, messages);
    }
    if (rc == 0)
        rc = add_variables(&v, root);
    if (rc == 0)
        rc = encode(&v);
    if (rc == 0 && f && f->thinking)
        f->reasoning = ends_in_thought(c);
    yyjson_mut_doc_free(v.doc);
    buf_release(&v.system);
    return rc;
}
