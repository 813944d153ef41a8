/* Redactors: what comes out of a text must not depend on how it was cut. The first byte chooses rules, form and bound, the second the size of the
 * pieces; the rest is the text. */
#include <stdint.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/policy.h"

static void check(bool ok)
{
    if (!ok)
        abort();
}

static struct policy_rule *rules[12];
static size_t n_rules;

static void add(struct policy_rule_spec s)
{
    struct error err;
    check(policy_rule_create(&s, &rules[n_rules], &err) == 0);
    n_rules++;
}

static void make_rules(void)
{
    static const struct str words[] = {STR("abc"), STR("abcd"), STR("b c"), STR("\xe4\xb8\xad")};
    for (size_t i = 0; policy_builtin_name(i); i++)
        add((struct policy_rule_spec){.name = policy_builtin_name(i), .builtin = policy_builtin_name(i)});
    add((struct policy_rule_spec){.name = "words", .literals = words, .n_literals = 4, .words = true, .ignore_case = true});
    add((struct policy_rule_spec){.name = "quoted", .regex = "<[^>]*>", .replacement = ""});
    add((struct policy_rule_spec){.name = "edges", .regex = "(?m)(?<=x|..)y+$|^z.?\\b", .replacement = "<e>"});
    add((struct policy_rule_spec){.name = "ahead", .regex = "a(?!.*b)c?", .action = POLICY_LOG});
    add((struct policy_rule_spec){.name = "refuse", .regex = "stop(\\w+)\\1", .action = POLICY_REFUSE});
}

static int run(uint8_t choice, struct str text, size_t piece, struct buf *out, uint64_t *hits)
{
    const struct policy_rule *const *first = (const struct policy_rule *const *)rules + (choice & 7);
    struct redactor *r =
        redactor_create(first, n_rules - (choice & 7), choice & 16 ? 64 : 256, choice & 32 ? REDACTOR_JSON : REDACTOR_TEXT);
    check(r != NULL);
    int rc = 0;
    buf_init(out);
    for (size_t at = 0; rc == 0 && at < text.n; at += piece)
        rc = redactor_push(r, (struct str){text.p + at, MIN_OF(piece, text.n - at)}, at + piece >= text.n && choice & 64, out);
    if (rc == 0 && !(choice & 64 && text.n))
        rc = redactor_push(r, (struct str){0}, true, out);
    *hits = 0;
    for (size_t i = 0; i < n_rules - (choice & 7); i++)
        *hits += policy_rule_action(first[i]) != POLICY_LOG ? redactor_hits(r, i) : 0;
    check(rc == 0 || redactor_refused_by(r));
    redactor_destroy(r);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 4096)
        return 0;
    if (!n_rules)
        make_rules();
    struct str text = {(const char *)data + 2, size - 2};
    size_t pieces[] = {1, (size_t)data[1] % 61 + 2};
    struct buf whole, out;
    uint64_t hits, again;
    int rc = run(data[0], text, size, &whole, &hits);
    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        check(run(data[0], text, pieces[i], &out, &again) == rc);
        check(str_eq(buf_str(&out), buf_str(&whole)));
        check(rc < 0 || again == hits);
        buf_release(&out);
    }
    buf_release(&whole);
    return 0;
}
