/* test_report.c: what replicas say of themselves, in the words of vLLM, Triton, SGLang and HAProxy's agents; and what a pool makes of it. */
#include "route/rig.h"

#include "route/report.h"

static struct upstream_report header(const char *text)
{
    struct upstream_report r;
    struct error err;
    assert_int_equal(report_read_header(str_of(text), &r, &err), 0);
    return r;
}

static void headers(void **state)
{
    (void)state;
    /* vLLM, text; Triton's name of the same, JSON */
    struct upstream_report r = header("TEXT named_metrics.kv_cache_usage_perc=0.25, named_metrics.num_requests_waiting=7.0");
    assert_true(r.has_load && !r.has_says && r.queued == 7);
    assert_float_equal(r.kv_use, 0.25, 1e-9);
    r = header("JSON {\"cpu_utilization\":0.5,\"named_metrics\":{\"kv_cache_utilization\":0.75,\"max_token_capacity\":1000}}");
    assert_true(r.has_load && r.queued == 0);
    assert_float_equal(r.kv_use, 0.75, 1e-9);
    r = header("TEXT named_metrics.num_requests_waiting=0,named_metrics.draining=1");
    assert_true(r.has_says && r.says == UPSTREAM_DRAINING);
    r = header("JSON {\"named_metrics\":{\"loading\":1}}");
    assert_true(r.has_says && r.says == UPSTREAM_LOADING && !r.has_load);
    r = header("TEXT named_metrics.draining=0");
    assert_true(r.has_says && r.says == UPSTREAM_READY);
    r = header("TEXT cpu_utilization=0.3,rps_fractional=10.0"); /* nothing that we look at */
    assert_true(!r.has_load && !r.has_says);
    r = header("TEXT named_metrics.num_requests_waiting=-5,named_metrics.kv_cache_usage_perc=1e9");
    assert_true(r.queued == 0 && r.kv_use <= 1.0);
    static const char *const bad[] = {"",
                                      "BIN aGVsbG8=",
                                      "TEXT named_metrics.num_requests_waiting=many",
                                      "TEXT nothing",
                                      "JSON {",
                                      "JSON []",
                                      "JSON {\"named_metrics\":{\"num_requests_waiting\":\"7\"}}"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct error err = {0};
        assert_int_equal(report_read_header(str_of(bad[i]), &r, &err), STATUS_INVALID);
        assert_true(err.text[0] != 0);
    }
}

static void pages(void **state)
{
    (void)state;
    static const char vllm[] =
        "# HELP vllm:num_requests_waiting Number of requests waiting.\n"
        "# TYPE vllm:num_requests_waiting gauge\n"
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"llama\"} 3.0\n"
        "vllm:num_requests_waiting{engine=\"1\",model_name=\"llama\"} 4.0\n"
        "vllm:num_requests_waiting_total{x=\"}\"} 99\n"
        "vllm:kv_cache_usage_perc{engine=\"0\"} 0.2\r\n"
        "vllm:kv_cache_usage_perc{engine=\"1\"} 0.6 1700000000000\n"
        "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"old\",waiting_lora_adapters=\"\"} 1.7e9\n"
        "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"sql,tone\",waiting_lora_adapters=\"x\"} 1.8e9\n"
        "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"older\",waiting_lora_adapters=\"\"} 1.6e9\n";
    struct upstream_report r;
    struct error err;
    assert_int_equal(report_read_metrics(str_of(vllm), &r, &err), 0);
    assert_true(r.has_load && r.queued == 7);
    assert_float_equal(r.kv_use, 0.6, 1e-9);
    assert_int_equal(r.n_adapters, 2);
    assert_true(r.adapters[0] == report_adapter(STR("sql")) && r.adapters[1] == report_adapter(STR("tone")));
    /* our own, once under each name: not twice as many */
    static const char ours[] =
        "inferd_llm_adapter_loaded{model=\"l\",adapter=\"tuned\"} 1\ninferd_llm_adapter_loaded{model=\"l\",adapter=\"sql\"} 1\n"
        "inferd_queue_rows{model=\"m\",version=\"1\"} 5\n"
        "inferd_llm_requests_waiting{model=\"l\"} 2\n"
        "inferd_llm_kv_blocks{model=\"l\"} 200\ninferd_llm_kv_blocks_used{model=\"l\"} 50\n"
        "vllm:num_requests_waiting{model_name=\"l\"} 2\nvllm:kv_cache_usage_perc{model_name=\"l\"} 0.25\n";
    assert_int_equal(report_read_metrics(str_of(ours), &r, &err), 0);
    assert_true(r.queued == 7 && r.n_adapters == 2);
    assert_true(r.adapters[0] == report_adapter(STR("tuned")) && r.adapters[1] == report_adapter(STR("sql")));
    assert_float_equal(r.kv_use, 0.25, 1e-9);
    assert_int_equal(report_read_metrics(STR("sglang:num_queue_reqs 6\nsglang:token_usage 0.5"), &r, &err), 0);
    assert_true(r.queued == 6);
    assert_int_equal(report_read_metrics(STR("go_goroutines 5\n<html>\nvllm:num_requests_waiting{ 1"), &r, &err),
                     STATUS_INVALID);
    assert_int_equal(report_read_metrics(STR(""), &r, &err), STATUS_INVALID);
    for (size_t n = 0; n < sizeof vllm; n++) /* cut anywhere */
        (void)!report_read_metrics((struct str){vllm, n}, &r, &err);
}

static struct upstream_report agent(const char *text)
{
    struct upstream_report r;
    struct error err;
    assert_int_equal(report_read_agent(str_of(text), &r, &err), 0);
    return r;
}

static void agents(void **state)
{
    (void)state;
    struct upstream_report r = agent("75%\n");
    assert_true(r.has_weight && r.weight_pc == 75 && !r.has_says);
    r = agent("ready up, 50% maxconn:30\r\nrest is not read");
    assert_true(r.has_says && r.says == UPSTREAM_READY && r.weight_pc == 50 && r.has_max_conns && r.max_conns == 30);
    r = agent("up drain");
    assert_int_equal(r.says, UPSTREAM_DRAINING);
    r = agent("down#disk is full, 90%\n"); /* the reason goes to the end of the line */
    assert_true(r.says == UPSTREAM_DOWN && !r.has_weight);
    assert_int_equal(agent("maint").says, UPSTREAM_MAINTENANCE);
    assert_int_equal(agent("loading").says, UPSTREAM_LOADING);
    assert_int_equal(agent("stopped").says, UPSTREAM_DOWN);
    static const char *const bad[] = {"", "\n", "   \nready", "weird", "1000000%", "maxconn:-1", "ready weird"};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct error err = {0};
        assert_int_equal(report_read_agent(str_of(bad[i]), &r, &err), STATUS_INVALID);
    }
}

static void tell(struct rig *r, char who, const char *line)
{
    struct upstream_report rep = agent(line);
    pool_reported(r->p, rig_view(r, who).upstream, &rep, r->now);
    pool_validate(r->p);
}

static unsigned got(struct rig *r, char who, unsigned n)
{
    unsigned k = 0;
    for (unsigned i = 0; i < n; i++)
        k += rig_ask(r, NULL, 0, PICK_OK) == who;
    return k;
}

/* A replica that drains gets nothing new, ends what it has, and comes back by its word, or when it has not repeated it for ten seconds. */
static void draining(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){0});
    rig_equal(&r, 2);
    struct pick first = rig_pick(&r, NULL), second = rig_pick(&r, NULL);
    tell(&r, 'a', "drain");
    assert_int_equal(got(&r, 'a', 20), 0);
    assert_int_equal(rig_view(&r, 'a').in_flight, 1);
    pool_done(r.p, &first, PICK_OK, r.now);
    pool_done(r.p, &second, PICK_OK, r.now);
    tell(&r, 'a', "ready");
    assert_int_equal(got(&r, 'a', 20), 10);
    assert_int_equal(r.events[POOL_SAYS], 2);
    tell(&r, 'a', "maint");
    for (int i = 0; i < 5; i++) { /* said again: it holds */
        r.now += 9 * SEC;
        pool_tick(r.p, r.now);
        assert_int_equal(got(&r, 'a', 4), 0);
        tell(&r, 'a', "maint");
    }
    r.now += 10 * SEC;
    pool_tick(r.p, r.now);
    assert_int_equal(got(&r, 'a', 20), 10);
    rig_release(&r);
}

/* Weight and max_conns of an agent; weight 0 is a drain, and ends with the next weight. A load report changes none of it. */
static void weights(void **state)
{
    (void)state;
    struct rig r;
    rig_init(&r, &(struct pool_options){0});
    rig_equal(&r, 2);
    tell(&r, 'a', "50%");
    assert_int_equal(got(&r, 'a', 30), 10);
    tell(&r, 'a', "0%");
    assert_int_equal(got(&r, 'a', 30), 0);
    tell(&r, 'a', "100%");
    assert_int_equal(got(&r, 'a', 30), 15);
    tell(&r, 'a', "maxconn:1");
    struct pick held[4];
    for (size_t i = 0; i < COUNT_OF(held); i++) {
        held[i] = rig_pick(&r, NULL);
        struct upstream_report load = header("TEXT named_metrics.num_requests_waiting=1");
        pool_reported(r.p, rig_view(&r, 'a').upstream, &load, r.now);
    }
    assert_int_equal(rig_view(&r, 'a').in_flight, 1);
    assert_int_equal(rig_view(&r, 'a').queued, 1);
    for (size_t i = 0; i < COUNT_OF(held); i++)
        pool_done(r.p, &held[i], PICK_OK, r.now);
    rig_release(&r);
}

/* What reports a long queue is full, until it reports a shorter one or its report is old: then requests are better off there than nowhere. */
static void a_reported_queue_is_full(void **state)
{
    (void)state;
    struct rig r;
    struct pick k;
    struct error err;
    struct pick_request q = {0};
    struct upstream_report load = header("TEXT named_metrics.num_requests_waiting=4");
    rig_init(&r, &(struct pool_options){.max_queued = 4});
    rig_equal(&r, 2);
    pool_reported(r.p, rig_view(&r, 'a').upstream, &load, r.now);
    assert_int_equal(got(&r, 'a', 10), 0);
    pool_reported(r.p, rig_view(&r, 'b').upstream, &load, r.now);
    assert_int_equal(pool_pick(r.p, &q, r.now, &k, &err), STATUS_EXHAUSTED);
    load.queued = 3;
    pool_reported(r.p, rig_view(&r, 'b').upstream, &load, r.now);
    assert_int_equal(got(&r, 'b', 10), 10);
    r.now += 201 * MS;
    assert_int_equal(got(&r, 'a', 10), 5);
    rig_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers),
        cmocka_unit_test(pages),
        cmocka_unit_test(agents),
        cmocka_unit_test(draining),
        cmocka_unit_test(a_reported_queue_is_full),
        cmocka_unit_test(weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
