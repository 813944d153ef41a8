/* Sound: decoded as soundfile decodes it (make_data.py), resampled as the tone itself would be sampled at the new rate. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/status.h"
#include "tensor/sound.h"

#include "tensor/file.h"

static void decoded_as_soundfile_does(void **state)
{
    (void)state;
    static const struct {
        const char *name, *samples;
        float tolerance; /* lossy codecs: another build of the decoder */
    } files[] = {
        {"tone16.wav", "tone16_wav.f32", 1e-7f}, {"tone24.wav", "tone24_wav.f32", 1e-7f}, {"tonef.wav", "tonef_wav.f32", 1e-7f},
        {"tone.flac", "tone_flac.f32", 1e-7f},   {"tone.aiff", "tone_aiff.f32", 1e-7f},   {"tone.au", "tone_au.f32", 1e-7f},
        {"tone.caf", "tone_caf.f32", 1e-7f},     {"tone.ogg", "tone_ogg.f32", 1e-4f},     {"tone.mp3", "tone_mp3.f32", 1e-3f}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct slice file = test_file(files[i].name), want = test_file(files[i].samples);
        struct tensor t;
        struct error err;
        uint32_t rate;
        if (sound_decode((struct str){(const char *)file.p, file.n}, 0, &(struct sound_limits){.trusted = true}, &t, &rate,
                         &err))
            fail_msg("%s: %s", files[i].name, err.text);
        assert_int_equal(rate, 8000);
        assert_int_equal(t.dtype, DTYPE_FP32);
        assert_true(t.shape.rank == 1 && (size_t)t.shape.dim[0] == t.data.n / 4);
        if (t.data.n != want.n)
            fail_msg("%s: %zu bytes of samples, want %zu", files[i].name, t.data.n, want.n);
        for (size_t k = 0; k < want.n / 4; k++) {
            float a, b;
            memcpy(&a, t.data.p + 4 * k, 4);
            memcpy(&b, want.p + 4 * k, 4);
            if (fabsf(a - b) > files[i].tolerance)
                fail_msg("%s: sample %zu is %g, want %g", files[i].name, k, (double)a, (double)b);
        }
        tensor_release(&t);
        test_file_free(file);
        test_file_free(want);
    }
}

/* The greatest error against the tone itself, away from both ends, where silence begins. */
static double tone_error(double hz, double gain, uint32_t from, uint32_t to)
{
    enum { N = 12000 };
    static float in[N];
    for (int i = 0; i < N; i++)
        in[i] = (float)sin(2 * M_PI * hz * i / from);
    struct slab *s;
    size_t n;
    struct error err;
    assert_int_equal(sound_resample(in, N, from, to, UINT64_MAX, &s, &n, &err), STATUS_OK);
    assert_int_equal(n, ((uint64_t)N * to + from - 1) / from);
    const float *out = (const float *)s->data;
    double worst = 0, edge = 80.0 * (from < to ? 1.0 : (double)from / to) / from;
    for (size_t k = 0; k < n; k++) {
        double t = (double)k / to;
        if (t > edge && t < (double)N / from - edge)
            worst = fmax(worst, fabs((double)out[k] - gain * sin(2 * M_PI * hz * t)));
    }
    slab_unref(s);
    return worst;
}

static void tones_keep_their_pitch(void **state)
{
    (void)state;
    static const uint32_t rates[][2] = {{44100, 16000}, {48000, 16000}, {8000, 16000}, {22050, 24000},
                                        {16000, 44100}, {11025, 8000},  {44100, 47999} /* too many phases for the bank */};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        assert_true(tone_error(440, 1, rates[i][0], rates[i][1]) < 2e-4);
        assert_true(tone_error(2500, 1, rates[i][0], rates[i][1]) < 2e-4);
    }
    /* Above the new Nyquist rate nothing may be left: it would come back as another pitch. */
    assert_true(tone_error(9000, 0, 44100, 16000) < 5e-4);
    assert_true(tone_error(15000, 0, 44100, 16000) < 5e-4);
    assert_true(tone_error(5000, 0, 48000, 8000) < 5e-4);
}

static void a_constant_stays_and_lengths_are_exact(void **state)
{
    (void)state;
    float one[500];
    struct slab *s;
    size_t n;
    struct error err;
    for (int i = 0; i < 500; i++)
        one[i] = 0.25f;
    assert_int_equal(sound_resample(one, 500, 16000, 44100, UINT64_MAX, &s, &n, &err), STATUS_OK);
    assert_int_equal(n, 1379); /* 500 x 2.75625 = 1378.1 */
    for (size_t k = 200; k < 1100; k++)
        assert_true(fabsf(((const float *)s->data)[k] - 0.25f) < 1e-6f);
    slab_unref(s);
    assert_int_equal(sound_resample(one, 0, 16000, 44100, UINT64_MAX, &s, &n, &err), STATUS_OK);
    assert_int_equal(n, 0);
    slab_unref(s);
    assert_int_equal(sound_resample(one, 1, 48000, 8000, UINT64_MAX, &s, &n, &err), STATUS_OK);
    assert_int_equal(n, 1);
    slab_unref(s);
    assert_int_equal(sound_resample(one, 500, 16000, 44100, 1378, &s, &n, &err), STATUS_TOO_LARGE);
    assert_int_equal(sound_resample(one, 500, 0, 44100, 1378, &s, &n, &err), STATUS_INVALID);
    assert_int_equal(sound_resample(one, 500, 16000, 400000, 1378, &s, &n, &err), STATUS_INVALID);
}

static void decoded_at_another_rate(void **state)
{
    (void)state;
    struct slice file = test_file("tone24.wav");
    struct str text = {(const char *)file.p, file.n};
    struct tensor t;
    struct error err;
    uint32_t rate;
    assert_int_equal(sound_decode(text, 16000, NULL, &t, &rate, &err), STATUS_OK);
    assert_int_equal(rate, 16000);
    assert_int_equal(t.shape.dim[0], 4000);
    for (int k = 200; k < 3800; k++) {
        float v;
        memcpy(&v, t.data.p + 4 * k, 4);
        assert_true(fabs((double)v - 0.5 * sin(2 * M_PI * 440 * k / 16000)) < 2e-4);
    }
    tensor_release(&t);
    assert_int_equal(sound_decode(text, 0, &(struct sound_limits){.frames = 1999}, &t, &rate, &err), STATUS_TOO_LARGE);
    assert_string_equal(err.text, "the sound has 2000 samples a channel, and 1999 are allowed");
    assert_int_equal(sound_decode(text, 16000, &(struct sound_limits){.frames = 3999}, &t, &rate, &err), STATUS_TOO_LARGE);
    assert_int_equal(sound_decode(text, 10, NULL, &t, &rate, &err), STATUS_INVALID);
    test_file_free(file);
    file = test_file("tone16.wav");
    text = (struct str){(const char *)file.p, file.n};
    assert_int_equal(sound_decode(text, 0, &(struct sound_limits){.channels = 1}, &t, &rate, &err), STATUS_TOO_LARGE);
    test_file_free(file);
    assert_int_equal(sound_decode(STR(""), 0, NULL, &t, &rate, &err), STATUS_INVALID);
    assert_int_equal(sound_decode(STR("not a sound at all, not a sound at all, not a sound at all"), 0, NULL, &t, &rate, &err),
                     STATUS_INVALID);
    assert_int_equal(t.data.n, 0);
    static const char *const own[] = {"tone.ogg", "tone.mp3"}; /* of strangers: refused before the library sees them */
    for (size_t i = 0; i < 2; i++) {
        file = test_file(own[i]);
        assert_int_equal(sound_decode((struct str){(const char *)file.p, file.n}, 0, NULL, &t, &rate, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "is not a WAV, AIFF, AU, CAF or FLAC sound"));
        test_file_free(file);
    }
}

static void broken_files_are_survived(void **state)
{
    (void)state;
    static const char *const names[] = {"tone16.wav", "tonef.wav", "tone.flac", "tone.aiff", "tone.au", "tone.caf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct slice file = test_file(names[i]);
        for (size_t at = 0; at < file.n; at += at < 200 ? 1 : 37)
            for (int cut = 0; cut < 2; cut++) {
                size_t n = cut ? at : file.n;
                uint8_t *p = malloc(n ? n : 1);
                memcpy(p, file.p, n);
                if (!cut)
                    p[at] ^= (uint8_t)(1u << (at % 8));
                struct tensor t;
                struct error err = {0};
                uint32_t rate;
                int rc = sound_decode((struct str){(const char *)p, n}, 0, &(struct sound_limits){.frames = 100000}, &t, &rate,
                                      &err);
                assert_true(rc == STATUS_OK || (err.text[0] && !t.data.owner));
                tensor_release(&t);
                free(p);
            }
        test_file_free(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoded_as_soundfile_does),
        cmocka_unit_test(tones_keep_their_pitch),
        cmocka_unit_test(a_constant_stays_and_lengths_are_exact),
        cmocka_unit_test(decoded_at_another_rate),
        cmocka_unit_test(broken_files_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
