/* vLLM's names: the page that must come is written from vLLM's own metric names and Prometheus' text format. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "api/api_priv.h"

static void test_two_models(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out);
    api__render_vllm(STR("# TYPE inferd_llm_requests_running gauge\n"
                         "inferd_llm_requests_running{model=\"a\",version=\"1\"} 3\n"
                         "inferd_llm_requests_running{model=\"b\",version=\"1\"} 0\n"
                         "# TYPE inferd_llm_requests_finished_total counter\n"
                         "inferd_llm_requests_finished_total{model=\"a\",version=\"1\",reason=\"cancelled\"} 2\n"
                         "# TYPE inferd_llm_kv_blocks gauge\n"
                         "inferd_llm_kv_blocks{model=\"a\",version=\"1\"} 8\n"
                         "inferd_llm_kv_blocks{model=\"b\",version=\"1\"} 4\n"
                         "# TYPE inferd_llm_kv_blocks_used gauge\n"
                         "inferd_llm_kv_blocks_used{model=\"a\",version=\"1\"} 2\n"
                         "# TYPE inferd_llm_queue_seconds histogram\n"
                         "inferd_llm_queue_seconds_bucket{model=\"a\",version=\"1\",le=\"0.5\"} 1\n"
                         "inferd_llm_queue_seconds_sum{model=\"a\",version=\"1\"} 0.25\n"
                         "# TYPE inferd_llm_other gauge\ninferd_llm_other{model=\"a\",version=\"1\"} 9\n"),
                     &out);
    assert_string_equal(buf_z(&out), "# TYPE vllm:num_requests_running gauge\n"
                                     "vllm:num_requests_running{model_name=\"a\"} 3\n"
                                     "vllm:num_requests_running{model_name=\"b\"} 0\n"
                                     "# TYPE vllm:request_success_total counter\n"
                                     "vllm:request_success_total{model_name=\"a\",finished_reason=\"abort\"} 2\n"
                                     "# TYPE vllm:request_queue_time_seconds histogram\n"
                                     "vllm:request_queue_time_seconds_bucket{model_name=\"a\",le=\"0.5\"} 1\n"
                                     "vllm:request_queue_time_seconds_sum{model_name=\"a\"} 0.25\n"
                                     "# TYPE vllm:kv_cache_usage_perc gauge\n"
                                     "vllm:kv_cache_usage_perc{model_name=\"a\"} 0.25\n"
                                     "vllm:kv_cache_usage_perc{model_name=\"b\"} 0\n"
                                     "# TYPE vllm:cache_config_info gauge\n"
                                     "vllm:cache_config_info{model_name=\"a\",block_size=\"32\",num_gpu_blocks=\"8\"} 1\n"
                                     "vllm:cache_config_info{model_name=\"b\",block_size=\"32\",num_gpu_blocks=\"4\"} 1\n");
    buf_release(&out);
}

static void test_nothing(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out);
    api__render_vllm((struct str){0}, &out);
    assert_int_equal(out.n, 0);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_models), cmocka_unit_test(test_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
