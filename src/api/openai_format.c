/* openai_format.c: what form the answer shall have: tools that may or must be called, JSON, a schema, a grammar.
 *
 * A required call is a grammar: an array of {"name", "arguments"} where each arguments follows its tool's schema; a named one is the
 * schema itself. So such an answer is always a valid call. With `auto` the model decides, and its text is read (openai_calls.h). */
#include <stdlib.h>
#include <string.h>

#include "api/openai_priv.h"
#include "base/size.h"
#include "base/status.h"

#define TOOLS_MAX 128

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for this request; try again later");
}

static bool is_set(yyjson_val *v)
{
    return v && !yyjson_is_null(v);
}

/* ---- constraints ---- */

static int set_grammar(struct gen_call *c, const char *kind, struct str text, const char *param, struct error *err)
{
    if (c->params.grammar_kind.n)
        return openai__invalid(c, param, err, "%s: the answer's form is constrained twice; send one constraint", param);
    c->params.grammar_kind = str_of(kind);
    c->params.grammar = text;
    c->grammar_param = param;
    return 0;
}

/* A value of the body as JSON text. */
static int set_json_grammar(struct gen_call *c, const char *kind, yyjson_val *v, const char *param, struct error *err)
{
    size_t n;
    char *text = yyjson_val_write(v, 0, &n);
    char *copy = text ? arena_strdup(&c->arena, (struct str){text, n}) : NULL;
    free(text);
    return copy ? set_grammar(c, kind, (struct str){copy, n}, param, err) : no_memory(err);
}

/* A schema may be an object, or text that holds one. */
static int set_schema(struct gen_call *c, yyjson_val *v, const char *param, struct error *err)
{
    if (yyjson_is_str(v))
        return set_grammar(c, "json_schema", json_str(v), param, err);
    if (!yyjson_is_obj(v) && !yyjson_is_bool(v))
        return openai__invalid(c, param, err, "%s: the schema must be an object, not %s", param, json_type_name(v));
    return set_json_grammar(c, "json_schema", v, param, err);
}

/* The constraint of response_format's form {"type":..}, which /v1/responses has elsewhere. */
static int openai__response_format(struct gen_call *c, yyjson_val *v, const char *param, struct error *err)
{
    struct str type;
    if (!is_set(v))
        return 0;
    if (!yyjson_is_obj(v))
        return openai__invalid(c, param, err, "%s must be an object, not %s", param, json_type_name(v));
    int rc = generate__fault(c, json_get_str(v, "type", JSON_REQUIRED, &type, NULL, err), param, NULL);
    if (rc < 0 || str_eqz(type, "text"))
        return rc;
    if (str_eqz(type, "json_object"))
        return set_grammar(c, "json", (struct str){0}, param, err);
    if (!str_eqz(type, "json_schema"))
        return openai__invalid(c, param, err, "%s has type \"%.*s\"; accepted: text, json_object, json_schema", param,
                               STR_ARG(type));
    yyjson_val *holder = yyjson_obj_get(v, "json_schema");
    yyjson_val *schema = yyjson_obj_get(holder ? holder : v, "schema");
    if (!schema)
        return openai__invalid(c, param, err, "%s: json_schema.schema is missing", param);
    return set_schema(c, schema, param, err);
}

/* vLLM's guided_* and structured_outputs, llama.cpp's grammar and json_schema: one of them. */
static int read_one_constraint(struct gen_call *c, yyjson_val *obj, const char *key, const char *kind, struct error *err)
{
    yyjson_val *v = yyjson_obj_get(obj, key);
    if (!is_set(v))
        return 0;
    if (strcmp(kind, "json_schema") == 0)
        return set_schema(c, v, key, err);
    if (strcmp(kind, "choice") == 0)
        return yyjson_is_arr(v) ? set_json_grammar(c, kind, v, key, err)
                                : openai__invalid(c, key, err, "%s must be an array of strings", key);
    if (strcmp(kind, "json") == 0)
        return yyjson_is_true(v) ? set_grammar(c, kind, (struct str){0}, key, err) : 0;
    return yyjson_is_str(v) ? set_grammar(c, kind, json_str(v), key, err)
                            : openai__invalid(c, key, err, "%s must be a string, not %s", key, json_type_name(v));
}

int openai__constraints(struct gen_call *c, struct error *err)
{
    static const char *const top[][2] = {{"guided_json", "json_schema"}, {"json_schema", "json_schema"},
                                         {"guided_regex", "regex"},      {"guided_choice", "choice"},
                                         {"guided_grammar", "gbnf"},     {"grammar", "gbnf"}};
    static const char *const nested[][2] = {
        {"json", "json_schema"}, {"regex", "regex"}, {"choice", "choice"}, {"grammar", "gbnf"}, {"json_object", "json"}};
    yyjson_val *root = c->fields, *more = NULL;
    int rc = openai__response_format(c, yyjson_obj_get(root, "response_format"), "response_format", err);
    for (size_t i = 0; rc == 0 && i < COUNT_OF(top); i++)
        rc = read_one_constraint(c, root, top[i][0], top[i][1], err);
    if (rc == 0)
        rc = generate__fault(c, json_get_obj(root, "structured_outputs", JSON_OPTIONAL, &more, NULL, err), "structured_outputs",
                             NULL);
    for (size_t i = 0; rc == 0 && i < COUNT_OF(nested); i++)
        rc = read_one_constraint(c, more, nested[i][0], nested[i][1], err);
    return rc;
}

/* ---- tools ---- */

static bool is_function_name(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char b = s.p[i];
        if (!(b >= 'a' && b <= 'z') && !(b >= 'A' && b <= 'Z') && !(b >= '0' && b <= '9') && b != '_' && b != '-' && b != '.')
            return false;
    }
    return s.n >= 1 && s.n <= 128;
}

static int check_tool(struct gen_call *c, yyjson_val *tool, size_t i, struct error *err)
{
    yyjson_val *f = yyjson_obj_get(tool, "function"), *params = yyjson_obj_get(f, "parameters");
    if (!str_eqz(json_str(yyjson_obj_get(tool, "type")), "function"))
        return openai__invalid(c, "tools", err, "tools[%zu].type must be \"function\"; no other kind of tool is known here", i);
    if (!yyjson_is_obj(f))
        return openai__invalid(c, "tools", err, "tools[%zu].function must be an object", i);
    if (!is_function_name(json_str(yyjson_obj_get(f, "name"))))
        return openai__invalid(c, "tools", err, "tools[%zu].function.name must have 1 to 128 of A-Z a-z 0-9 _ - .", i);
    if (is_set(params) && !yyjson_is_obj(params))
        return openai__invalid(c, "tools", err, "tools[%zu].function.parameters must be a JSON schema, an object", i);
    return 0;
}

static yyjson_val *find_tool(yyjson_val *tools, struct str name)
{
    size_t i, n;
    yyjson_val *t;
    yyjson_arr_foreach(tools, i, n, t)
    {
        if (str_eq(json_str(yyjson_obj_get(yyjson_obj_get(t, "function"), "name")), name))
            return t;
    }
    return NULL;
}

static int read_tools(struct gen_call *c, struct openai_format *f, struct error *err)
{
    yyjson_val *tools = NULL, *t;
    size_t i, n;
    if (is_set(yyjson_obj_get(c->doc.root, "functions")))
        return openai__invalid(c, "functions", err, "functions is OpenAI's old form; send tools");
    int rc = generate__fault(c, json_get_arr(c->doc.root, "tools", JSON_OPTIONAL, &tools, NULL, err), "tools", NULL);
    if (rc == 0 && yyjson_arr_size(tools) > TOOLS_MAX)
        rc = openai__invalid(c, "tools", err, "tools has %zu entries; at most %d are accepted", yyjson_arr_size(tools),
                             TOOLS_MAX);
    yyjson_arr_foreach(tools, i, n, t)
    {
        if (rc == 0)
            rc = check_tool(c, t, i, err);
    }
    f->tools = yyjson_arr_size(tools) ? tools : NULL;
    return rc;
}

static int named_choice(struct gen_call *c, struct openai_format *f, yyjson_val *v, struct error *err)
{
    yyjson_val *function = yyjson_obj_get(v, "function");
    struct str name = json_str(yyjson_obj_get(function ? function : v, "name"));
    if (!name.n || !find_tool(f->tools, name))
        return openai__invalid(c, "tool_choice", err, "tool_choice names the function \"%.*s\", which is not among tools",
                               STR_ARG(name));
    f->choice = TOOL_CHOICE_NAMED;
    f->named = arena_strdup(&c->arena, name);
    return f->named ? 0 : no_memory(err);
}

static int read_choice(struct gen_call *c, struct openai_format *f, struct error *err)
{
    yyjson_val *v = yyjson_obj_get(c->doc.root, "tool_choice");
    struct str word = json_str(v);
    f->choice = f->tools ? TOOL_CHOICE_AUTO : TOOL_CHOICE_NONE;
    if (!is_set(v) || str_eqz(word, "auto"))
        return 0;
    if (str_eqz(word, "none")) {
        f->choice = TOOL_CHOICE_NONE;
        return 0;
    }
    if (!f->tools)
        return openai__invalid(c, "tool_choice", err, "tool_choice needs tools");
    if (str_eqz(word, "required")) {
        f->choice = TOOL_CHOICE_REQUIRED;
        return 0;
    }
    if (yyjson_is_obj(v))
        return named_choice(c, f, v, err);
    return openai__invalid(c, "tool_choice", err,
                           "tool_choice must be none, auto, required, or an object that names a function");
}

/* ---- required calls as a schema ---- */

/* References into the tool's own schema go where it is placed. */
static bool move_refs(yyjson_mut_doc *doc, yyjson_mut_val *v, const char *prefix)
{
    size_t i, n;
    yyjson_mut_val *key, *x;
    bool ok = true;
    if (yyjson_mut_is_arr(v)) {
        yyjson_mut_arr_foreach(v, i, n, x)
        {
            ok = ok && move_refs(doc, x, prefix);
        }
        return ok;
    }
    yyjson_mut_obj_foreach(v, i, n, key, x)
    {
        const char *ref = yyjson_mut_get_str(x);
        if (yyjson_mut_equals_str(key, "$ref") && ref && ref[0] == '#') {
            char path[512];
            snprintf(path, sizeof path, "#%s%s", prefix, ref + 1);
            ok = ok && strlen(ref) + strlen(prefix) < sizeof path - 2 &&
                 yyjson_mut_set_str(x, yyjson_mut_get_str(yyjson_mut_strcpy(doc, path)));
        } else {
            ok = ok && move_refs(doc, x, prefix);
        }
    }
    return ok;
}

static yyjson_mut_val *schema_of_tool(yyjson_mut_doc *doc, yyjson_val *tool, const char *prefix)
{
    yyjson_val *f = yyjson_obj_get(tool, "function"), *params = yyjson_obj_get(f, "parameters");
    yyjson_mut_val *o = yyjson_mut_obj(doc), *props = yyjson_mut_obj(doc), *name = yyjson_mut_obj(doc),
                   *required = yyjson_mut_arr(doc);
    yyjson_mut_val *args = is_set(params) ? yyjson_val_mut_copy(doc, params) : yyjson_mut_obj(doc);
    bool ok = o && props && name && required && args &&
              yyjson_mut_obj_add_val(doc, name, "const", yyjson_val_mut_copy(doc, yyjson_obj_get(f, "name"))) &&
              yyjson_mut_obj_add_val(doc, props, "name", name) && yyjson_mut_obj_add_val(doc, props, "arguments", args) &&
              yyjson_mut_arr_add_str(doc, required, "name") && yyjson_mut_arr_add_str(doc, required, "arguments") &&
              yyjson_mut_obj_add_str(doc, o, "type", "object") && yyjson_mut_obj_add_val(doc, o, "properties", props) &&
              yyjson_mut_obj_add_val(doc, o, "required", required) &&
              yyjson_mut_obj_add_bool(doc, o, "additionalProperties", false);
    if (ok && !is_set(params))
        ok = yyjson_mut_obj_add_str(doc, args, "type", "object");
    return ok && move_refs(doc, args, prefix) ? o : NULL;
}

static bool fill_required(yyjson_mut_doc *doc, yyjson_val *tools, bool parallel)
{
    yyjson_mut_val *root = yyjson_mut_obj(doc), *items = yyjson_mut_obj(doc), *any = yyjson_mut_arr(doc);
    size_t i, n;
    yyjson_val *t;
    bool ok = root && items && any;
    yyjson_arr_foreach(tools, i, n, t)
    {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "/items/anyOf/%zu/properties/arguments", i);
        yyjson_mut_val *one = ok ? schema_of_tool(doc, t, prefix) : NULL;
        ok = one && yyjson_mut_arr_append(any, one);
    }
    yyjson_mut_doc_set_root(doc, root);
    return ok && yyjson_mut_obj_add_val(doc, items, "anyOf", any) && yyjson_mut_obj_add_str(doc, root, "type", "array") &&
           yyjson_mut_obj_add_uint(doc, root, "minItems", 1) &&
           (parallel || yyjson_mut_obj_add_uint(doc, root, "maxItems", 1)) && yyjson_mut_obj_add_val(doc, root, "items", items);
}

static int require_call(struct gen_call *c, struct openai_format *f, struct error *err)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    size_t n;
    char *text = doc && fill_required(doc, f->tools, f->parallel) ? yyjson_mut_write(doc, 0, &n) : NULL;
    char *copy = text ? arena_strdup(&c->arena, (struct str){text, n}) : NULL;
    free(text);
    yyjson_mut_doc_free(doc);
    f->calls = CALLS_ARRAY;
    return copy ? set_grammar(c, "json_schema", (struct str){copy, n}, "tool_choice", err) : no_memory(err);
}

static int require_named(struct gen_call *c, struct openai_format *f, struct error *err)
{
    yyjson_val *function = yyjson_obj_get(find_tool(f->tools, str_of(f->named)), "function");
    yyjson_val *params = yyjson_obj_get(function, "parameters");
    f->calls = CALLS_NAMED;
    if (is_set(params))
        return set_json_grammar(c, "json_schema", params, "tool_choice", err);
    return set_grammar(c, "json_schema", STR("{\"type\":\"object\"}"), "tool_choice", err);
}

int openai__format(struct gen_call *c, struct openai_format *f, struct error *err)
{
    const struct engine_ops *ops = model_version_ops(c->version);
    const struct engine_text *facts = ops->text ? ops->text(model_version_engine(c->version)) : NULL;
    f->parallel = true;
    f->thinking = facts && facts->chat_thinking;
    int rc = read_tools(c, f, err);
    if (rc == 0)
        rc = read_choice(c, f, err);
    if (rc == 0)
        rc = openai__bool(c, c->doc.root, "parallel_tool_calls", &f->parallel, err);
    if (rc == 0)
        rc = openai__constraints(c, err);
    if (rc < 0)
        return rc;
    if (f->choice == TOOL_CHOICE_NONE) {
        f->tools = NULL;
        return 0;
    }
    if (c->params.grammar_kind.n)
        return openai__invalid(c, c->grammar_param, err,
                               "%s together with tools is not supported; send tool_choice \"none\" or no tools",
                               c->grammar_param);
    if (f->choice == TOOL_CHOICE_REQUIRED)
        return require_call(c, f, err);
    if (f->choice == TOOL_CHOICE_NAMED)
        return require_named(c, f, err);
    f->calls = facts && facts->chat_tools ? calls_format_of(facts->chat_template) : CALLS_HERMES;
    f->calls = f->calls == CALLS_NONE ? CALLS_HERMES : f->calls;
    c->params.control_text |= f->calls == CALLS_MISTRAL || f->calls == CALLS_LLAMA;
    return 0;
}
