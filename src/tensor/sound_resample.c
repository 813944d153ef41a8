/* sound_resample.c: rate conversion by a windowed sinc. See sound.h.
 *
 * The kernel (sinc x Kaiser window) is tabulated once at 512 points a zero crossing and interpolated linearly, which is off by
 * 5e-6 at most. With to/from = up/down in lowest terms, output sample k lies at input time k x down / up, so only `up` different
 * fractions occur: their weights are kept (a polyphase filter bank) when they fit, else computed for each sample. The cut-off is
 * 0.95 of the lower Nyquist rate; when the rate falls the kernel widens by the ratio. The window's beta of 9 leaves about -90 dB
 * beyond the transition. Each set of weights is scaled to add up to one, so that a constant stays constant. */
#include <math.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "tensor/sound.h"

#define CROSSINGS 32
#define POINTS    512
#define ROLLOFF   0.95
#define BETA      9.0
#define BANK_MAX  (1u << 20) /* weights in the bank */

/* Modified Bessel function of the first kind, order 0 (its power series; converges fast for the betas in use). */
static double bessel0(double x)
{
    double sum = 1, term = 1;
    for (int k = 1; k < 60 && term > sum * 1e-17; k++) {
        term *= x * x / (4.0 * k * k);
        sum += term;
    }
    return sum;
}

struct kernel {
    double half;  /* width of one side, in input samples */
    double scale; /* table points an input sample */
    size_t taps;
    double *table; /* [CROSSINGS * POINTS + 2], from the centre outwards; the last two are 0 */
};

static bool kernel_init(struct kernel *k, uint32_t from, uint32_t to)
{
    const size_t n = (size_t)CROSSINGS * POINTS;
    const double norm = bessel0(BETA), ratio = to < from ? (double)to / from : 1;
    *k = (struct kernel){.half = CROSSINGS / ratio, .scale = POINTS * ratio};
    k->taps = 2 * (size_t)ceil(k->half) + 2;
    k->table = calloc(n + 2, sizeof *k->table);
    for (size_t i = 0; k->table && i < n; i++) {
        double x = (double)i / (double)n, s = M_PI * ROLLOFF * (double)i / POINTS;
        k->table[i] = (i ? sin(s) / s : 1) * bessel0(BETA * sqrt(1 - x * x)) / norm;
    }
    return k->table;
}

static double weight(const struct kernel *k, double t)
{
    double at = fabs(t) * k->scale;
    if (at >= CROSSINGS * POINTS)
        return 0;
    size_t i = (size_t)at;
    return k->table[i] + (k->table[i + 1] - k->table[i]) * (at - (double)i);
}

/* Weights for input samples first, first + 1, ... when the output lies `fraction` (0..1) behind input sample `taps/2 - 1`. */
static void phase_weights(const struct kernel *k, double fraction, float *out)
{
    double sum = 0;
    const double centre = (double)(k->taps / 2) - 1 + fraction;
    for (size_t i = 0; i < k->taps; i++) {
        double w = weight(k, (double)i - centre);
        out[i] = (float)w;
        sum += w;
    }
    for (size_t i = 0; i < k->taps; i++)
        out[i] = (float)(out[i] / sum);
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* The taps around input sample `at`, silence outside. */
static float apply(const float *in, size_t n, uint64_t at, const float *w, size_t taps)
{
    double sum[4] = {0}; /* four chains, so that additions don't wait for each other */
    int64_t first = (int64_t)at - (int64_t)(taps / 2) + 1;
    size_t from = first < 0 ? (size_t)-first : 0;
    size_t to = (int64_t)n - first < (int64_t)taps ? (size_t)MAX_OF((int64_t)n - first, 0) : taps;
    size_t i = from;
    for (; i + 4 <= to; i += 4)
        for (size_t k = 0; k < 4; k++)
            sum[k] += (double)in[first + (int64_t)(i + k)] * (double)w[i + k];
    for (; i < to; i++)
        sum[0] += (double)in[first + (int64_t)i] * (double)w[i];
    return (float)(sum[0] + sum[1] + (sum[2] + sum[3]));
}

static void convert(const float *in, size_t n, const struct kernel *k, uint32_t up, uint32_t down, float *bank, bool whole,
                    float *out, size_t n_out)
{
    for (uint32_t p = 0; whole && p < up; p++)
        phase_weights(k, (double)p / up, bank + (size_t)p * k->taps);
    for (size_t i = 0; i < n_out; i++) {
        uint64_t time = (uint64_t)i * down;
        const float *w = bank;
        if (whole)
            w = bank + (size_t)(time % up) * k->taps;
        else
            phase_weights(k, (double)(time % up) / up, bank);
        out[i] = apply(in, n, time / up, w, k->taps);
    }
}

int sound_resample(const float *in, size_t n, uint32_t from, uint32_t to, uint64_t max_out, struct slab **out, size_t *n_out,
                   struct error *err)
{
    if (from < SOUND_RATE_MIN || from > SOUND_RATE_MAX || to < SOUND_RATE_MIN || to > SOUND_RATE_MAX)
        return error_set(err, STATUS_INVALID, "a sound can't be brought from %u to %u samples a second: %d to %d are possible",
                         from, to, SOUND_RATE_MIN, SOUND_RATE_MAX);
    uint32_t g = gcd(from, to), up = to / g, down = from / g;
    uint64_t count = 0;
    bool fits = !__builtin_mul_overflow((uint64_t)n, up, &count) && !__builtin_add_overflow(count, down - 1, &count);
    count /= down;
    if (!fits || count > max_out)
        return error_set(err, STATUS_TOO_LARGE, "at %u samples a second the sound has more than %llu samples", to,
                         (unsigned long long)max_out);
    struct kernel k;
    bool ready = kernel_init(&k, from, to);
    bool whole = (uint64_t)up * k.taps <= BANK_MAX;
    float *bank = malloc((whole ? up : 1) * k.taps * sizeof *bank);
    struct slab *s = slab_create((size_t)count * sizeof(float));
    if (!ready || !bank || !s) {
        free(k.table);
        free(bank);
        slab_unref(s);
        return error_set(err, STATUS_NOMEM, "no memory to resample the sound");
    }
    convert(in, n, &k, up, down, bank, whole, (float *)s->data, (size_t)count);
    free(bank);
    free(k.table);
    s->n = (size_t)count * sizeof(float);
    *out = s;
    *n_out = (size_t)count;
    return STATUS_OK;
}
