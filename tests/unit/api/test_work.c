/* test_work.c: the pool for long work: everything given runs once, what is taken back does not run, closing finishes what waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>

#include "api/work.h"
#include "base/size.h"
#include "os/clock.h"

#define N 200

struct job {
    struct work work;
    _Atomic uint32_t *ran, *gate;
};

static void run_job(struct work *w)
{
    struct job *j = CONTAINER_OF(w, struct job, work);
    while (j->gate && !atomic_load(j->gate))
        os_sleep_ns(100000);
    atomic_fetch_add(j->ran, 1);
}

static void job_init(struct job *j, _Atomic uint32_t *ran, _Atomic uint32_t *gate)
{
    *j = (struct job){.work = {.run = run_job}, .ran = ran, .gate = gate};
    list_init(&j->work.link);
}

static void test_all_run_once(void **state)
{
    static struct job jobs[N];
    _Atomic uint32_t ran = 0;
    (void)state;
    struct work_pool *p = work_pool_create("test", 3, 0);
    assert_non_null(p);
    for (size_t i = 0; i < N; i++) {
        job_init(&jobs[i], &ran, NULL);
        assert_true(work_pool_add(p, &jobs[i].work));
    }
    work_pool_close(p);
    assert_int_equal(atomic_load(&ran), N);
    work_pool_destroy(p);
}

/* One thread, held by the first job: the others wait, so each can be taken back, once. */
static void test_taken_back_does_not_run(void **state)
{
    static struct job jobs[4];
    _Atomic uint32_t ran = 0, gate = 0, ran_held = 0;
    (void)state;
    struct work_pool *p = work_pool_create("test", 1, 0);
    job_init(&jobs[0], &ran_held, &gate);
    for (size_t i = 1; i < 4; i++)
        job_init(&jobs[i], &ran, NULL);
    for (size_t i = 0; i < 4; i++)
        assert_true(work_pool_add(p, &jobs[i].work));
    assert_true(work_pool_remove(p, &jobs[2].work));
    assert_false(work_pool_remove(p, &jobs[2].work));
    atomic_store(&gate, 1);
    work_pool_close(p);
    assert_int_equal(atomic_load(&ran_held), 1);
    assert_int_equal(atomic_load(&ran), 2);
    assert_false(work_pool_remove(p, &jobs[1].work)); /* it has run */
    work_pool_destroy(p);
}

static void test_closed_pool_takes_nothing(void **state)
{
    struct job j;
    _Atomic uint32_t ran = 0;
    (void)state;
    struct work_pool *p = work_pool_create("test", 2, 0);
    work_pool_close(p);
    job_init(&j, &ran, NULL);
    assert_false(work_pool_add(p, &j.work));
    work_pool_destroy(p);
    assert_int_equal(atomic_load(&ran), 0);
    work_pool_destroy(NULL);
}

/* Jobs that wait for each other's start: they do not pass when only one of the threads runs. */
static void run_meeting(struct work *w)
{
    struct job *j = CONTAINER_OF(w, struct job, work);
    atomic_fetch_add(j->ran, 1);
    while (atomic_load(j->ran) < 3)
        os_sleep_ns(100000);
}

static void test_as_many_at_once_as_threads(void **state)
{
    static struct job jobs[3];
    _Atomic uint32_t ran = 0;
    (void)state;
    struct work_pool *p = work_pool_create("test", 3, 0);
    for (size_t i = 0; i < 3; i++) {
        job_init(&jobs[i], &ran, NULL);
        jobs[i].work.run = run_meeting;
        assert_true(work_pool_add(p, &jobs[i].work));
    }
    work_pool_close(p);
    assert_int_equal(atomic_load(&ran), 3);
    work_pool_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_run_once),
        cmocka_unit_test(test_taken_back_does_not_run),
        cmocka_unit_test(test_closed_pool_takes_nothing),
        cmocka_unit_test(test_as_many_at_once_as_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
