/* grammar_choice.c: one of a list of texts, given as a JSON array of strings: a trie. */
#include "base/status.h"
#include "text/grammar_priv.h"
#include "wire/json.h"

static void read_choices(struct gbuild *b, yyjson_val *list, uint32_t from, uint32_t to)
{
    size_t n = yyjson_arr_size(list), i, max;
    struct str *s = arena_array(&b->arena, n, sizeof *s);
    yyjson_val *v;
    if (!s) {
        gb_fail(b, STATUS_NOMEM, "no memory to compile the choices");
        return;
    }
    yyjson_arr_foreach(list, i, max, v)
    {
        if (!yyjson_is_str(v)) {
            gb_fail(b, STATUS_INVALID, "choice %zu is not a string", i);
            return;
        }
        s[i] = (struct str){yyjson_get_str(v), yyjson_get_len(v)};
    }
    gb_any_of(b, from, s, n, to);
}

uint32_t grammar__choice(struct gbuild *b, struct str source)
{
    struct json j;
    struct error err = {0};
    uint32_t rule = gb_rule(b, STR("the choice"));
    int rc = json_parse(&j, source, &(struct json_limits){.max_depth = 2}, &err);
    if (rc < 0) {
        gb_fail(b, rc, "the choices must be a JSON array of strings: %s", err.text);
        return 0;
    }
    if (!yyjson_is_arr(j.root) || yyjson_arr_size(j.root) == 0)
        gb_fail(b, STATUS_INVALID, "the choices must be a JSON array of at least one string");
    else if (b->rc == 0)
        read_choices(b, j.root, b->rules[rule].start, b->rules[rule].end);
    json_release(&j);
    return rule;
}
