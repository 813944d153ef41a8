/* chat_template.c: compile, render and probe; what lies between is in chat_template_*.c. */
#include "text/chat_template.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "text/chat_template_priv.h"

#define SOURCE_MAX (1u << 20)

int chat_template_compile(struct str source, struct chat_template **out, struct error *err)
{
    if (source.n > SOURCE_MAX)
        return error_set(err, STATUS_INVALID, "the chat template has %zu bytes; at most %u are accepted", source.n, SOURCE_MAX);
    struct chat_template *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(err, STATUS_NOMEM, "out of memory while reading a chat template");
    arena_init(&t->arena, 16384, 64u << 20);
    char *copy = arena_strdup(&t->arena, source);
    int rc = copy ? chat_template__parse(t, (struct str){copy, source.n}, err)
                  : error_set(err, STATUS_NOMEM, "out of memory while reading a chat template");
    if (rc < 0) {
        chat_template_destroy(t);
        return rc;
    }
    *out = t;
    return 0;
}

void chat_template_destroy(struct chat_template *t)
{
    if (!t)
        return;
    arena_release(&t->arena);
    free(t);
}

static bool is_listed(const char *const *names, struct str name)
{
    for (; names && *names; names++)
        if (str_eqz(name, *names))
            return true;
    return false;
}

static int bind_arguments(struct render *r, yyjson_val *args, const char *const *trusted)
{
    size_t i, n;
    yyjson_val *key, *item;
    int rc = 0;
    yyjson_obj_foreach(args, i, n, key, item)
    {
        struct str name = {yyjson_get_str(key), yyjson_get_len(key)};
        struct value v;
        if (rc == 0)
            rc = value_from_json(r, item, is_listed(trusted, name), false, &v);
        if (rc == 0)
            rc = render__bind(r, r->root, name, &v);
    }
    return rc;
}

/* The marked output as spans in the caller's arena. */
static int copy_out(const struct text *t, struct arena *a, struct text_span **spans, size_t *n_spans, struct error *err)
{
    char *p = arena_strdup(a, text_str(t));
    struct text_span *s = arena_array(a, t->n_runs ? t->n_runs : 1, sizeof *s);
    if (!p || !s)
        return error_set(err, STATUS_NOMEM, "out of memory while rendering a chat template");
    size_t from = 0;
    for (size_t i = 0; i < t->n_runs; i++) {
        s[i] = (struct text_span){{p + from, t->runs[i].end - from}, t->runs[i].trusted};
        from = t->runs[i].end;
    }
    *spans = s;
    *n_spans = t->n_runs;
    return 0;
}

int chat_template_render(const struct chat_template *t, yyjson_val *args, const char *const *trusted, int64_t now_s,
                         const struct chat_template_limits *limits, struct arena *a, struct text_span **spans, size_t *n_spans,
                         struct error *err)
{
    static const struct chat_template_limits none = {0};
    const struct chat_template_limits *l = limits ? limits : &none;
    struct arena values;
    struct builder out;
    struct scope root = {0};
    struct error own;
    struct render r = {
        .a = &values,
        .out = &out,
        .scope = &root,
        .root = &root,
        .err = err ? err : &own,
        .steps_left = l->max_steps ? l->max_steps : 2000000,
        .max_depth = l->max_depth ? l->max_depth : 200,
        .max_output = l->max_output_bytes ? l->max_output_bytes : 16u << 20,
        .now_s = now_s,
        .line = 1,
    };
    struct text text;
    arena_init(&values, 65536, l->max_memory_bytes ? l->max_memory_bytes : 64u << 20);
    builder_init(&out, &values);
    int rc = bind_arguments(&r, args, trusted);
    if (rc == 0)
        rc = render__body(&r, t->body);
    if (rc == 0)
        rc = builder_take(&r, &out, &text);
    if (rc == 0)
        rc = copy_out(&text, a, spans, n_spans, r.err);
    arena_release(&values);
    return rc;
}

/* ---- probes ---- */

/* Render one conversation; does the output hold `needle`? */
static bool shows(const struct chat_template *t, const char *json, const char *needle)
{
    struct arena a;
    struct text_span *spans;
    size_t n;
    bool found = false;
    yyjson_doc *doc = yyjson_read(json, strlen(json), 0);
    struct buf out;
    arena_init(&a, 4096, 16u << 20);
    buf_init(&out);
    if (doc && chat_template_render(t, yyjson_doc_get_root(doc), NULL, 0, NULL, &a, &spans, &n, NULL) == 0) {
        for (size_t i = 0; i < n; i++)
            buf_append_str(&out, spans[i].text);
        found = strstr(buf_z(&out), needle) != NULL;
    }
    buf_release(&out);
    arena_release(&a);
    yyjson_doc_free(doc);
    return found;
}

#define USER   "{\"role\":\"user\",\"content\":\"u-probe\"}"
#define SYSTEM "{\"role\":\"system\",\"content\":\"s-probe\"}"
#define CALL(name)                                                                                                             \
    "{\"id\":\"call00001\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":{\"x\":\"a-probe\"}}}"
#define TOOL                                                                                                                   \
    "{\"type\":\"function\",\"function\":{\"name\":\"t-probe\",\"description\":\"d\",\"parameters\":{\"type\":\"object\","     \
    "\"properties\":{}}}}"
#define CHAT(messages) "{\"messages\":[" messages "],\"add_generation_prompt\":true,\"bos_token\":\"\",\"eos_token\":\"\"}"

void chat_template_probe(const struct chat_template *t, struct chat_template_caps *out)
{
    *out = (struct chat_template_caps){
        .tools = shows(t,
                       "{\"messages\":[" USER "],\"tools\":[" TOOL
                       "],\"add_generation_prompt\":true,\"bos_token\":\"\",\"eos_token\":\"\"}",
                       "t-probe"),
        .tool_calls =
            shows(t, CHAT(USER ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL("c-probe") "]}"), "c-probe"),
        .tool_responses = shows(t,
                                CHAT(USER ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL(
                                    "c") "]},{\"role\":\"tool\","
                                         "\"tool_call_id\":\"call00001\",\"name\":\"c\",\"content\":\"r-probe\"}"),
                                "r-probe"),
        .system_role = shows(t, CHAT(SYSTEM "," USER), "s-probe"),
        .parallel_tool_calls = shows(
            t, CHAT(USER ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL("first") "," CALL("p-probe") "]}"),
            "p-probe"),
        .content_parts =
            shows(t, CHAT("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x-probe\"}]}"), "x-probe"),
        .thinking = shows(t, CHAT(USER), "<think>") ||
                    shows(t,
                          "{\"messages\":[" USER
                          "],\"enable_thinking\":false,\"add_generation_prompt\":true,\"bos_token\":\"\",\"eos_token\":\"\"}",
                          "<think>"),
    };
}
