/* openai_responses_input.c: from a body of /v1/responses to that of a chat: items to messages, flat tools to nested ones, names to names.
 * Fields that both have are taken over as they are and checked as a chat's. */
#include <stdlib.h>

#include "api/openai_responses_priv.h"
#include "base/size.h"
#include "base/status.h"

struct conversion {
    struct gen_call *c;
    yyjson_val *from;
    yyjson_mut_doc *doc;
    yyjson_mut_val *root, *messages;
    struct error *err;
};

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
}

static bool is_set(yyjson_val *v)
{
    return v && !yyjson_is_null(v);
}

static yyjson_mut_val *copy(struct conversion *v, yyjson_val *x)
{
    return x ? yyjson_val_mut_copy(v->doc, x) : yyjson_mut_null(v->doc);
}

static bool put(struct conversion *v, yyjson_mut_val *o, const char *key, yyjson_mut_val *x)
{
    return x && yyjson_mut_obj_add_val(v->doc, o, key, x);
}

static yyjson_mut_val *add_message(struct conversion *v, const char *role)
{
    yyjson_mut_val *m = yyjson_mut_obj(v->doc);
    bool ok = m && yyjson_mut_obj_add_str(v->doc, m, "role", role) && yyjson_mut_arr_append(v->messages, m);
    return ok ? m : NULL;
}

/* ---- items ---- */

/* As a chat's, under the name and number that the item has here. */
static int check_message(struct conversion *v, size_t at, yyjson_val *item)
{
    yyjson_val *content = yyjson_obj_get(item, "content"), *role = yyjson_obj_get(item, "role"), *part;
    size_t i, n;
    if (!yyjson_is_str(role) || !openai__known_role(json_str(role)))
        return openai__invalid(v->c, "input", v->err, "input[%zu].role must be one of system, developer, user, assistant, tool",
                               at);
    if (!yyjson_is_str(content) && !yyjson_is_arr(content) && !str_eqz(json_str(role), "assistant"))
        return openai__invalid(v->c, "input", v->err, "input[%zu].content must be a string or an array of parts", at);
    yyjson_arr_foreach(content, i, n, part)
    {
        struct str type = json_str(yyjson_obj_get(part, "type"));
        if (yyjson_is_obj(part) && type.n && !str_eqz(type, "input_text") && !str_eqz(type, "output_text") &&
            !str_eqz(type, "text") && !str_eqz(type, "refusal"))
            return openai__invalid(
                v->c, "input", v->err,
                "input[%zu].content[%zu] has type \"%.*s\"; this server's models read text only, and nothing that a "
                "request names is fetched",
                at, i, STR_ARG(type));
    }
    return 0;
}

static int add_plain(struct conversion *v, size_t at, yyjson_val *item)
{
    int rc = check_message(v, at, item);
    if (rc < 0)
        return rc;
    yyjson_mut_val *m = yyjson_mut_obj(v->doc);
    bool ok = m && put(v, m, "role", copy(v, yyjson_obj_get(item, "role"))) &&
              put(v, m, "content", copy(v, yyjson_obj_get(item, "content"))) && yyjson_mut_arr_append(v->messages, m);
    return ok ? 0 : no_memory(v->err);
}

/* Calls that follow each other belong to one message. */
static int add_call(struct conversion *v, size_t at, yyjson_val *item)
{
    yyjson_mut_val *m = yyjson_mut_arr_get_last(v->messages);
    yyjson_mut_val *calls =
        yyjson_mut_equals_str(yyjson_mut_obj_get(m, "role"), "assistant") ? yyjson_mut_obj_get(m, "tool_calls") : NULL;
    bool ok = true;
    if (!yyjson_is_str(yyjson_obj_get(item, "name")) || !yyjson_is_str(yyjson_obj_get(item, "arguments")))
        return openai__invalid(v->c, "input", v->err, "input[%zu]: a function_call must have name and arguments, strings", at);
    if (!calls) {
        m = add_message(v, "assistant");
        calls = yyjson_mut_arr(v->doc);
        ok = m && put(v, m, "tool_calls", calls);
    }
    yyjson_mut_val *call = yyjson_mut_obj(v->doc), *function = yyjson_mut_obj(v->doc);
    ok = ok && call && function && put(v, call, "id", copy(v, yyjson_obj_get(item, "call_id"))) &&
         yyjson_mut_obj_add_str(v->doc, call, "type", "function") && put(v, call, "function", function) &&
         put(v, function, "name", copy(v, yyjson_obj_get(item, "name"))) &&
         put(v, function, "arguments", copy(v, yyjson_obj_get(item, "arguments"))) && yyjson_mut_arr_append(calls, call);
    return ok ? 0 : no_memory(v->err);
}

static int add_output(struct conversion *v, size_t at, yyjson_val *item)
{
    yyjson_val *output = yyjson_obj_get(item, "output");
    if (!yyjson_is_str(output) && !yyjson_is_arr(output))
        return openai__invalid(v->c, "input", v->err,
                               "input[%zu]: a function_call_output must have an output, a string or an array of parts", at);
    yyjson_mut_val *m = add_message(v, "tool");
    bool ok = m && put(v, m, "tool_call_id", copy(v, yyjson_obj_get(item, "call_id"))) && put(v, m, "content", copy(v, output));
    return ok ? 0 : no_memory(v->err);
}

static int add_item(struct conversion *v, size_t at, yyjson_val *item)
{
    struct str type = json_str(yyjson_obj_get(item, "type"));
    if (!yyjson_is_obj(item))
        return openai__invalid(v->c, "input", v->err, "input[%zu] must be an object, not %s", at, json_type_name(item));
    if (!type.n || str_eqz(type, "message"))
        return add_plain(v, at, item);
    if (str_eqz(type, "function_call"))
        return add_call(v, at, item);
    if (str_eqz(type, "function_call_output"))
        return add_output(v, at, item);
    if (str_eqz(type, "reasoning")) /* thoughts of earlier answers are not shown to the model again */
        return 0;
    return openai__invalid(v->c, "input", v->err,
                           "input[%zu] has type \"%.*s\"; accepted: message, function_call, function_call_output, reasoning",
                           at, STR_ARG(type));
}

static int add_input(struct conversion *v)
{
    yyjson_val *input = yyjson_obj_get(v->from, "input"), *item, *instructions = yyjson_obj_get(v->from, "instructions");
    size_t i, n;
    int rc = 0;
    if (is_set(instructions) && !yyjson_is_str(instructions))
        return openai__invalid(v->c, "instructions", v->err, "instructions must be a string, not %s",
                               json_type_name(instructions));
    if (is_set(instructions)) {
        yyjson_mut_val *m = add_message(v, "system");
        rc = m && put(v, m, "content", copy(v, instructions)) ? 0 : no_memory(v->err);
    }
    if (rc == 0 && yyjson_is_str(input)) {
        yyjson_mut_val *m = add_message(v, "user");
        return m && put(v, m, "content", copy(v, input)) ? 0 : no_memory(v->err);
    }
    if (rc == 0 && (!yyjson_is_arr(input) || !yyjson_arr_size(input)))
        return openai__invalid(v->c, "input", v->err, "input must be a string or an array of items that isn't empty");
    yyjson_arr_foreach(input, i, n, item)
    {
        if (rc == 0)
            rc = add_item(v, i, item);
    }
    return rc;
}

/* ---- the rest ---- */

/* {"type":"function","name":..} -> {"type":"function","function":{"name":..}}; other kinds stay, and are refused as a chat's. */
static int add_tools(struct conversion *v)
{
    yyjson_val *tools = yyjson_obj_get(v->from, "tools"), *t;
    yyjson_mut_val *list = yyjson_mut_arr(v->doc);
    size_t i, n;
    if (!is_set(tools))
        return 0;
    if (!yyjson_is_arr(tools))
        return openai__invalid(v->c, "tools", v->err, "tools must be an array, not %s", json_type_name(tools));
    bool ok = list != NULL;
    yyjson_arr_foreach(tools, i, n, t)
    {
        yyjson_mut_val *one = yyjson_mut_obj(v->doc), *function = copy(v, t);
        ok = ok && one && function && put(v, one, "type", copy(v, yyjson_obj_get(t, "type"))) &&
             put(v, one, "function", function) && yyjson_mut_arr_append(list, one);
        if (ok && yyjson_mut_is_obj(function))
            yyjson_mut_obj_remove_key(function, "type");
    }
    return ok && put(v, v->root, "tools", list) ? 0 : no_memory(v->err);
}

static int refuse_unsupported(struct conversion *v)
{
    static const char *const state[] = {"previous_response_id", "conversation", "prompt"};
    for (size_t i = 0; i < COUNT_OF(state); i++)
        if (is_set(yyjson_obj_get(v->from, state[i])))
            return openai__invalid(v->c, state[i], v->err,
                                   "%s is not supported: responses are not stored here; send the conversation as input",
                                   state[i]);
    if (yyjson_is_true(yyjson_obj_get(v->from, "background")))
        return openai__invalid(v->c, "background", v->err, "background is not supported");
    return 0;
}

static int add_fields(struct conversion *v)
{
    static const char *const same[] = {"model",
                                       "temperature",
                                       "top_p",
                                       "top_logprobs",
                                       "tool_choice",
                                       "parallel_tool_calls",
                                       "stream",
                                       "seed",
                                       "stop",
                                       "top_k",
                                       "min_p",
                                       "repetition_penalty",
                                       "user",
                                       "cache_salt",
                                       "priority",
                                       "ignore_eos",
                                       "stop_token_ids",
                                       "chat_template_kwargs",
                                       "n",
                                       "min_tokens",
                                       "logit_bias",
                                       "frequency_penalty",
                                       "presence_penalty",
                                       "structured_outputs"};
    uint32_t max = 0;
    yyjson_val *text = NULL, *reasoning = NULL;
    int rc = openai__u32(v->c, v->from, "max_output_tokens", 1, INT32_MAX, &max, v->err);
    if (rc == 0)
        rc = generate__fault(v->c, json_get_obj(v->from, "text", JSON_OPTIONAL, &text, NULL, v->err), "text", NULL);
    if (rc == 0)
        rc = generate__fault(v->c, json_get_obj(v->from, "reasoning", JSON_OPTIONAL, &reasoning, NULL, v->err), "reasoning",
                             NULL);
    bool ok = true;
    for (size_t i = 0; rc == 0 && ok && i < COUNT_OF(same); i++) {
        yyjson_val *x = yyjson_obj_get(v->from, same[i]);
        ok = !is_set(x) || put(v, v->root, same[i], copy(v, x));
    }
    if (max)
        ok = ok && yyjson_mut_obj_add_uint(v->doc, v->root, "max_completion_tokens", max);
    if (is_set(yyjson_obj_get(v->from, "top_logprobs")))
        ok = ok && yyjson_mut_obj_add_bool(v->doc, v->root, "logprobs", true);
    yyjson_val *format = yyjson_obj_get(text, "format");
    yyjson_val *effort = yyjson_obj_get(reasoning, "effort");
    if (is_set(format))
        ok = ok && put(v, v->root, "response_format", copy(v, format));
    if (is_set(effort))
        ok = ok && put(v, v->root, "reasoning_effort", copy(v, effort));
    return rc < 0 ? rc : ok ? 0 : no_memory(v->err);
}

static int convert(struct conversion *v)
{
    yyjson_mut_doc_set_root(v->doc, v->root);
    int rc = refuse_unsupported(v);
    if (rc == 0)
        rc = add_fields(v);
    if (rc == 0)
        rc = add_input(v);
    if (rc == 0)
        rc = add_tools(v);
    if (rc == 0 && !put(v, v->root, "messages", v->messages))
        rc = no_memory(v->err);
    return rc;
}

int openai__responses_to_chat(struct gen_call *c, struct json *original, struct error *err)
{
    struct conversion v = {.c = c, .from = c->doc.root, .doc = yyjson_mut_doc_new(NULL), .err = err};
    v.root = v.doc ? yyjson_mut_obj(v.doc) : NULL;
    v.messages = v.root ? yyjson_mut_arr(v.doc) : NULL;
    int rc = v.messages ? convert(&v) : no_memory(err);
    yyjson_doc *chat = rc == 0 ? yyjson_mut_doc_imut_copy(v.doc, NULL) : NULL;
    yyjson_mut_doc_free(v.doc);
    if (rc == 0 && !chat)
        rc = no_memory(err);
    if (rc < 0)
        return rc;
    *original = c->doc;
    c->doc = (struct json){chat, yyjson_doc_get_root(chat)};
    return 0;
}
