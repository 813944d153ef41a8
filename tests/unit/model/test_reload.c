/* test_reload.c: models that come, change and go while clients use them: explicit control, polling, policies and labels. */
#include "model/harness.h"

#include "model/version_priv.h"

static int setup(void **state)
{
    struct world *w = malloc(sizeof *w);
    world_init(w);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    world_release(*state);
    free(*state);
    return 0;
}

/* Value of the model's constant output; -1 where it does not answer. */
static int32_t answer(struct world *w, const char *model, const char *version)
{
    int32_t y = -1;
    return ask(w->r, model, version, 1, &y, NULL) ? -1 : y;
}

/* A model that answers `n`. */
static const char *constant(int n)
{
    static char text[4][160];
    static int at;
    char *t = text[at++ % 4];
    snprintf(t, 160, "input = X INT32 [-1,1]\noutput = Y INT32 [-1,1] fill %d\n", n);
    return t;
}

struct outcome {
    struct os_mutex lock;
    struct os_cond cond;
    bool over;
    int status;
    char text[ERROR_TEXT_BYTES];
};

static void outcome_done(void *ctx, int status, const char *text)
{
    struct outcome *o = ctx;
    os_mutex_lock(&o->lock);
    o->over = true;
    o->status = status;
    snprintf(o->text, sizeof o->text, "%s", text);
    os_cond_broadcast(&o->cond);
    os_mutex_unlock(&o->lock);
}

static void outcome_init(struct outcome *o)
{
    memset(o, 0, sizeof *o);
    os_mutex_init(&o->lock, RANK_LEAF);
    os_cond_init(&o->cond);
}

static int outcome_wait(struct outcome *o)
{
    uint64_t end = os_monotonic_ns() + WAIT_NS;
    os_mutex_lock(&o->lock);
    while (!o->over && os_cond_wait_until(&o->cond, &o->lock, end))
        ;
    bool over = o->over;
    os_mutex_unlock(&o->lock);
    assert_true(over);
    os_cond_release(&o->cond);
    os_mutex_release(&o->lock);
    return o->status;
}

static int load(struct world *w, const char *model, const char *config, struct outcome *o)
{
    outcome_init(o);
    struct error err = {0};
    int rc = registry_load(w->r, str_of(model), str_of(config), outcome_done, o, &err);
    if (rc) {
        snprintf(o->text, sizeof o->text, "%s", err.text);
        return rc;
    }
    return outcome_wait(o);
}

static int unload(struct world *w, const char *model, struct outcome *o)
{
    outcome_init(o);
    struct error err = {0};
    int rc = registry_unload(w->r, str_of(model), outcome_done, o, &err);
    if (rc) {
        snprintf(o->text, sizeof o->text, "%s", err.text);
        return rc;
    }
    return outcome_wait(o);
}

struct rows {
    char text[2048];
};

static void add_row(void *ctx, const struct index_row *row)
{
    struct rows *r = ctx;
    size_t n = strlen(r->text);
    snprintf(r->text + n, sizeof r->text - n, "%.*s/%.*s %s %.*s\n", STR_ARG(row->model), STR_ARG(row->version),
             version_state_name(row->state), STR_ARG(row->reason));
}

static const char *index_text(struct world *w)
{
    static struct rows rows;
    rows.text[0] = 0;
    registry_index(w->r, false, add_row, &rows);
    return rows.text;
}

static void explicit_control(void **state)
{
    struct world *w = *state;
    put(w, "a/1/model.fake", constant(1));
    put(w, "b/1/model.fake", constant(2));
    w->o.mode = REGISTRY_EXPLICIT;
    w->load[0] = "a";
    w->o.n_load = 1;
    world_start(w);
    assert_true(registry_ready(w->r));
    assert_int_equal(answer(w, "a", ""), 1);
    assert_int_equal(answer(w, "b", ""), -1);
    assert_string_equal(index_text(w), "a/1 READY \nb/ UNAVAILABLE \n");
    struct outcome o;
    assert_int_equal(load(w, "b", "", &o), 0);
    assert_int_equal(answer(w, "b", ""), 2);
    assert_int_equal(load(w, "nobody", "", &o), STATUS_NOT_FOUND);
    assert_int_equal(load(w, "../a", "", &o), STATUS_NOT_FOUND);
    assert_int_equal(unload(w, "nobody", &o), STATUS_NOT_FOUND);
    assert_int_equal(unload(w, "a", &o), 0);
    assert_int_equal(answer(w, "a", ""), -1);
    assert_string_equal(index_text(w), "a/1 UNAVAILABLE unloaded\nb/1 READY \n");
    assert_true(registry_ready(w->r)); /* unloaded on purpose: no longer required */
    assert_int_equal(load(w, "a", "", &o), 0);
    assert_int_equal(answer(w, "a", ""), 1);
    /* a failed reload keeps the old one, and says why */
    put(w, "a/1/model.fake", IDENTITY "load_fail = the weights are damaged\n");
    assert_int_not_equal(load(w, "a", "", &o), 0);
    assert_non_null(strstr(o.text, "the weights are damaged"));
    assert_int_equal(answer(w, "a", ""), 1);
    assert_true(registry_ready(w->r));
    assert_string_equal(index_text(w), "a/1 READY \nb/1 READY \n");
    /* a broken config too */
    put(w, "a/config.pbtxt", "max_batch_sice: 3\n");
    assert_int_equal(load(w, "a", "", &o), STATUS_INVALID);
    assert_int_equal(answer(w, "a", ""), 1);
    /* the next good one replaces it */
    put(w, "a/config.pbtxt", "max_batch_size: 3\n");
    put(w, "a/1/model.fake", constant(11));
    assert_int_equal(load(w, "a", "", &o), 0);
    assert_int_equal(answer(w, "a", ""), 11);
    /* inline config wins over the file */
    assert_int_equal(load(w, "a", "{\"max_batch_size\":5}", &o), 0);
    struct model_version *v;
    assert_int_equal(registry_find(w->r, STR("a"), STR(""), &v, NULL), 0);
    assert_int_equal(model_version_max_batch(v), 5);
    model_version_unref(v);
}

/* Unload answers when the last request is answered and the model is freed; the request is served. */
static void unload_waits(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "base_us = 300000\n");
    w->o.mode = REGISTRY_EXPLICIT;
    w->load[0] = "*";
    w->o.n_load = 1;
    world_start(w);
    struct call c;
    int32_t v = 5;
    assert_int_equal(call_init(&c, w->r, "m", ""), 0);
    call_column(&c, "X", &v, 1);
    assert_int_equal(call_submit(&c), 0);
    struct outcome o, second;
    struct error err;
    outcome_init(&o);
    assert_int_equal(registry_unload(w->r, STR("m"), outcome_done, &o, NULL), 0);
    outcome_init(&second);
    assert_int_equal(registry_load(w->r, STR("m"), STR(""), outcome_done, &second, &err), STATUS_CONFLICT);
    call_wait(&c);
    assert_int_equal(c.inf.status, 0);
    assert_false(o.over); /* we still hold it */
    call_release(&c);
    assert_int_equal(outcome_wait(&o), 0);
    assert_int_equal(load(w, "m", "", &second), 0);
}

struct client {
    struct world *w;
    struct os_thread t;
    _Atomic bool stop;
    const char *model;
    _Atomic unsigned asked, failed;
    int32_t last;
};

static void client_main(void *arg)
{
    struct client *c = arg;
    while (!atomic_load(&c->stop)) {
        int32_t y = -1;
        struct error err = {0};
        int rc = ask(c->w->r, c->model, "", 1, &y, &err);
        if (rc || y < c->last) {
            fprintf(stderr, "client: %s (answer %d after %d)\n", err.text, y, c->last);
            atomic_fetch_add(&c->failed, 1);
        }
        c->last = y;
        atomic_fetch_add(&c->asked, 1);
    }
}

/* C2: forty reloads under load: no request fails, and once the new one has answered, the old one doesn't any more. */
static void reload_under_load(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", constant(0));
    w->o.mode = REGISTRY_EXPLICIT;
    w->load[0] = "*";
    w->o.n_load = 1;
    world_start(w);
    struct client clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = (struct client){.w = w, .model = "m"};
        assert_int_equal(os_thread_start(&clients[i].t, "client", client_main, &clients[i], NULL), 0);
    }
    for (int n = 1; n <= 40; n++) {
        struct outcome o;
        put(w, "m/1/model.fake", constant(n));
        assert_int_equal(load(w, "m", "", &o), 0);
        assert_int_equal(answer(w, "m", ""), n);
    }
    unsigned asked = 0;
    for (int i = 0; i < 3; i++) {
        atomic_store(&clients[i].stop, true);
        os_thread_join(&clients[i].t);
        assert_int_equal(clients[i].failed, 0);
        asked += clients[i].asked;
    }
    assert_true(asked > 100);
    /* counters go on over reloads */
    struct model_version *v;
    struct version_stats s;
    assert_int_equal(registry_find(w->r, STR("m"), STR(""), &v, NULL), 0);
    model_version_stats(v, &s);
    assert_int_equal(s.success.count, asked + 40);
    model_version_unref(v);
}

static size_t rss_kib(void)
{
    unsigned long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    char line[128];
    assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    char *end;
    pages = strtoul(line, &end, 10);
    resident = strtoul(end, NULL, 10);
    (void)pages;
    return resident * (size_t)sysconf(_SC_PAGESIZE) / 1024;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CYCLES 40 /* a sanitizer keeps freed memory: only its own findings count then */
#else
#define CYCLES 200
#endif

/* KiB that RSS grew from the 20th cycle of load, infer, unload to the last; `leak` bytes are lost in each. */
static size_t growth(struct world *w, size_t leak, void **lost)
{
    size_t after20 = 0;
    for (int i = 0; i < CYCLES; i++) {
        struct outcome o;
        assert_int_equal(load(w, "m", "", &o), 0);
        assert_int_equal(answer(w, "m", ""), 1);
        assert_int_equal(unload(w, "m", &o), 0);
        lost[i] = leak ? malloc(leak) : NULL;
        if (lost[i])
            memset(lost[i], 1, leak);
        if (i == 20)
            after20 = rss_kib();
    }
    size_t now = rss_kib();
    for (int i = 0; i < CYCLES; i++)
        free(lost[i]);
    return now > after20 ? now - after20 : 0;
}

/* C1: RSS is flat after the 20th cycle; and the measure sees a leak of 16 KiB a cycle. */
static void cycles(void **state)
{
    struct world *w = *state;
    void *lost[CYCLES] = {NULL};
    put(w, "m/1/model.fake", IDENTITY "memory_bytes = 4MiB\n");
    put(w, "m/model.yaml", "response_cache:\n  enable: true\n");
    w->o.mode = REGISTRY_EXPLICIT;
    world_start(w);
    size_t flat = growth(w, 0, lost);
    if (CYCLES < 200)
        return;
    assert_in_range(flat, 0, 1024);
    size_t leaking = growth(w, 16384, lost);
    assert_in_range(leaking, 1025, SIZE_MAX);
}

/* Loads and unloads of the same model from several sides at once: each gets one outcome, and the end state is as asked. */
static void stress_main(void *arg)
{
    struct client *c = arg;
    for (int i = 0; i < 40; i++) {
        struct outcome o;
        int rc = i % 2 ? unload(c->w, "m", &o) : load(c->w, "m", "", &o);
        if (rc && rc != STATUS_CONFLICT && rc != STATUS_NOT_FOUND)
            atomic_fetch_add(&c->failed, 1);
        ask(c->w->r, "m", "", 1, NULL, NULL);
    }
}

static void concurrent_control(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", IDENTITY "load_delay_ms = 1\n");
    w->o.mode = REGISTRY_EXPLICIT;
    world_start(w);
    struct client c[3];
    for (int i = 0; i < 3; i++) {
        c[i] = (struct client){.w = w};
        assert_int_equal(os_thread_start(&c[i].t, "stress", stress_main, &c[i], NULL), 0);
    }
    for (int i = 0; i < 3; i++) {
        os_thread_join(&c[i].t);
        assert_int_equal(c[i].failed, 0);
    }
    struct outcome o;
    assert_int_equal(load(w, "m", "", &o), 0);
    assert_int_equal(answer(w, "m", ""), 1);
}

/* C3: refused with numbers; the old one goes on serving. */
static void memory_limit(void **state)
{
    struct world *w = *state;
    put(w, "a/1/model.fake", IDENTITY "estimate_bytes = 600MiB\n");
    put(w, "b/1/model.fake", IDENTITY "estimate_bytes = 500MiB\n");
    w->o.mode = REGISTRY_EXPLICIT;
    w->load[0] = "a";
    w->o.n_load = 1;
    world_start(w);
    struct outcome o;
    assert_int_equal(load(w, "b", "", &o), STATUS_EXHAUSTED);
    assert_string_equal(o.text,
                        "loading model \"b\" needs about 500 MiB, and loaded models hold 600 of the limit of 1024 MiB: unload "
                        "one, or raise the memory limit");
    assert_int_equal(load(w, "a", "", &o), STATUS_EXHAUSTED); /* beside itself */
    assert_int_equal(answer(w, "a", ""), 1);
    assert_int_equal(unload(w, "a", &o), 0);
    assert_int_equal(load(w, "b", "", &o), 0);
    assert_int_equal(answer(w, "b", ""), 1);
}

struct expectation {
    struct world *w;
    const char *model, *version;
    int32_t value;
};

static bool answers(void *arg)
{
    struct expectation *e = arg;
    registry_tick(e->w->r, os_monotonic_ns());
    return answer(e->w, e->model, e->version) == e->value;
}

static void expect(struct world *w, const char *model, const char *version, int32_t value)
{
    struct expectation e = {w, model, version, value};
    until(answers, &e, model);
}

static void rename_in(struct world *w, const char *from, const char *to)
{
    char a[256], b[256];
    snprintf(a, sizeof a, "%s/%s", w->dir, from);
    snprintf(b, sizeof b, "%s/%s", w->dir, to);
    assert_int_equal(rename(a, b), 0);
}

static bool forgotten(void *w)
{
    return ask(((struct world *)w)->r, "n", "", 1, NULL, NULL) == STATUS_NOT_FOUND;
}

static void poll_mode(void **state)
{
    struct world *w = *state;
    put(w, "m/1/model.fake", constant(1));
    w->o.mode = REGISTRY_POLL;
    assert_int_equal(registry_create(&w->o, &w->r, NULL), 0);
    expect(w, "m", "", 1);
    assert_true(registry_ready(w->r));
    put(w, "m/2/model.fake", constant(2)); /* a new version: the default policy serves the latest one */
    expect(w, "m", "", 2);
    expect(w, "m", "1", -1);
    put(w, "n/1/model.fake", constant(7)); /* a new model */
    expect(w, "n", "", 7);
    put(w, "n/1/model.fake", IDENTITY "load_fail = damaged\n"); /* a bad copy: the old one serves, the server stays ready */
    put(w, "bad/1/model.fake", "no such key = 1\n");
    put(w, "m/3/model.fake", constant(3));
    expect(w, "m", "", 3);
    assert_int_equal(answer(w, "n", ""), 7);
    assert_true(registry_ready(w->r));
    put(w, "n/1/model.fake", constant(8)); /* repaired: tried again */
    expect(w, "n", "", 8);
    put(w, "m/model.yaml", "version_policy: {all: {}}\n");
    expect(w, "m", "1", 1);
    expect(w, "m", "", 3);
    rename_in(w, "n", ".n-gone");
    expect(w, "n", "", -1);
    assert_true(registry_ready(w->r));
    until(forgotten, w, "n is forgotten");
}

/* A repository that is replaced as a whole by moving a link (git-sync, Kubernetes). */
static void moved_root(void **state)
{
    struct world *w = *state;
    char link[128], next[128];
    put(w, "rev1/m/1/model.fake", constant(1));
    put(w, "rev1/gone/1/model.fake", constant(5));
    put(w, "rev2/m/1/model.fake", constant(2));
    snprintf(link, sizeof link, "%s/current", w->dir);
    snprintf(next, sizeof next, "%s/next", w->dir);
    assert_int_equal(symlink("rev1", link), 0);
    w->roots[0] = link;
    w->o.mode = REGISTRY_POLL;
    assert_int_equal(registry_create(&w->o, &w->r, NULL), 0);
    expect(w, "m", "", 1);
    expect(w, "gone", "", 5);
    assert_int_equal(symlink("rev2", next), 0);
    assert_int_equal(rename(next, link), 0);
    expect(w, "m", "", 2);
    expect(w, "gone", "", -1);
    assert_true(registry_ready(w->r));
}

struct loads {
    struct logger lg;
    _Atomic unsigned loading, failed;
};

static void count_loads(struct logger *lg, enum log_level level, const char *event, const struct log_field *f)
{
    struct loads *l = (struct loads *)lg;
    (void)level;
    (void)f;
    if (strcmp(event, "model_loading") == 0)
        atomic_fetch_add(&l->loading, 1);
    if (strcmp(event, "model_failed") == 0)
        atomic_fetch_add(&l->failed, 1);
}

/* C29: a file that grows for a while is loaded once, when it is whole; a failed one is not tried again and again. */
static void partial_copy(void **state)
{
    struct world *w = *state;
    struct loads counter = {.lg = {.write = count_loads, .level = LOG_DEBUG}};
    w->o.mode = REGISTRY_POLL;
    w->o.log = &counter.lg;
    put(w, "m/1/model.fake", constant(1));
    assert_int_equal(registry_create(&w->o, &w->r, NULL), 0);
    expect(w, "m", "", 1);
    assert_int_equal(counter.loading, 1);
    struct buf text;
    buf_init(&text);
    buf_append_c(&text, '#');
    for (int i = 0; i < 20; i++) { /* half a script would not load */
        buf_append_z(&text, " copying");
        put(w, "m/2/model.fake", buf_z(&text));
        registry_tick(w->r, os_monotonic_ns());
        os_sleep_ns(20 * MS);
        assert_int_equal(answer(w, "m", ""), 1);
    }
    buf_append_c(&text, '\n');
    buf_append_z(&text, constant(2));
    put(w, "m/2/model.fake", buf_z(&text));
    buf_release(&text);
    expect(w, "m", "", 2);
    assert_int_equal(counter.loading, 2);
    assert_int_equal(counter.failed, 0);
    put(w, "m/2/model.fake", "nonsense\n");
    uint64_t end = os_monotonic_ns() + 600 * MS;
    while (os_monotonic_ns() < end) {
        registry_tick(w->r, os_monotonic_ns());
        os_sleep_ns(5 * MS);
    }
    assert_int_equal(counter.failed, 1);
    assert_int_equal(answer(w, "m", ""), 2);
    registry_destroy(w->r);
    w->r = NULL;
}

static void policies_and_labels(void **state)
{
    struct world *w = *state;
    for (int i = 1; i <= 12; i++) {
        char path[64];
        snprintf(path, sizeof path, "m/%d/model.fake", i);
        put(w, path, constant(i));
    }
    put(w, "m/003/model.fake", constant(99)); /* zero-prefixed and non-numeric folders are no versions */
    put(w, "m/notes/readme", "x");
    put(w, "m/model.yaml", "version_policy: {latest: {num_versions: 2}}\nlabels:\n  stable: 4\n  canary: 11\n");
    put(w, "s/1.2.0/model.fake", constant(120));
    put(w, "s/1.10.0/model.fake", constant(1100));
    put(w, "s/1.10.0-rc.1/model.fake", constant(1099));
    put(w, "p/1/model.fake", constant(1));
    put(w, "p/2/model.fake", constant(2));
    put(w, "p/config.pbtxt", "version_policy: { specific: { versions: [1] } }\n");
    world_start(w);
    assert_int_equal(answer(w, "m", ""), 4); /* stable */
    assert_int_equal(answer(w, "m", "stable"), 4);
    assert_int_equal(answer(w, "m", "canary"), 11);
    assert_int_equal(answer(w, "m", "12"), 12);
    assert_int_equal(answer(w, "m", "10"), -1);
    assert_int_equal(answer(w, "m", "3"), -1);
    assert_int_equal(answer(w, "m", "003"), -1);
    assert_int_equal(answer(w, "s", ""), 1100);
    assert_int_equal(answer(w, "s", "1.10.0"), 1100);
    assert_int_equal(answer(w, "p", ""), 1);
    assert_int_equal(answer(w, "p", "2"), -1);
}

/* Layouts: a lone file, a lone folder, two roots with the same name, links that leave. */
static void layouts(void **state)
{
    struct world *w = *state;
    char file[128], folder[128], repo[128], other[128];
    put(w, "files/answer.fake", constant(5));
    put(w, "lone/3/model.fake", constant(6));
    put(w, "repo/plain/model.fake", constant(7)); /* no version folder */
    put(w, "repo/twice/1/model.fake", constant(8));
    put(w, "repo2/twice/1/model.fake", constant(9));
    put(w, "outside/1/model.fake", constant(10));
    snprintf(file, sizeof file, "%s/files/answer.fake", w->dir);
    snprintf(folder, sizeof folder, "%s/lone/", w->dir);
    snprintf(repo, sizeof repo, "%s/repo", w->dir);
    snprintf(other, sizeof other, "%s/repo2", w->dir);
    char link[160];
    snprintf(link, sizeof link, "%s/linked", repo);
    assert_int_equal(symlink("../outside", link), 0);
    w->roots[0] = file;
    w->roots[1] = folder;
    w->roots[2] = repo;
    w->roots[3] = other;
    w->o.n_roots = 4;
    world_start(w);
    assert_int_equal(answer(w, "answer", "1"), 5);
    assert_int_equal(answer(w, "lone", "3"), 6);
    assert_int_equal(answer(w, "plain", "1"), 7);
    assert_int_equal(answer(w, "twice", ""), -1);
    assert_int_equal(answer(w, "linked", ""), -1);
    assert_non_null(strstr(index_text(w), "twice/ UNAVAILABLE model \"twice\": two repositories have a model of this name"));
    assert_non_null(strstr(index_text(w),
                           "linked/ UNAVAILABLE model \"linked\": the model's folder cannot be opened, or is a link "
                           "that leaves the repository"));
    registry_destroy(w->r);
    w->o.follow_symlinks = true;
    world_start(w);
    assert_int_equal(answer(w, "linked", ""), 10);
    registry_destroy(w->r);
    /* A version's folder, or a file in it, is called by the model's. */
    put(w, "inner/4/model.fake", constant(11));
    put(w, "deep/2/model.fake", constant(12));
    snprintf(file, sizeof file, "%s/inner/4/model.fake", w->dir);
    snprintf(folder, sizeof folder, "%s/deep/2", w->dir);
    w->o.n_roots = 2;
    world_start(w);
    assert_int_equal(answer(w, "inner", ""), 11);
    assert_int_equal(answer(w, "deep", ""), 12);
    struct error err;
    struct registry *r;
    w->roots[0] = "/nowhere/at/all";
    assert_int_equal(registry_create(&w->o, &r, &err), STATUS_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(explicit_control, setup, teardown),
        cmocka_unit_test_setup_teardown(unload_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(reload_under_load, setup, teardown),
        cmocka_unit_test_setup_teardown(cycles, setup, teardown),
        cmocka_unit_test_setup_teardown(concurrent_control, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(poll_mode, setup, teardown),
        cmocka_unit_test_setup_teardown(moved_root, setup, teardown),
        cmocka_unit_test_setup_teardown(partial_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(policies_and_labels, setup, teardown),
        cmocka_unit_test_setup_teardown(layouts, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
