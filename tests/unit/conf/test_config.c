/* The server's configuration: defaults, file, flags, errors, reload. Expected values are those of docs and issue texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/status.h"
#include "conf/config.h"
#include "conf/options.h"

static const char *fake_env(const char *name)
{
    if (!strcmp(name, "PORT"))
        return "9000";
    return strcmp(name, "EVIL") ? NULL : "x\nadmin: {listen: 0.0.0.0:1}";
}

static void load(struct config *c, const char *yaml)
{
    struct error err = {0};
    assert_int_equal(config_init(c, &err), 0);
    if (config_apply_yaml(c, str_of(yaml), "inferd.yaml", fake_env, &err) != 0)
        fail_msg("%s", err.text);
}

static void refuses(const char *yaml, const char *want)
{
    struct config c;
    struct error err = {0};
    assert_int_equal(config_init(&c, &err), 0);
    assert_int_equal(config_apply_yaml(&c, str_of(yaml), "inferd.yaml", fake_env, &err), STATUS_INVALID);
    assert_string_equal(err.text, want);
    config_release(&c);
}

static void flag(struct config *c, const char *name, const char *value)
{
    struct error err = {0};
    if (config_apply_flag(c, str_of(name), str_of(value), &err) != 0)
        fail_msg("%s", err.text);
}

static void flag_refused(const char *name, const char *value, int status, const char *want)
{
    struct config c;
    struct error err = {0};
    assert_int_equal(config_init(&c, &err), 0);
    assert_int_equal(config_apply_flag(&c, str_of(name), str_of(value), &err), status);
    assert_string_equal(err.text, want);
    config_release(&c);
}

static void defaults(void **state)
{
    (void)state;
    struct config c;
    struct error err = {0};
    assert_int_equal(config_init(&c, &err), 0);
    assert_int_equal(c.http.listen.n, 1);
    assert_string_equal(c.http.listen.v[0], "127.0.0.1:8000");
    assert_null(c.http.listen.v[1]);
    assert_string_equal(c.metrics.listen.v[0], "127.0.0.1:8002");
    assert_int_equal(c.admin.listen.n, 0);
    assert_int_equal(c.limits.max_body_bytes, 64 << 20);
    assert_int_equal(c.limits.header_timeout, 10000000000);
    assert_int_equal(c.repository.mode, CONFIG_MODE_NONE);
    assert_true(c.repository.strict_readiness);
    assert_int_equal(c.log.level, LOG_INFO);
    assert_string_equal(c.onnxruntime.graph_optimization, "all");
    assert_string_equal(c.state_dir, "");
    assert_int_equal(c.scheduler.default_deadline, 0);
    assert_int_equal(config_check(&c, &err), 0);
    config_release(&c);
}

static void every_row_is_sound(void **state)
{
    (void)state;
    struct config c;
    struct error err = {0};
    assert_int_equal(config_init(&c, &err), 0); /* each default is accepted by its own row */
    for (size_t i = 0; i < option_count(); i++) {
        const struct option *row = option_at(i);
        struct buf v = {0};
        assert_ptr_equal(option_find(str_of(row->name)), row);
        assert_int_equal(option_index(row), i);
        assert_true(strlen(row->help) > 10);
        assert_true(row->offset < sizeof c);
        config_render_value(&c, row, &v); /* defaults are spelled as they are rendered */
        assert_string_equal(buf_z(&v), row->initial);
        buf_release(&v);
        for (size_t k = 0; k < i; k++)
            assert_true(option_at(k)->offset != row->offset);
    }
    size_t n;
    const struct option_alias *aliases = option_aliases(&n);
    for (size_t i = 0; i < n; i++)
        assert_non_null(option_find(str_of(aliases[i].option)));
    config_release(&c);
}

static void file_and_flags(void **state)
{
    (void)state;
    struct config c;
    load(&c, "http:\n"
             "  listen: [127.0.0.1:80, \"[::1]:81\", unix:/run/i.sock]\n"
             "limits:\n"
             "  max_body_bytes: 1GiB\n"
             "  idle_timeout: 250ms\n"
             "  max_headers: 64\n"
             "repository: {mode: explicit, load: a, follow_symlinks: true}\n"
             "log.level: debug\n"
             "shutdown:\n"
             "onnxruntime:\n"
             "  providers:\n"
             "    - cuda\n"
             "    - cpu\n"
             "  cache_dir: '/var/a, b'\n");
    assert_int_equal(c.http.listen.n, 3);
    assert_string_equal(c.http.listen.v[2], "unix:/run/i.sock");
    assert_int_equal(c.limits.max_body_bytes, 1 << 30);
    assert_int_equal(c.limits.idle_timeout, 250000000);
    assert_int_equal(c.limits.max_headers, 64);
    assert_int_equal(c.repository.mode, CONFIG_MODE_EXPLICIT);
    assert_true(c.repository.follow_symlinks);
    assert_int_equal(c.log.level, LOG_DEBUG);
    assert_string_equal(c.onnxruntime.providers.v[0], "cuda");
    assert_string_equal(c.onnxruntime.cache_dir, "/var/a, b");
    flag(&c, "limits.max_headers", "99");
    flag(&c, "port", "8080"); /* replaces the file's list */
    flag(&c, "http.listen", "127.0.0.1:8081");
    flag(&c, "load-model", "b, c"); /* a flag replaces, again it adds */
    flag(&c, "repository.load", "d");
    flag(&c, "insecure", "true");
    assert_int_equal(c.limits.max_headers, 99);
    assert_int_equal(c.http.listen.n, 2);
    assert_string_equal(c.http.listen.v[0], "127.0.0.1:8080");
    assert_string_equal(c.http.listen.v[1], "127.0.0.1:8081");
    assert_int_equal(c.repository.load.n, 3);
    assert_string_equal(c.repository.load.v[1], "c");
    assert_string_equal(c.repository.load.v[2], "d");
    assert_true(c.insecure);
    config_release(&c);
}

static void environment(void **state)
{
    (void)state;
    struct config c;
    load(&c, "http: {listen: '127.0.0.1:${PORT}'}\nstate_dir: ${NONE:-/var/lib/inferd}\nlog: {file: a$$b}\nonnxruntime:\n  "
             "cache_dir: ${EVIL}\n");
    assert_string_equal(c.http.listen.v[0], "127.0.0.1:9000");
    assert_string_equal(c.state_dir, "/var/lib/inferd");
    assert_string_equal(c.log.file, "a$b");
    assert_string_equal(c.onnxruntime.cache_dir, "x\nadmin: {listen: 0.0.0.0:1}"); /* a value is a value, never more YAML */
    assert_int_equal(c.admin.listen.n, 0);
    config_release(&c);
    refuses("\nstate_dir: ${NONE}\n",
            "inferd.yaml:2: the environment variable NONE is not set; ${NONE:-value} gives a default");
    refuses("state_dir: ${A B}\n", "inferd.yaml:1: ${A B} does not name a variable; write $$ for a dollar sign");
    refuses("state_dir: ${A\n", "inferd.yaml:1: '${' is not closed");
}

static void errors(void **state)
{
    (void)state;
    refuses("http:\n  lissten: x\n", "inferd.yaml:2: there is no option 'http.lissten'; did you mean 'http.listen'?");
    refuses("limits:\n  max_body_byte: 1\n",
            "inferd.yaml:2: there is no option 'limits.max_body_byte'; did you mean 'limits.max_body_bytes'?");
    refuses("limit:\n  max_headers: 1\n", "inferd.yaml:1: there is no option 'limit'; did you mean 'limits'?");
    refuses("zzz: 1\n", "inferd.yaml:1: there is no option 'zzz'");
    refuses("limits: 5\n", "inferd.yaml:1: 'limits' is a section; give its options below it");
    refuses("limits:\n  max_headers: many\n",
            "inferd.yaml:2: limits.max_headers: 'many' is not accepted; give a whole number in 8..1000");
    refuses("limits:\n  max_headers: 7\n",
            "inferd.yaml:2: limits.max_headers: '7' is not accepted; give a whole number in 8..1000");
    refuses("limits: {max_body_bytes: 1023}\n",
            "inferd.yaml:1: limits.max_body_bytes: '1023' is not accepted; give a size in 1KiB..1TiB");
    refuses("limits: {idle_timeout: 5}\n", "inferd.yaml:1: limits.idle_timeout: '5' is not accepted; give a time in 10ms..24h");
    refuses("limits: {max_headers: [9]}\n",
            "inferd.yaml:1: limits.max_headers: '[...]' is not accepted; give a whole number in 8..1000");
    refuses("repository: {mode: pol}\n", "inferd.yaml:1: repository.mode: 'pol' is not accepted; give none, poll or explicit");
    refuses("insecure: 1\n", "inferd.yaml:1: insecure: '1' is not accepted; give true or false");
    refuses("http:\n  listen:\n    - 127.0.0.1:1\n    - 127.0.0.1\n",
            "inferd.yaml:4: http.listen: '127.0.0.1' is not accepted; give a list of at most 16, each HOST:PORT, [IPV6]:PORT, "
            "*:PORT or unix:/PATH");
    refuses("onnxruntime: {providers: [gpu]}\n", "inferd.yaml:1: onnxruntime.providers: 'gpu' is not accepted; give a list of "
                                                 "at most 8, each cpu, cuda, tensorrt, openvino or xnnpack");
    refuses("limits: {max_headers: 9}\nlimits.max_headers: 10\n",
            "inferd.yaml:2: limits.max_headers is there twice; the first is in line 1");
    refuses("- a\n", "inferd.yaml:1: the file must be a map of options");
    flag_refused("limits.max_headers", "7", STATUS_INVALID,
                 "--limits.max_headers: '7' is not accepted; give a whole number in 8..1000");
    flag_refused("port", "70000", STATUS_INVALID, "--port: '70000' is not accepted; give a port in 0..65535");
    flag_refused("prot", "1", STATUS_NOT_FOUND, "there is no option --prot; did you mean 'port'?");
    flag_refused("http.treads", "1", STATUS_NOT_FOUND, "there is no option --http.treads; did you mean 'http.threads'?");
}

static void check_is(const char *yaml, const char *want)
{
    struct config c;
    struct error err = {0};
    load(&c, yaml);
    int rc = config_check(&c, &err);
    assert_int_equal(rc, *want ? STATUS_INVALID : 0);
    assert_string_equal(err.text, want);
    config_release(&c);
}

static void whole_rules(void **state)
{
    (void)state;
    check_is("http: {listen: [127.0.0.2:1, '[::1]:1', localhost:1, unix:/x, 127.0.0.1:0, 127.0.0.1:0]}\n", "");
    check_is("\nhttp: {listen: 0.0.0.0:8000}\n", "inferd.yaml:2: http.listen: 0.0.0.0:8000 can be reached from other machines "
                                                 "and there is no authentication or TLS; listen "
                                                 "on 127.0.0.1 or set `insecure: true` (--insecure)");
    check_is("metrics: {listen: '*:8002'}\n", "inferd.yaml:1: metrics.listen: *:8002 can be reached from other machines and "
                                              "there is no authentication or TLS; listen "
                                              "on 127.0.0.1 or set `insecure: true` (--insecure)");
    check_is("http: {listen: 0.0.0.0:8000}\ninsecure: true\n", "");
    check_is("http: {listen: []}\n", "inferd.yaml:1: http.listen: at least one address is needed");
    check_is("metrics: {listen: []}\n", "");
    check_is("admin: {listen: 127.0.0.1:8000}\n", "inferd.yaml:1: admin.listen: 127.0.0.1:8000 is there twice");
    check_is("repository: {load: [a]}\n",
             "inferd.yaml:1: repository.load: it has an effect only with `repository.mode: explicit`");
}

static void listen_addresses(void **state)
{
    (void)state;
    static const char *const good[] = {"127.0.0.1:8000", "localhost:0", "[::1]:65535", "*:80", "unix:/run/x", "a-b.c:1"};
    static const char *const bad[] = {"",      ":80",   "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:80", "[::1:80",
                                      "[]:80", "[g]:1", "unix:",     "unix:x",     "a b:1",           "**:1",   "x:-1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(config_listen_valid(str_of(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (config_listen_valid(str_of(bad[i])))
            fail_msg("accepted: %s", bad[i]);
}

struct seen {
    char text[512];
};

static void note(void *ctx, const struct option *row, bool applies)
{
    struct seen *s = ctx;
    size_t n = strlen(s->text);
    snprintf(s->text + n, sizeof s->text - n, "%s%s ", row->name, applies ? "+" : "-");
}

static void reload(void **state)
{
    (void)state;
    struct config running, fresh;
    struct seen seen = {{0}};
    struct error err = {0};
    load(&running, "http: {listen: 127.0.0.1:1}\nlimits: {max_headers: 50}\nlog: {level: warn}\nstate_dir: /a,b\n");
    load(&fresh, "http: {listen: [127.0.0.1:2, 127.0.0.1:3]}\nlimits: {max_headers: 60}\nlog: {level: warn}\nstate_dir: /c\n");
    assert_int_equal(config_reconcile(&fresh, &running, note, &seen, &err), 3);
    assert_string_equal(seen.text, "http.listen- limits.max_headers+ state_dir- ");
    assert_int_equal(fresh.http.listen.n, 1);
    assert_string_equal(fresh.http.listen.v[0], "127.0.0.1:1");
    assert_string_equal(fresh.state_dir, "/a,b");
    assert_int_equal(fresh.limits.max_headers, 60);
    config_release(&running); /* nothing in `fresh` points into it */
    assert_string_equal(fresh.http.listen.v[0], "127.0.0.1:1");
    config_release(&fresh);
}

static void yaml_round_trip(void **state)
{
    (void)state;
    struct config a, b;
    struct buf first = {0}, second = {0};
    load(&a, "http: {listen: [127.0.0.1:1, unix:/x]}\nlimits: {max_body_bytes: 1536, idle_timeout: 1500ms}\nlog: {file: 'a "
             "$${X} \"q\" #'}\n");
    flag(&a, "compute.threads", "3");
    config_render_yaml(&a, &first);
    assert_non_null(strstr(buf_z(&first), "  max_body_bytes: 1536  # inferd.yaml:2\n"));
    assert_non_null(strstr(buf_z(&first), "compute:\n  threads: 3  # flag\n"));
    load(&b, buf_z(&first));
    for (size_t i = 0; i < option_count(); i++) {
        buf_clear(&first);
        buf_clear(&second);
        config_render_value(&a, option_at(i), &first);
        config_render_value(&b, option_at(i), &second);
        assert_string_equal(buf_z(&first), buf_z(&second));
    }
    buf_release(&first);
    buf_release(&second);
    config_release(&a);
    config_release(&b);
}

static void documents(void **state)
{
    (void)state;
    struct buf help = {0}, page = {0};
    config_render_help(&help);
    config_render_markdown(&page);
    for (size_t i = 0; i < option_count(); i++) {
        assert_non_null(strstr(buf_z(&help), option_at(i)->name));
        assert_non_null(strstr(buf_z(&page), option_at(i)->name));
    }
    assert_non_null(strstr(buf_z(&help), "  limits.max_headers* = 100\n"));
    assert_non_null(strstr(buf_z(&page), "| `limits.max_headers` | `100` | a whole number in 8..1000 (headers) | yes |"));
    buf_release(&help);
    buf_release(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),         cmocka_unit_test(every_row_is_sound),
        cmocka_unit_test(file_and_flags),   cmocka_unit_test(environment),
        cmocka_unit_test(errors),           cmocka_unit_test(whole_rules),
        cmocka_unit_test(listen_addresses), cmocka_unit_test(reload),
        cmocka_unit_test(yaml_round_trip),  cmocka_unit_test(documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
