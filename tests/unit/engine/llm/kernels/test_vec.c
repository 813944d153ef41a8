/* Norms, activations, rope and the helpers of logits: every table equals the scalar one bit by bit at every length, and the scalar one is near
 * the C library's double functions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "engine/llm/kernels/weights.h"

#define MAX_N 300

static float x[MAX_N], w[MAX_N], b[MAX_N], r[MAX_N];

static void fill(uint64_t seed, float scale)
{
    for (int i = 0; i < MAX_N; i++) {
        x[i] = next_float(&seed) * scale;
        w[i] = next_float(&seed) + 1;
        b[i] = next_float(&seed);
        r[i] = next_float(&seed);
    }
}

static const struct kernels *table(size_t i)
{
    return kernels_runnable(KERNELS_ALL[i]) ? KERNELS_ALL[i] : kernels_by_name("ref");
}

static const struct kernels *ref(void)
{
    return kernels_by_name("ref");
}

static const enum kernel_act ACTS[] = {KERNEL_ACT_NONE, KERNEL_ACT_SILU, KERNEL_ACT_GELU_TANH, KERNEL_ACT_GELU_ERF,
                                       KERNEL_ACT_RELU};

static void norms(void **state)
{
    (void)state;
    for (size_t k = 0; KERNELS_ALL[k]; k++)
        for (size_t n = 1; n <= MAX_N; n++)
            for (int form = 0; form < 4; form++) {
                float want[MAX_N], got[MAX_N];
                struct norm_args a = {form & 1 ? w : NULL, form & 1 ? b : NULL, 1e-5f, form >= 2};
                fill(n, 2);
                ref()->norm(x, n, &a, form == 3 ? r : NULL, want);
                table(k)->norm(x, n, &a, form == 3 ? r : NULL, got);
                assert_memory_equal(want, got, n * sizeof(float));
                double mean = 0, sq = 0;
                for (size_t i = 0; i < n; i++)
                    mean += a.layer ? (double)x[i] / (double)n : 0;
                for (size_t i = 0; i < n; i++)
                    sq += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
                for (size_t i = 0; i < n; i++) {
                    double v = ((double)x[i] - mean) / sqrt(sq + 1e-5);
                    v = form & 1 ? v * (double)w[i] + (double)b[i] : v;
                    v = form == 3 ? v + (double)r[i] : v;
                    assert_true(fabs(v - (double)got[i]) < 2e-5);
                }
            }
}

static void norm_into_activations(void **state)
{
    (void)state;
    for (size_t k = 0; KERNELS_ALL[k]; k++)
        for (int kind = 0; kind < 2; kind++)
            for (uint32_t n = 32; n <= 288; n += 32) {
                struct acts one, two;
                float y[MAX_N], z[MAX_N];
                struct norm_args a = {w, b, 1e-6f, n % 64 == 0};
                uint32_t cols = kind == ACTS_F32 ? n - 3 : n;
                fill(n, 5);
                assert_true(acts_layout((enum acts_kind)kind, cols, 3, &one) &&
                            acts_layout((enum acts_kind)kind, cols, 3, &two));
                one.data = aligned(acts_bytes(&one));
                two.data = aligned(acts_bytes(&two));
                table(k)->norm_acts(&one, 2, x, &a, y);
                ref()->norm(x, cols, &a, NULL, z);
                ref()->acts_put(&two, 2, z);
                assert_memory_equal(z, y, cols * sizeof(float));
                assert_memory_equal(two.data, one.data, acts_bytes(&one));
                table(k)->acts_put(&one, 2, z);
                assert_memory_equal(two.data, one.data, acts_bytes(&one));
                free(one.data);
                free(two.data);
            }
}

static double exact(double v, enum kernel_act act)
{
    switch (act) {
    case KERNEL_ACT_NONE:
        return v;
    case KERNEL_ACT_RELU:
        return v > 0 ? v : 0;
    case KERNEL_ACT_SILU:
        return v / (1 + exp(-v));
    case KERNEL_ACT_GELU_TANH:
        return 0.5 * v * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
    case KERNEL_ACT_GELU_ERF:
        return 0.5 * v * (1 + erf(v / sqrt(2)));
    }
    return v;
}

static void activations(void **state)
{
    (void)state;
    for (size_t k = 0; KERNELS_ALL[k]; k++)
        for (size_t a = 0; a < 5; a++)
            for (size_t n = 1; n <= MAX_N; n += n < 40 ? 1 : 37) {
                float want[MAX_N], got[MAX_N];
                fill(n, n % 2 ? 4 : 120);
                memcpy(want, x, sizeof x);
                memcpy(got, x, sizeof x);
                ref()->act(want, n, ACTS[a]);
                table(k)->act(got, n, ACTS[a]);
                assert_memory_equal(want, got, sizeof x);
                for (size_t i = 0; i < n; i++)
                    assert_true(fabs(exact((double)x[i], ACTS[a]) - (double)got[i]) < 1e-6 * (1 + fabs((double)x[i])));
                memcpy(want, x, sizeof x);
                memcpy(got, x, sizeof x);
                ref()->softcap(want, n, 30.0f);
                table(k)->softcap(got, n, 30.0f);
                assert_memory_equal(want, got, sizeof x);
                for (size_t i = 0; i < n; i++)
                    assert_true(fabs(30 * tanh((double)x[i] / 30) - (double)got[i]) < 1e-5);
            }
}

static void elementwise(void **state)
{
    (void)state;
    for (size_t k = 0; KERNELS_ALL[k]; k++)
        for (size_t n = 0; n <= MAX_N; n++) {
            float want[MAX_N], got[MAX_N];
            fill(n, 2);
            memcpy(want, x, sizeof x);
            memcpy(got, x, sizeof x);
            ref()->add(want, w, n), table(k)->add(got, w, n);
            ref()->scale(want, n, 0.7f), table(k)->scale(got, n, 0.7f);
            ref()->axpy(want, b, -1.3f, n), table(k)->axpy(got, b, -1.3f, n);
            assert_memory_equal(want, got, sizeof x);
            for (size_t i = 0; i < n; i++)
                assert_true(fabs(((double)x[i] + (double)w[i]) * 0.7 - 1.3 * (double)b[i] - (double)got[i]) < 1e-5);
            float d = ref()->dot(x, w, n), e = table(k)->dot(x, w, n);
            assert_memory_equal(&d, &e, 4);
        }
}

static void rotations(void **state)
{
    (void)state;
    for (size_t k = 0; KERNELS_ALL[k]; k++)
        for (int kind = 0; kind < 2; kind++)
            for (uint32_t rot = 2; rot <= 96; rot += rot < 16 ? 2 : 16) {
                float want[3 * 96], got[3 * 96], cs[96];
                fill(rot, 1);
                for (uint32_t i = 0; i < rot / 2; i++) {
                    cs[i] = cosf((float)i);
                    cs[rot / 2 + i] = sinf((float)i);
                }
                memcpy(want, x, sizeof want);
                memcpy(got, x, sizeof got);
                ref()->rope(want, 3, 96, rot, cs, (enum kernel_rope)kind);
                table(k)->rope(got, 3, 96, rot, cs, (enum kernel_rope)kind);
                assert_memory_equal(want, got, sizeof want);
                for (uint32_t h = 0; h < 3; h++)
                    for (uint32_t i = 0; i < 96; i++) { /* a complex product by hand */
                        uint32_t j = kind == KERNEL_ROPE_HALF ? i % (rot / 2) : i / 2;
                        bool second = kind == KERNEL_ROPE_HALF ? i >= rot / 2 : i % 2;
                        float *v = x + h * 96, p = kind == KERNEL_ROPE_HALF ? v[j] : v[i & ~1u];
                        float q = kind == KERNEL_ROPE_HALF ? v[j + rot / 2] : v[(i | 1) % 96];
                        double want_i =
                            second ? (double)p * sin(j) + (double)q * cos(j) : (double)p * cos(j) - (double)q * sin(j);
                        assert_true(fabs((i < rot ? want_i : (double)v[i]) - (double)got[h * 96 + i]) < 1e-6);
                    }
            }
}

static void logits(void **state)
{
    (void)state;
    for (size_t k = 0; KERNELS_ALL[k]; k++)
        for (size_t n = 1; n <= MAX_N; n++) {
            float y[MAX_N], z[MAX_N];
            fill(n, 30);
            if (n > 5)
                x[n / 2] = -INFINITY;
            double max = -INFINITY, sum = 0;
            size_t at = 0;
            for (size_t i = 0; i < n; i++)
                if ((double)x[i] > max) {
                    max = (double)x[i];
                    at = i;
                }
            for (size_t i = 0; i < n; i++)
                sum += exp((double)x[i] - max);
            float l = ref()->logsumexp(x, n), m = table(k)->logsumexp(x, n);
            assert_memory_equal(&l, &m, 4);
            assert_true(fabs(max + log(sum) - (double)l) < 1e-5);
            l = ref()->exp_sum(x, n, (float)max, y);
            m = table(k)->exp_sum(x, n, (float)max, z);
            assert_memory_equal(&l, &m, 4);
            assert_memory_equal(y, z, n * sizeof(float));
            for (size_t i = 0; i < n; i++) { /* 2 ulp of the rounded difference; below exp(-87) it is 0 */
                double e = exp((double)(x[i] - (float)max));
                assert_true(fabs(e - (double)y[i]) <= e * 3e-7 + 1.7e-38);
            }
            assert_int_equal(at, table(k)->argmax(x, n));
        }
}

static void order(void **state)
{
    (void)state;
    static const float v[] = {1, 3, NAN, 3, -INFINITY, 2, 3, 0};
    uint32_t idx[8];
    float val[8];
    for (size_t k = 0; KERNELS_ALL[k]; k++) {
        static const uint32_t want[] = {1, 3, 6, 5, 0, 7, 4, 2};
        for (uint32_t n = 0; n <= 8; n++) {
            table(k)->top_k(v, 8, n, idx, val);
            for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(want[i], idx[i]);
                assert_memory_equal(&v[want[i]], &val[i], 4);
            }
        }
        assert_int_equal(1, table(k)->argmax(v, 8));
        assert_int_equal(0, table(k)->argmax(v + 2, 1));
        float nans[40];
        for (int i = 0; i < 40; i++)
            nans[i] = i == 33 ? -INFINITY : NAN;
        assert_int_equal(33, table(k)->argmax(nans, 40));
        float many[1000];
        uint32_t got[1000];
        uint64_t seed = 4;
        for (int i = 0; i < 1000; i++)
            many[i] = (float)(next_u32(&seed) % 50);
        table(k)->top_k(many, 1000, 300, got, NULL);
        for (int i = 1; i < 300; i++)
            assert_true(many[got[i - 1]] > many[got[i]] || (many[got[i - 1]] == many[got[i]] && got[i - 1] < got[i]));
        for (uint32_t i = 0, j; i < 1000; i++) { /* what is left out is not better than the last */
            for (j = 0; j < 300 && got[j] != i; j++) {
            }
            assert_true(j < 300 || many[i] < many[got[299]] || (many[i] == many[got[299]] && i > got[299]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),       cmocka_unit_test(norm_into_activations),
        cmocka_unit_test(activations), cmocka_unit_test(elementwise),
        cmocka_unit_test(rotations),   cmocka_unit_test(logits),
        cmocka_unit_test(order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
