/* The flag parser: forms, ranges, usage errors; and the server's configuration from a command line. Messages are checked in
 * tests/wire/test_cli.py, on the real binary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/cli.h"
#include "cli/config_args.h"
#include "cli/from_config.h"
#include "conf/config.h"
#include "../net/limits.h"

static const char *const words[] = {"constant", "poisson", NULL};

struct values {
    bool json, quiet;
    uint32_t count;
    double rate;
    uint64_t size, wait;
    const char *file, *arrival;
    struct cli_list headers;
    struct cli_list arguments;
    struct cli_config config;
};

static int parse(struct values *v, bool config, size_t max_arguments, const char *const *line)
{
    const struct cli_command command = {.name = "test", .arguments = "[A]...", .summary = "Test.", .details = ""};
    const struct cli_flag flags[] = {
        {.name = "json", .letter = 'j', .type = CLI_BOOL, .out = &v->json, .help = "x"},
        {.name = "quiet", .type = CLI_BOOL, .out = &v->quiet, .help = "x"},
        {.name = "count", .letter = 'n', .type = CLI_COUNT, .out = &v->count, .value = "N", .help = "x", .min = 1, .max = 10},
        {.name = "rate", .type = CLI_NUMBER, .out = &v->rate, .value = "N", .help = "x", .min = 0.5, .max = 1e6},
        {.name = "size", .type = CLI_BYTES, .out = &v->size, .value = "SIZE", .help = "x"},
        {.name = "wait", .type = CLI_DURATION, .out = &v->wait, .value = "TIME", .help = "x", .min = 0.001, .max = 60},
        {.name = "file", .letter = 'f', .type = CLI_STRING, .out = &v->file, .value = "FILE", .help = "x"},
        {.name = "arrival", .type = CLI_WORD, .out = &v->arrival, .value = "WORD", .help = "x", .words = words},
        {.name = "header", .letter = 'H', .type = CLI_LIST, .out = &v->headers, .value = "TEXT", .help = "x"},
    };
    const struct cli_spec spec = {.command = &command,
                                  .flags = flags,
                                  .n_flags = COUNT_OF(flags),
                                  .config = config ? &v->config : NULL,
                                  .min_arguments = max_arguments > 8 ? 1 : 0,
                                  .max_arguments = max_arguments};
    char *argv[32] = {(char[]){"test"}};
    int argc = 1;
    for (; line[argc - 1]; argc++)
        argv[argc] = (char *)(uintptr_t)line[argc - 1];
    return cli_parse(&spec, argc, argv, &v->arguments);
}

#define LINE(...) ((const char *const[]){__VA_ARGS__, NULL})

static void forms(void **state)
{
    (void)state;
    struct values v = {.quiet = true, .arrival = "constant"};
    assert_int_equal(parse(&v, false, 3,
                           LINE("--json", "--no-quiet", "-n", "7", "--rate=2.5", "--size", "64KiB", "--wait=250ms", "-fx.npy",
                                "a", "--arrival", "poisson", "-H", "A: 1", "-HB: 2", "-", "--", "--json=false")),
                     CLI_GO);
    assert_true(v.json);
    assert_false(v.quiet);
    assert_int_equal(v.count, 7);
    assert_true(v.rate == 2.5);
    assert_int_equal(v.size, 65536);
    assert_int_equal(v.wait, 250000000);
    assert_string_equal(v.file, "x.npy");
    assert_string_equal(v.arrival, "poisson");
    assert_int_equal(v.headers.n, 2);
    assert_string_equal(v.headers.v[1], "B: 2");
    assert_int_equal(v.arguments.n, 3);
    assert_string_equal(v.arguments.v[1], "-"); /* standard input is an argument */
    assert_string_equal(v.arguments.v[2], "--json=false");
    struct values w = {.json = true};
    assert_int_equal(parse(&w, false, 0, LINE("--json=false", "--file=")), CLI_GO);
    assert_false(w.json);
    assert_string_equal(w.file, "");
}

static void usage_errors(void **state)
{
    (void)state;
    static const char *const bad[][4] = {
        {"--nope"},
        {"--jsn"},
        {"-x"},
        {"-jj"},
        {"--count"},
        {"--count=0"},
        {"--count=11"},
        {"--count=1.5"},
        {"--count=-1"},
        {"--rate=0.1"},
        {"--rate=nan"},
        {"--size=4 parsecs"},
        {"--wait=10"},
        {"--wait=2m"},
        {"--arrival=burst"},
        {"--json=yes"},
        {"--json=1"},
        {"--no-count"},
        {"a", "b"},
        {"--http.threads=1"},
        {"-c", "f"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct values v = {0};
        assert_int_equal(parse(&v, false, 1, bad[i]), CLI_USAGE);
    }
    struct values v = {0};
    assert_int_equal(parse(&v, false, 9, LINE("--json")), CLI_USAGE); /* an argument is missing */
    assert_int_equal(parse(&v, false, 1, LINE("--json", "--help")), CLI_OK);
}

static void server_options(void **state)
{
    (void)state;
    struct values v = {0};
    struct config c;
    struct error err = {0};
    assert_int_equal(parse(&v, true, 4,
                           LINE("--limits.max_headers=80", "--port", "0", "--insecure", "--log-level=debug", "--load-model",
                                "a", "--repository.load=b", "--model-control-mode=explicit", "m1", "m2")),
                     CLI_GO);
    assert_int_equal(cli_config_load(&v.config, &v.arguments, &c, &err), 0);
    assert_int_equal(c.limits.max_headers, 80);
    assert_string_equal(c.http.listen.v[0], "127.0.0.1:0");
    assert_true(c.insecure);
    assert_int_equal(c.repository.load.n, 2);
    assert_int_equal(c.repository.paths.n, 2);
    assert_string_equal(c.repository.paths.v[1], "m2");
    assert_null(c.repository.paths.v[2]);
    config_release(&c);

    struct values bad = {0};
    assert_int_equal(parse(&bad, true, 0, LINE("--http.listen=0.0.0.0:1")), CLI_GO);
    assert_int_equal(cli_config_load(&bad.config, NULL, &c, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "--http.listen: 0.0.0.0:1 can be reached from other machines"));
}

static void server_file(void **state)
{
    (void)state;
    struct values v = {0};
    struct config c;
    struct error err = {0};
    char path[] = "/tmp/inferd_test_XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    fputs("limits:\n  max_headers: 50\n  max_pipeline: 3\nrepository: {paths: [x]}\n", f);
    fclose(f);
    assert_int_equal(parse(&v, true, 0, LINE("--config", path, "--limits.max_headers=60")), CLI_GO);
    assert_int_equal(cli_config_load(&v.config, &v.arguments, &c, &err), 0);
    assert_int_equal(c.limits.max_headers, 60); /* flags win */
    assert_int_equal(c.limits.max_pipeline, 3);
    assert_string_equal(c.repository.paths.v[0], "x"); /* no argument: the file's stay */
    config_release(&c);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs("limits:\n  max_headers: 1\n", f);
    fclose(f);
    assert_int_equal(cli_config_load(&v.config, NULL, &c, &err), STATUS_INVALID); /* a reload sees the file anew */
    char want[256];
    snprintf(want, sizeof want, "%s:2: limits.max_headers: '1' is not accepted; give a whole number in 8..1000", path);
    assert_string_equal(err.text, want);
    remove(path);
    assert_int_equal(cli_config_load(&v.config, NULL, &c, &err), STATUS_NOT_FOUND);
}

/* The configuration's defaults are those that are documented, and every limit is carried over: a limit that
 * from_config.c forgot would be 0 here. */
static void limits_agree(void **state)
{
    (void)state;
    struct config c;
    struct http_limits mine, theirs;
    struct error err = {0};
    memset(&mine, 0, sizeof mine); /* padding too */
    memset(&theirs, 0, sizeof theirs);
    assert_int_equal(config_init(&c, &err), 0);
    cli_http_limits(&c, &mine);
    default_limits(&theirs);
    assert_int_equal(theirs.max_connections, 10000);
    assert_int_equal(mine.max_connections, 16384); /* 10,000 idle clients and those that come and go */
    theirs.max_connections = mine.max_connections;
    assert_memory_equal(&mine, &theirs, sizeof mine);
    config_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),       cmocka_unit_test(usage_errors), cmocka_unit_test(server_options),
        cmocka_unit_test(server_file), cmocka_unit_test(limits_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
