/* Barriers hold, lists are dealt once, writes are seen; alone, in pairs and with far more members than CPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/llm/team.h"
#include "os/clock.h"

#define STAGES 200
#define CELLS  64

struct work {
    uint32_t cell[STAGES][CELLS]; /* plain memory: the barrier alone makes it visible */
    uint32_t wrong[32];
};

/* Each stage writes its cells from the stage before, dealt by the shared list. */
static void stages(void *arg, uint32_t member, struct team *t)
{
    struct work *w = arg;
    for (uint32_t s = 0; s < STAGES; s++) {
        for (uint32_t i; (i = team_take(t, CELLS)) != UINT32_MAX;) {
            uint32_t before = s ? w->cell[s - 1][(i + 1) % CELLS] : 0;
            w->wrong[member] += before != s;
            w->cell[s][i] += s + 1;
        }
        team_barrier(t, member);
    }
}

static void run_stages(uint32_t members, int runs)
{
    struct team *t = NULL;
    assert_int_equal(0, team_create(members, "test", &t, NULL));
    struct work *w = malloc(sizeof *w);
    for (int r = 0; r < runs; r++) {
        memset(w, 0, sizeof *w);
        team_run(t, stages, w);
        for (uint32_t s = 0; s < STAGES; s++)
            for (uint32_t i = 0; i < CELLS; i++)
                assert_int_equal(s + 1, w->cell[s][i]);
        for (uint32_t m = 0; m < members; m++)
            assert_int_equal(0, w->wrong[m]);
        if (r == 1)
            os_sleep_ns(1000000); /* long enough for the members to sleep */
    }
    free(w);
    team_destroy(t);
}

static void alone(void **state)
{
    (void)state;
    run_stages(1, 3);
}

static void pair(void **state)
{
    (void)state;
    run_stages(2, 6);
}

static void oversubscribed(void **state)
{
    (void)state;
    run_stages(16, 2);
}

#define ROUNDS 50
#define UNITS  37

struct shared {
    uint32_t done[ROUNDS][3][UNITS]; /* plain: each unit is one member's */
    uint32_t by_late[ROUNDS];        /* units that the late member did */
    bool late;
};

/* Three loops between barriers, as q, k and v; of 37, 1 and 0 units. Member 1 may be late. */
static void shares(void *arg, uint32_t member, struct team *t)
{
    struct shared *w = arg;
    static const uint32_t n[3] = {UNITS, 1, 0};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t k = 0; k < 3; k++) {
            struct team_share s;
            uint32_t begin, end;
            team_share_begin(t, member, n[k], 1 + round % 5, &s);
            while (team_share_take(t, &s, &begin, &end)) {
                for (uint32_t i = begin; i < end; i++)
                    w->done[round][k][i]++;
                if (member == 1)
                    w->by_late[round] += end - begin;
                if (w->late && member == 1)
                    os_sleep_ns(2000000);
            }
        }
        team_barrier(t, member);
    }
}

static void run_shares(uint32_t members, bool late)
{
    struct team *t = NULL;
    assert_int_equal(0, team_create(members, "test", &t, NULL));
    struct shared *w = malloc(sizeof *w);
    uint32_t by_late = 0;
    for (int run = 0; run < 3; run++) {
        memset(w, 0, sizeof *w);
        w->late = late;
        team_run(t, shares, w);
        for (uint32_t round = 0; round < ROUNDS; round++) {
            for (uint32_t i = 0; i < UNITS; i++)
                assert_int_equal(1, w->done[round][0][i]);
            assert_int_equal(1, w->done[round][1][0]);
            by_late += w->by_late[round];
        }
    }
    if (late) /* its own part is a third; pieces of 1 to 5 units, and it sleeps after each */
        assert_true(by_late < 3 * ROUNDS * UNITS / 4);
    free(w);
    team_destroy(t);
}

static void shares_are_dealt_once_and_evened_out(void **state)
{
    (void)state;
    run_shares(1, false);
    run_shares(2, false);
    run_shares(9, false);
    run_shares(3, true);
}

static void ranges_cover(void **state)
{
    (void)state;
    struct team *t = NULL;
    assert_int_equal(0, team_create(3, "test", &t, NULL));
    for (uint32_t n = 0; n < 20; n++) {
        uint32_t at = 0;
        for (uint32_t m = 0; m < 3; m++) {
            uint32_t b, e;
            team_range(t, m, n, &b, &e);
            assert_int_equal(at, b);
            assert_true(e - b == n / 3 || e - b == n / 3 + 1);
            at = e;
        }
        assert_int_equal(n, at);
    }
    team_destroy(t);
}

static void sizes(void **state)
{
    (void)state;
    struct team *t = NULL;
    struct error err = {0};
    assert_int_equal(0, team_create(0, "test", &t, NULL));
    assert_true(team_size(t) >= 1 && team_size(t) <= TEAM_MAX);
    team_destroy(t);
    team_destroy(NULL);
    assert_true(team_create(TEAM_MAX + 1, "test", &t, &err) < 0);
    assert_non_null(strstr(err.text, "257"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone),          cmocka_unit_test(pair),
        cmocka_unit_test(oversubscribed), cmocka_unit_test(shares_are_dealt_once_and_evened_out),
        cmocka_unit_test(ranges_cover),   cmocka_unit_test(sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
