/* grammar.c: constrained output by itself: what compiling costs, what a mask costs when it is new and when it is known.
 *
 *     bench_grammar VOCAB            the table; VOCAB: rig, synthetic:262144, or FOLDER/model.gguf
 *     bench_grammar VOCAB serve      requests as JSON lines on stdin, for oracles in other languages (tests/tools/grammar_oracle.py):
 *         {"kind":"regex","source":"a+","walks":3,"tokens":40,"seed":1,"check":["aa","b"]}
 *     (or "path":[ids]: what is allowed behind these tokens, as "allowed":[ids], with the end of the text as -1)
 *         {"compile_us":12.3,"shortest_tok":1,"walks":["a","aaa","aaaa"],"accepts":[true,false]}   or {"error":"…","status":"invalid"}
 * In `serve`, every mask of a walk is compared with what the grammar allows token by token when the vocabulary is small. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../tests/unit/text/grammar_rig.h"
#include "base/status.h"
#include "engine/llm/file/model_desc.h"
#include "os/dir.h"
#include "os/file.h"
#include "wire/json.h"

static struct tokenizer *open_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[1024] = ".";
    struct model_desc *d = NULL;
    struct tokenizer *t = NULL;
    struct error err = {0};
    int dir = -1;
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    if (os_dir_open(folder, &dir, &err) < 0 || model_desc_open(dir, slash ? slash + 1 : path, &d, &err) < 0 ||
        tokenizer_create(&d->tokenizer, &t, &err) < 0) {
        fprintf(stderr, "%s: %s\n", path, err.text);
        exit(1);
    }
    model_desc_release(d);
    os_close(dir);
    return t;
}

static struct tokenizer *open_vocab(const char *name)
{
    uint32_t n = 0;
    if (strcmp(name, "rig") == 0)
        return rig_tokenizer(0);
    if (sscanf(name, "synthetic:%u", &n) == 1)
        return rig_tokenizer(n > RIG_FIRST + COUNT_OF(rig_pieces) ? n - RIG_FIRST - (uint32_t)COUNT_OF(rig_pieces) : 0);
    return open_file(name);
}

/* This thread's processor time: the machine may be busy with something else. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double us_since(uint64_t t)
{
    return (double)(cpu_ns() - t) / 1000;
}

/* ---- serve ---- */

static int compile_line(struct grammar_vocab *v, yyjson_val *q, struct grammar **g, struct error *err)
{
    enum grammar_kind kind;
    struct str name = {0}, source = {0};
    int rc = json_get_str(q, "kind", JSON_REQUIRED, &name, NULL, err);
    if (rc == 0)
        rc = json_get_str(q, "source", JSON_REQUIRED, &source, NULL, err);
    if (rc == 0 && !grammar_kind_of(name, &kind))
        rc = error_set(err, STATUS_INVALID, "no kind of that name");
    return rc < 0 ? rc : grammar_compile(v, kind, source, NULL, g, err);
}

static void allowed_behind(struct grammar *g, yyjson_val *path, struct buf *out)
{
    struct grammar_state *s = NULL;
    size_t i, n;
    yyjson_val *e;
    ASSERT(grammar_state_create(g, &s, NULL) == 0);
    yyjson_arr_foreach(path, i, n, e) if (!grammar_accept(s, (int32_t)yyjson_get_int(e))) exit(5);
    const uint64_t *m = grammar_mask(s);
    buf_append_z(out, ",\"allowed\":[");
    for (uint32_t id = 0; m && id < g->vocab->n_tok; id++)
        if (m[id / 64] >> (id % 64) & 1 && !(g->vocab->ends[id / 64] >> (id % 64) & 1))
            buf_printf(out, "%u,", id);
    buf_append_z(out, m && grammar_can_end(s) ? "-1]" : "-2]");
    grammar_state_destroy(s);
}

static void answer(struct grammar *g, yyjson_val *q, struct buf *out)
{
    uint64_t walks = 0, seed = 0, tokens = 60;
    yyjson_val *check = yyjson_obj_get(q, "check"), *e;
    size_t i, n;
    struct rand r;
    if (json_get_u64(q, "walks", JSON_OPTIONAL, 0, 1000, &walks, NULL, NULL) < 0 ||
        json_get_u64(q, "seed", JSON_OPTIONAL, 0, UINT64_MAX, &seed, NULL, NULL) < 0 ||
        json_get_u64(q, "tokens", JSON_OPTIONAL, 0, 100000, &tokens, NULL, NULL) < 0)
        exit(2);
    rand_init(&r, seed);
    buf_append_z(out, ",\"walks\":[");
    for (uint64_t k = 0; k < walks; k++) {
        struct buf text;
        buf_init(&text);
        if (!rig_walk(g, &r, (uint32_t)tokens, g->vocab->n_tok < 1000, &text))
            exit(3);
        buf_append_z(out, k ? "," : "");
        buf_append_json_str(out, buf_str(&text));
        buf_release(&text);
    }
    buf_append_z(out, "],\"accepts\":[");
    yyjson_arr_foreach(check, i, n, e) buf_printf(out, "%s%s", i ? "," : "", rig_accepts(g, json_str(e)) ? "true" : "false");
    buf_append_z(out, "]");
    if (yyjson_obj_get(q, "path"))
        allowed_behind(g, yyjson_obj_get(q, "path"), out);
}

static void serve(struct grammar_vocab *v)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct json j;
        struct error err = {0};
        struct grammar *g = NULL;
        struct buf out;
        buf_init(&out);
        if (json_parse(&j, (struct str){line, (size_t)n}, NULL, &err) < 0)
            exit(4);
        uint64_t begin = cpu_ns();
        int rc = compile_line(v, j.root, &g, &err);
        buf_printf(&out, "{\"compile_us\":%.1f", us_since(begin));
        if (rc < 0) {
            buf_printf(&out, ",\"status\":\"%s\",\"error\":", status_name(rc));
            buf_append_json_str(&out, str_of(err.text));
        } else {
            buf_printf(&out, ",\"shortest_tok\":%u", grammar_shortest_tok(g));
            answer(g, j.root, &out);
        }
        puts(buf_z((buf_append_z(&out, "}"), &out)));
        fflush(stdout);
        grammar_unref(g);
        json_release(&j);
        buf_release(&out);
    }
    free(line);
}

/* ---- the table ---- */

/* Four levels of objects and arrays around an enum of 200 values (issue 3's figure). */
static void enum_schema(struct buf *b)
{
    buf_append_z(b, "{\"type\":\"object\",\"properties\":{\"list\":{\"type\":\"array\",\"items\":{\"type\":\"object\","
                    "\"properties\":{\"id\":"
                    "{\"type\":\"integer\"},\"inner\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
                    "\"city\":{\"enum\":[");
    for (int i = 0; i < 200; i++)
        buf_printf(b, "%s\"value_%c%c_%03d\"", i ? "," : "", 'a' + i % 26, 'a' + i / 8 % 26, i);
    buf_append_z(b, "]}},\"required\":[\"name\",\"city\"],\"additionalProperties\":false}},\"required\":[\"id\",\"inner\"]}}},"
                    "\"required\":[\"list\"]}");
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* Time of one more mask along random walks: first in a fresh grammar, then the same walks again. */
static void time_masks(struct grammar *g, const char *pass)
{
    static double us[20000];
    size_t n = 0;
    struct rand r;
    rand_init(&r, 5);
    for (int k = 0; k < 20; k++) {
        struct grammar_state *s = NULL;
        ASSERT(grammar_state_create(g, &s, NULL) == 0);
        for (int i = 0; i < 200 && n < COUNT_OF(us) && !grammar_must_end(s); i++) {
            uint64_t begin = cpu_ns();
            const uint64_t *m = grammar_mask(s);
            us[n++] = us_since(begin);
            ASSERT(m);
            uint32_t allowed = 0;
            for (uint32_t w = 0; w < g->vocab->n_words; w++)
                allowed += (uint32_t)__builtin_popcountll(m[w] & ~g->vocab->ends[w]);
            if (!allowed)
                break;
            int32_t id = TOKEN_NONE;
            uint64_t pick = rand_below(&r, allowed);
            for (uint32_t w = 0; w < g->vocab->n_words && id == TOKEN_NONE; w++) {
                uint64_t bits = m[w] & ~g->vocab->ends[w];
                uint64_t here = (uint64_t)__builtin_popcountll(bits);
                if (pick >= here) {
                    pick -= here;
                    continue;
                }
                while (pick--)
                    bits &= bits - 1;
                id = (int32_t)(w * 64 + (uint32_t)__builtin_ctzll(bits));
            }
            ASSERT(grammar_accept(s, id));
        }
        grammar_state_destroy(s);
    }
    qsort(us, n, sizeof *us, by_value);
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += us[i];
    printf("  %-6s %5zu masks: mean %8.1f us, median %8.2f, p99 %8.1f, most %8.1f\n", pass, n, sum / (double)n, us[n / 2],
           us[n * 99 / 100], us[n - 1]);
}

static void row(struct grammar_vocab *v, const char *name, enum grammar_kind kind, struct str source)
{
    struct grammar *g = NULL;
    struct error err = {0};
    uint64_t begin = cpu_ns();
    if (grammar_compile(v, kind, source, NULL, &g, &err) < 0) {
        printf("%-28s %s\n", name, err.text);
        return;
    }
    printf("%-28s compiled in %.0f us; %u nodes, %u rules, shortest %u tokens\n", name, us_since(begin), g->a.n_nodes,
           g->a.n_rules, grammar_shortest_tok(g));
    time_masks(g, "new");
    time_masks(g, "known");
    printf("  %u configs, %u frames, %u masks in %zu bytes\n", g->run.n_configs, g->run.n_frames, g->run.n_masks,
           g->run.mask_bytes);
    grammar_unref(g);
}

static void table(struct grammar_vocab *v)
{
    struct buf schema;
    buf_init(&schema);
    enum_schema(&schema);
    row(v, "any JSON object", GRAMMAR_JSON, (struct str){0});
    row(v, "4-level schema, 200 values", GRAMMAR_JSON_SCHEMA, buf_str(&schema));
    row(v, "string of at most 1000", GRAMMAR_JSON_SCHEMA, STR("{\"type\":\"string\",\"minLength\":100,\"maxLength\":1000}"));
    row(v, "pattern, date, integer", GRAMMAR_JSON_SCHEMA,
        STR("{\"type\":\"object\",\"properties\":{\"sku\":{\"type\":\"string\",\"pattern\":\"^[A-Z]{3}-[0-9]{4}$\"},\"on\":{"
            "\"type\":\"string\","
            "\"format\":\"date-time\"},\"n\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":12345}},\"required\":[\"sku\","
            "\"on\",\"n\"]}"));
    row(v, "regex with ambiguity", GRAMMAR_REGEX, STR("(a|b|ab)*(a|ba)(a|b){20}"));
    row(v, "GBNF arithmetic", GRAMMAR_GBNF,
        STR("root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | num | \"(\" ws expr \")\" "
            "ws\n"
            "ident ::= [a-z] [a-z0-9_]* ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*\n"));
    buf_release(&schema);
}

int main(int argc, char **argv)
{
    struct grammar_vocab *v = NULL;
    struct error err = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: bench_grammar rig|synthetic:N|FILE.gguf [serve]\n");
        return 2;
    }
    struct tokenizer *t = open_vocab(argv[1]);
    uint64_t begin = cpu_ns();
    if (grammar_vocab_create(t, (uint32_t)tokenizer_size(t), &v, &err) < 0)
        return 1;
    if (argc > 2) {
        serve(v);
    } else {
        uint32_t bytes = 0;
        for (uint32_t i = 0; i < v->all.n; i++)
            bytes += v->all.nodes[i].depth == 1 && v->all.nodes[i].token != TOKEN_NONE;
        printf("%u of 256 bytes have a token; vocabulary of %u tokens, the longest %u bytes: tries of %u and %u nodes in %.0f "
               "us\n",
               bytes, v->n_tok, v->max_bytes, v->all.n, v->rest.n, us_since(begin));
        table(v);
    }
    grammar_vocab_destroy(v);
    tokenizer_destroy(t);
    return 0;
}
