/* guard.c: what the guard costs by itself, CPU time of one thread: redactors over prose, whole and in pieces of 4 bytes as a language model says
 * them; and what an inference of 16 floats pays for its checks and a reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/size.h"
#include "base/status.h"
#include "edge/guard.h"
#include "edge/policy.h"

#define PROSE  "the quick brown fox jumps over 12 lazy dogs in 2024, and pays $300 to Mr. O'Neil for it. "
#define COPIES 4000
#define PIECE  4
#define ROUNDS 200000
#define RULES  16

static const char policies[] = "inputs:\n"
                               "- name: trivial\n"
                               "  match: {model: trivial, route: 'infer,grpc_*'}\n"
                               "  content_types: [application/octet-stream, application/json]\n"
                               "  tensors: [{input: X, dtype: FP32, shape: [-1, 16], range: [-1000, 1000], finite: true}]\n";

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(bool ok)
{
    if (!ok)
        exit(1);
}

static void push(struct redactor *r, struct str text, bool last, struct buf *out)
{
    must(redactor_push(r, text, last, out) == 0);
}

static void measure_text(const char *name, const struct policy_rule *const *rules, size_t n, struct str text)
{
    struct redactor *r = redactor_create(rules, n, 0, REDACTOR_TEXT);
    struct buf out;
    must(r != NULL);
    buf_init(&out);
    double t = cpu_ns();
    push(r, text, true, &out);
    double whole = cpu_ns() - t;
    size_t pieces = text.n / PIECE / 10;
    t = cpu_ns();
    for (size_t i = 0; i < pieces; i++) {
        buf_clear(&out);
        push(r, (struct str){text.p + i * PIECE, PIECE}, false, &out);
    }
    printf("guard %-7s whole %5.1f MB/s, in pieces of %d bytes %.2f us each\n", name, (double)text.n * 1e3 / whole, PIECE,
           (cpu_ns() - t) / 1e3 / (double)pieces);
    redactor_destroy(r);
    buf_release(&out);
}

static void measure_rules(void)
{
    struct policy_rule *rules[RULES];
    struct buf text;
    size_t n = 0;
    buf_init(&text);
    for (int i = 0; i < COPIES; i++)
        buf_append_z(&text, PROSE);
    for (; n < RULES && policy_builtin_name(n); n++) {
        const struct policy_rule_spec s = {.name = policy_builtin_name(n), .builtin = policy_builtin_name(n)};
        must(policy_rule_create(&s, &rules[n], NULL) == 0);
        measure_text(s.name, (const struct policy_rule *const *)&rules[n], 1, buf_str(&text));
    }
    measure_text("all", (const struct policy_rule *const *)rules, n, buf_str(&text));
    for (size_t i = 0; i < n; i++)
        policy_rule_destroy(rules[i]);
    buf_release(&text);
}

static void measure_inputs(void)
{
    static float sample[2000 * 16], x[16];
    struct guard_set *s;
    struct guard_reference *r;
    struct guard_score score;
    enum guard_check what;
    int rc = 0;
    unsigned seed = 1;
    for (size_t i = 0; i < COUNT_OF(sample); i++)
        sample[i] = (float)((seed = seed * 1103515245u + 12345u) >> 8) / (float)(1u << 24);
    const struct tensor rows = {.dtype = DTYPE_FP32, .shape = {2, {2000, 16}}, .data = slice_borrow(sample, sizeof sample)};
    const struct tensor t = {.name = STR("X"), .dtype = DTYPE_FP32, .shape = {2, {1, 16}}, .data = slice_borrow(x, sizeof x)};
    const struct guard_who who = {
        .tenant = STR("default"), .quota_class = STR("default"), .model = STR("trivial"), .route = STR("infer")};
    must(guard_set_parse(str_of(policies), "bench", &s, NULL) == 0);
    must(guard_reference_fit(&rows, 1u << GUARD_ROBUST_Z | 1u << GUARD_MAHALANOBIS, 0.01, NULL, &r, NULL) == 0);
    double a = cpu_ns();
    for (int i = 0; i < ROUNDS; i++) {
        rc |= !guard_matches(&s->inputs[0].match, &who);
        rc |= guard_check_type(&s->inputs[0], STR("application/octet-stream"), &what, NULL);
        rc |= guard_check_tensor(&s->inputs[0], &t, NULL, &what, NULL);
    }
    double b = cpu_ns();
    for (int i = 0; i < ROUNDS; i++)
        guard_reference_score(r, &t, 0, &score);
    must(rc == 0);
    printf("guard an inference of 16 floats: match, type, shape and range %.0f ns; robust z and Mahalanobis %.0f ns\n",
           (b - a) / ROUNDS, (cpu_ns() - b) / ROUNDS);
    guard_reference_unref(r);
    guard_set_unref(s);
}

int main(void)
{
    measure_rules();
    measure_inputs();
    return 0;
}
