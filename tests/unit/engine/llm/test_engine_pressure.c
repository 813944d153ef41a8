/* test_engine_pressure.c: too little memory and too many who leave: eight requests that need 100 blocks of a pool of 64 all finish as alone; 500
 * cancels at random moments during 64 streams change no other stream and leave no block behind; 2,000 distinct prompts leave the
 * process as large as it was. */
#include <unistd.h>

#include "base/size.h"
#include "engine_rig.h"

static char temp[] = "/tmp/inferd_pressure_XXXXXX";

/* A pool of exactly `blocks`. */
static struct engine_model *load_with_blocks(uint32_t blocks, const char *threads)
{
    const char *const probe[] = {"kv_cache_bytes", "4MiB", NULL};
    struct engine_model *m = rig_load_from(temp, "m.gguf", probe);
    uint64_t block = ((uint64_t)4 << 20) / rig_metric(m, "kv_blocks");
    engine_llm.unload(m);
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)(block * blocks));
    const char *const options[] = {"threads", threads, "kv_cache_bytes", bytes, NULL};
    m = rig_load_from(temp, "m.gguf", options);
    assert_int_equal(blocks, rig_metric(m, "kv_blocks"));
    return m;
}

/* ---- 64 blocks for those who need 100 ---- */

#define PROMPT 200
#define ANSWER 200 /* 400 tokens: 12.5 blocks, 8 of them 100 */

static struct token_request pool_request(uint32_t i, int32_t prompt[PROMPT], struct answer *a)
{
    rig_prompt(prompt, PROMPT, 64, i + 1);
    struct token_request r = rig_request(prompt, PROMPT, a);
    r.params.temperature = i % 2 ? 1.0f : 0.0f;
    r.params.seed = i;
    r.params.max_tok = ANSWER;
    return r;
}

static void eight_need_a_hundred_of_64(void **state)
{
    (void)state;
    static int32_t prompts[8][PROMPT];
    struct answer *want[8], *got[8];
    struct engine_model *m = load_with_blocks(64, "1");
    for (uint32_t i = 0; i < 8; i++) {
        want[i] = answer_new();
        struct token_request r = pool_request(i, prompts[i], want[i]);
        rig_submit(m, &r);
        answer_wait(want[i]);
    }
    assert_int_equal(0, rig_metric(m, "preemptions_total"));
    engine_llm.unload(m);
    m = load_with_blocks(64, "2");
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 8; i++) {
            got[i] = answer_new();
            struct token_request r = pool_request(i, prompts[i], got[i]);
            rig_submit(m, &r);
        }
        for (uint32_t i = 0; i < 8; i++) {
            answer_wait(got[i]);
            assert_int_equal(TOKEN_EVENT_DONE, got[i]->kind);
            assert_int_equal(TOKEN_FINISH_LENGTH, got[i]->finish);
            assert_same_answer(want[i], got[i]);
            answer_free(got[i]);
        }
        assert_int_equal(0, rig_metric(m, "kv_blocks_used"));
    }
    uint64_t preempted = rig_metric(m, "preemptions_total");
    print_message("%llu preemptions in 3 rounds\n", (unsigned long long)preempted);
    assert_in_range(preempted, 1, 3 * 8 * 4); /* pushed out, yes, but not to and fro */
    for (uint32_t i = 0; i < 8; i++)
        answer_free(want[i]);
    engine_llm.unload(m);
}

/* ---- 500 who leave ---- */

#define KEPT    24 /* streams that must not notice */
#define LEAVING 40 /* others at any time: 64 together */
#define CANCELS 500

static uint32_t random_below(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % n;
}

static struct token_request kept_request(uint32_t i, int32_t prompt[PROMPT], struct answer *a)
{
    rig_prompt(prompt, 40 + i, 64, 100 + i);
    struct token_request r = rig_request(prompt, 40 + i, a);
    r.params.temperature = i % 2 ? 1.0f : 0.0f;
    r.params.seed = i;
    r.params.max_tok = 400;
    return r;
}

struct leaver {
    struct answer *a;
    uint64_t id;
    int32_t prompt[400];
};

static void enter(struct engine_model *m, struct leaver *l, uint32_t *seed)
{
    uint32_t n = 1 + random_below(seed, 400);
    l->a = answer_new();
    rig_prompt(l->prompt, n, 64, *seed);
    struct token_request r = rig_request(l->prompt, n, l->a);
    r.params.max_tok = 400;
    r.params.n = r.params.best_of = 1 + random_below(seed, 10) / 8;
    l->id = rig_submit(m, &r);
}

static void leave(struct engine_model *m, struct leaver *l, uint64_t *cancelled)
{
    engine_llm.cancel_id(m, l->id);
    answer_wait(l->a);
    assert_int_equal(TOKEN_EVENT_DONE, l->a->kind);
    *cancelled += l->a->finish == TOKEN_FINISH_CANCELLED;
    answer_free(l->a);
}

static void five_hundred_leave(void **state)
{
    (void)state;
    static int32_t prompts[KEPT][PROMPT];
    static struct leaver leavers[LEAVING];
    struct answer *want[KEPT], *got[KEPT];
    uint32_t seed = 5;
    uint64_t cancelled = 0;
    struct engine_model *m = load_with_blocks(200, "1");
    for (uint32_t i = 0; i < KEPT; i++) {
        want[i] = answer_new();
        struct token_request r = kept_request(i, prompts[i], want[i]);
        rig_submit(m, &r);
        answer_wait(want[i]);
    }
    for (uint32_t i = 0; i < LEAVING; i++)
        enter(m, &leavers[i], &seed);
    for (uint32_t i = 0; i < KEPT; i++) {
        got[i] = answer_new();
        struct token_request r = kept_request(i, prompts[i], got[i]);
        rig_submit(m, &r);
    }
    for (uint32_t i = 0; i < CANCELS; i++) { /* queued, reading their prompts or answering: whatever they are at */
        struct leaver *l = &leavers[random_below(&seed, LEAVING)];
        usleep(random_below(&seed, 1500));
        leave(m, l, &cancelled);
        enter(m, l, &seed);
    }
    for (uint32_t i = 0; i < LEAVING; i++)
        leave(m, &leavers[i], &cancelled);
    for (uint32_t i = 0; i < KEPT; i++) {
        answer_wait(got[i]);
        assert_int_equal(TOKEN_FINISH_LENGTH, got[i]->finish);
        assert_same_answer(want[i], got[i]);
        answer_free(want[i]);
        answer_free(got[i]);
    }
    print_message("%llu of %d ended as cancelled\n", (unsigned long long)cancelled, CANCELS + LEAVING);
    assert_true(cancelled > CANCELS / 2);
    assert_int_equal(0, rig_metric(m, "kv_blocks_used"));
    assert_int_equal(0, rig_metric(m, "requests_running"));
    engine_llm.unload(m);
}

/* ---- nothing grows ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SHADOWED 1 /* freed memory is kept in quarantine: the size says nothing */
#else
#define SHADOWED 0
#endif

static uint64_t resident_bytes(void)
{
    struct buf b;
    struct error err = {0};
    buf_init(&b);
    assert_int_equal(0, os_file_read("/proc/self/statm", 4096, &b, &err));
    uint64_t pages = strtoull(strchr(buf_z(&b), ' '), NULL, 10);
    buf_release(&b);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void ask_distinct(struct engine_model *m, uint32_t from, uint32_t n)
{
    struct answer *a[8];
    int32_t prompts[8][100];
    for (uint32_t i = from; i < from + n; i += 8) {
        for (uint32_t k = 0; k < 8; k++) {
            a[k] = answer_new();
            rig_prompt(prompts[k], 100, 64, i + k + 1000);
            struct token_request r = rig_request(prompts[k], 100, a[k]);
            r.params.max_tok = 4;
            rig_submit(m, &r);
        }
        for (uint32_t k = 0; k < 8; k++) {
            answer_wait(a[k]);
            assert_int_equal(TOKEN_EVENT_DONE, a[k]->kind);
            assert_int_equal(0, a[k]->usage.cached_tok);
            answer_free(a[k]);
        }
    }
}

static void two_thousand_prompts_leave_nothing(void **state)
{
    (void)state;
    struct engine_model *m = load_with_blocks(128, "1");
    ask_distinct(m, 0, 496); /* the pool has been used whole, the allocator has its arenas */
    uint64_t before = resident_bytes();
    ask_distinct(m, 496, 2000);
    uint64_t after = resident_bytes();
    int64_t each = ((int64_t)after - (int64_t)before) / 2000;
    print_message("%lld bytes a request\n", (long long)each);
    if (!SHADOWED)
        assert_true(each < 1024);
    assert_int_equal(0, rig_metric(m, "kv_blocks_used"));
    assert_true(rig_metric(m, "kv_evictions_total") > 2000 * 3);
    engine_llm.unload(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(eight_need_a_hundred_of_64), cmocka_unit_test(five_hundred_leave),
                                       cmocka_unit_test(two_thousand_prompts_leave_nothing)};
    if (!mkdtemp(temp))
        return 1;
    rig_copy_with_context("llama", temp, "m.gguf", 1024);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char path[128];
    snprintf(path, sizeof path, "%s/m.gguf", temp);
    unlink(path);
    rmdir(temp);
    return failed;
}
