/* models.c: `inferd models`: what a running server has, loads and unloads, and how its models are doing. */
#include <string.h>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/kserve.h"
#include "cli/model_file.h"
#include "cli/table.h"
#include "wire/json.h"

struct options {
    struct kserve_server server;
    const char *config; /* of load */
    bool json, wait;
};

static int print_raw(struct str body)
{
    fwrite(body.p ? body.p : "", 1, body.n, stdout);
    if (!body.n || body.p[body.n - 1] != '\n')
        putchar('\n');
    return fflush(stdout) == 0 ? CLI_OK : cli_fail("the output could not be written");
}

static const char *text_of(yyjson_val *row, const char *key)
{
    const char *z = yyjson_get_str(yyjson_obj_get(row, key));
    return z ? z : "";
}

/* Ask, and parse the answer. CLI_GO: *body is the caller's to release; else the exit code: it failed, or was printed as it came. */
static int ask(struct http_client *c, const struct options *o, const char *method, const char *path, struct json *body)
{
    struct http_client_answer answer;
    struct error err = {0};
    struct str request = strcmp(method, "POST") == 0 ? STR("{}") : STR("");
    if (kserve_call(c, method, path, NULL, 0, request, &answer, &err) < 0)
        return cli_fail("%s", err.text);
    if (o->json)
        return print_raw(answer.body);
    if (json_parse(body, answer.body, NULL, &err) < 0)
        return cli_fail("the server's answer: %s", err.text);
    return CLI_GO;
}

/* ---- list ---- */

static void add_index_row(struct table *t, yyjson_val *row)
{
    const char *state = text_of(row, "state"), *reason = text_of(row, "reason"), *version = text_of(row, "version");
    table_cell(t, "%s", text_of(row, "name"));
    table_cell(t, "%s", *version ? version : "-");
    table_cell(t, "%s", *state ? state : "UNAVAILABLE");
    table_cell(t, "%s", reason);
}

static int list(struct http_client *c, const struct options *o)
{
    static const char *const titles[] = {"MODEL", "VERSION", "STATE", "REASON", NULL};
    struct json body;
    int code = ask(c, o, "POST", "/v2/repository/index", &body);
    if (code != CLI_GO)
        return code;
    struct table t;
    yyjson_val *row;
    size_t i, n;
    table_init(&t, titles);
    yyjson_arr_foreach(body.root, i, n, row)
    {
        add_index_row(&t, row);
    }
    if (t.first)
        table_print(&t, stdout);
    else
        printf("The server has no models.\n");
    table_release(&t);
    json_release(&body);
    return CLI_OK;
}

/* ---- load, unload ---- */

/* The body of a load: {"parameters":{"config":"<the configuration's JSON as a string>"}}, or empty. */
static int load_body(const char *file, struct buf *out, struct error *err)
{
    struct buf config;
    if (!file)
        return 0;
    buf_init(&config);
    int rc = cli_model_config_json(file, &config, err);
    if (rc == 0) {
        buf_append_z(out, "{\"parameters\":{\"config\":");
        buf_append_json_str(out, buf_str(&config));
        buf_append_z(out, "}}");
    }
    buf_release(&config);
    return rc;
}

static int control(struct http_client *c, const struct options *o, const char *verb, const char *model)
{
    struct http_client_answer answer;
    struct error err = {0};
    struct buf path, body;
    buf_init(&path);
    buf_init(&body);
    buf_append_z(&path, "/v2/repository/models/");
    buf_append_z(&path, model);
    buf_printf(&path, "/%s%s", verb, o->wait ? "" : "?wait=false");
    int code = CLI_OK;
    if (!str_is_model_name(str_of(model)))
        code = cli_fail("'%s' is no model name: letters, digits, '.', '_' and '-', at most 128", model);
    else if (load_body(strcmp(verb, "load") == 0 ? o->config : NULL, &body, &err) < 0)
        code = cli_fail("%s", err.text);
    else if (kserve_call(c, "POST", buf_z(&path), NULL, 0, buf_str(&body), &answer, &err) < 0)
        code = cli_fail("%s", err.text);
    else
        printf("%s: %s%s\n", model, verb, o->wait ? "ed" : " begun");
    buf_release(&path);
    buf_release(&body);
    return code;
}

/* ---- stats ---- */

static double count_of(yyjson_val *stats, const char *key, const char *part)
{
    return yyjson_get_num(yyjson_obj_get(yyjson_obj_get(stats, key), part));
}

/* Mean time of a phase over `n` requests; "-" when there was none. */
static void mean_cell(struct table *t, double ns, double n)
{
    char text[32];
    table_cell(t, "%s", n > 0 ? table_time(ns / n, text, sizeof text) : "-");
}

static void add_stats_row(struct table *t, yyjson_val *row)
{
    yyjson_val *s = yyjson_obj_get(row, "inference_stats");
    double rows = yyjson_get_num(yyjson_obj_get(row, "inference_count")),
           runs = yyjson_get_num(yyjson_obj_get(row, "execution_count"));
    double ok = count_of(s, "success", "count"), memory = 0;
    char text[32];
    yyjson_val *use;
    size_t i, n;
    yyjson_arr_foreach(yyjson_obj_get(row, "memory_usage"), i, n, use) memory +=
        yyjson_get_num(yyjson_obj_get(use, "byte_size"));
    table_cell(t, "%s", text_of(row, "name"));
    table_cell(t, "%s", text_of(row, "version"));
    table_cell(t, "%.0f", ok);
    table_cell(t, "%.0f", count_of(s, "fail", "count"));
    table_cell(t, "%.0f", rows);
    if (runs > 0)
        table_cell(t, "%.2f", rows / runs);
    else
        table_cell(t, "-");
    mean_cell(t, count_of(s, "success", "ns"), ok);
    mean_cell(t, count_of(s, "queue", "ns"), count_of(s, "queue", "count"));
    mean_cell(t, count_of(s, "compute_infer", "ns"), count_of(s, "compute_infer", "count"));
    table_cell(t, "%.0f", count_of(s, "cache_hit", "count"));
    table_cell(t, "%s", memory > 0 ? table_bytes(memory, text, sizeof text) : "-");
}

static int stats(struct http_client *c, const struct options *o, const char *model)
{
    static const char *const titles[] = {"MODEL",  ">VERSION", ">OK",      ">FAILED", ">ROWS",   ">ROWS/RUN",
                                         ">TOTAL", ">QUEUE",   ">COMPUTE", ">CACHED", ">MEMORY", NULL};
    struct buf path;
    struct json body;
    buf_init(&path);
    if (model)
        kserve_model_path(&path, model, NULL);
    else
        buf_append_z(&path, "/v2/models");
    buf_append_z(&path, "/stats");
    int code = ask(c, o, "GET", buf_z(&path), &body);
    buf_release(&path);
    if (code != CLI_GO)
        return code;
    struct table t;
    yyjson_val *row;
    size_t i, n;
    table_init(&t, titles);
    yyjson_arr_foreach(yyjson_obj_get(body.root, "model_stats"), i, n, row)
    {
        add_stats_row(&t, row);
    }
    table_print(&t, stdout);
    printf("TOTAL, QUEUE and COMPUTE are means per request.\n");
    table_release(&t);
    json_release(&body);
    return CLI_OK;
}

static int dispatch(const struct cli_command *self, struct http_client *c, const struct options *o, const struct cli_list *a)
{
    const char *verb = a->n ? a->v[0] : "list", *model = a->n > 1 ? a->v[1] : NULL;
    bool control_verb = strcmp(verb, "load") == 0 || strcmp(verb, "unload") == 0;
    if (strcmp(verb, "list") == 0 && !model)
        return list(c, o);
    if (strcmp(verb, "stats") == 0)
        return stats(c, o, model);
    if (control_verb && !model)
        return cli_usage_error(self, "which model? inferd models %s MODEL", verb);
    if (control_verb)
        return control(c, o, verb, model);
    return cli_usage_error(self, "'%s' is not something to do with models; say list, load, unload or stats", verb);
}

/* clang-format off */
static const struct cli_flag flags[] = {
    KSERVE_SERVER_FLAGS(struct options, server),
    CLI_FLAG_STRING(struct options, config, "config", 0, "FILE", "load: use this model configuration (model.yaml, config.pbtxt or JSON) instead of the repository's."),
    CLI_FLAG_BOOL(struct options, wait, "wait", 0, "load, unload: until it is done (the default; --no-wait)."),
    CLI_FLAG_BOOL(struct options, json, "json", 0, "list, stats: the server's JSON."),
};
/* clang-format on */

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct options o = {.wait = true};
    struct cli_list arguments;
    struct http_client *client;
    struct error err = {0};
    kserve_server_init(&o.server);
    const struct cli_spec spec = {
        .command = self, .flags = flags, .n_flags = COUNT_OF(flags), .options = &o, .max_arguments = 2};
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    if (kserve_connect(&o.server, &client, &err) < 0)
        return cli_fail("%s", err.text);
    code = dispatch(self, client, &o, &arguments);
    http_client_destroy(client);
    return code;
}

const struct cli_command command_models = {
    .name = "models",
    .arguments = "[list | load MODEL | unload MODEL | stats [MODEL]]",
    .summary = "List, load, unload and measure the models of a running server.",
    .details = "load and unload need a server with `repository.mode: explicit`. stats counts since the model was loaded.",
    .run = run,
};
