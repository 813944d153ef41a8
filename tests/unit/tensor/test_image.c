/* Pictures: decoded as Pillow decodes them (make_data.py), resized as Pillow resizes and as the definitions say, normalised as
 * numpy computes. Corrupt files, cut and flipped at many places, are errors or pictures, never a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/status.h"
#include "tensor/image.h"

#include "tensor/file.h"

static struct image load(const char *name, uint32_t channels)
{
    struct slice file = test_file(name);
    struct image im;
    struct error err;
    if (image_decode((struct str){(const char *)file.p, file.n}, channels, NULL, &im, &err))
        fail_msg("%s: %s", name, err.text);
    test_file_free(file);
    return im;
}

/* The greatest difference of a sample from the file's. */
static int distance(const struct image *im, const char *name)
{
    struct slice want = test_file(name);
    int worst = 0;
    assert_int_equal(want.n, im->pixels.n);
    for (size_t i = 0; i < want.n; i++) {
        int d = abs((int)want.p[i] - (int)im->pixels.p[i]);
        worst = d > worst ? d : worst;
    }
    test_file_free(want);
    return worst;
}

static void decoded_as_pillow_does(void **state)
{
    (void)state;
    /* Lossless formats exactly; lossy ones within a rounding step of another build of the same libraries. */
    static const struct {
        const char *name, *rgb;
        int tolerance;
    } files[] = {{"photo.jpg", "photo_jpg.rgb", 2},
                 {"progressive.jpg", "progressive_jpg.rgb", 2},
                 {"sampling444.jpg", "sampling444_jpg.rgb", 2},
                 {"grey.jpg", "grey_jpg.rgb", 1},
                 {"cmyk.jpg", "cmyk_jpg.rgb", 2},
                 {"photo.png", "photo_png.rgb", 0},
                 {"alpha.png", "alpha_png.rgb", 0},
                 {"palette.png", "palette_png.rgb", 0},
                 {"grey.png", "grey_png.rgb", 0},
                 {"bits.png", "bits_png.rgb", 0},
                 {"lossless.webp", "lossless_webp.rgb", 0},
                 {"alpha.webp", "alpha_webp.rgb", 0},
                 {"lossy.webp", "lossy_webp.rgb", 2}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct image im = load(files[i].name, 3);
        assert_int_equal(im.width, 45);
        assert_int_equal(im.height, 31);
        int d = distance(&im, files[i].rgb);
        if (d > files[i].tolerance)
            fail_msg("%s differs by %d", files[i].name, d);
        image_release(&im);
    }
}

static void grey_is_luma(void **state)
{
    (void)state;
    static const char *const names[] = {"photo.png", "photo.jpg", "lossless.webp", "cmyk.jpg"};
    for (size_t k = 0; k < 4; k++) {
        struct image rgb = load(names[k], 3), grey = load(names[k], 1);
        assert_int_equal(grey.pixels.n, 45 * 31);
        for (size_t i = 0; i < grey.pixels.n; i++) {
            const uint8_t *p = rgb.pixels.p + 3 * i;
            double y = 0.299 * p[0] + 0.587 * p[1] + 0.114 * p[2];
            /* a JPEG's own Y is not clipped by way of RGB */
            assert_true(fabs(y - grey.pixels.p[i]) <= (k == 1 ? 4 : 0.51));
        }
        image_release(&rgb);
        image_release(&grey);
    }
}

static void limits_and_refusals(void **state)
{
    (void)state;
    struct error err;
    struct image im;
    static const char *const names[] = {"photo.jpg", "photo.png", "lossless.webp"};
    for (size_t i = 0; i < 3; i++) {
        struct slice file = test_file(names[i]);
        struct str text = {(const char *)file.p, file.n};
        assert_int_equal(image_decode(text, 3, &(struct image_limits){.side = 44}, &im, &err), STATUS_TOO_LARGE);
        assert_string_equal(err.text, "the picture is 45 x 31 pixels, and a side may have 44");
        assert_int_equal(image_decode(text, 3, &(struct image_limits){.pixels = 1394}, &im, &err), STATUS_TOO_LARGE);
        assert_string_equal(err.text, "the picture is 45 x 31 = 1395 pixels, and 1394 are allowed");
        assert_int_equal(image_decode(text, 3, &(struct image_limits){.pixels = 1395}, &im, &err), STATUS_OK);
        image_release(&im);
        test_file_free(file);
    }
    struct slice file = test_file("animated.webp");
    assert_int_equal(image_decode((struct str){(const char *)file.p, file.n}, 3, NULL, &im, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "animation"));
    test_file_free(file);
    assert_int_equal(image_decode(STR("GIF89a"), 3, NULL, &im, &err), STATUS_INVALID);
    assert_string_equal(err.text, "the data (6 bytes) is not a JPEG, PNG or WebP picture");
    assert_int_equal(image_decode(STR(""), 3, NULL, &im, &err), STATUS_INVALID);
    assert_int_equal(image_decode(STR("\xff\xd8\xff"), 3, NULL, &im, &err), STATUS_INVALID);
    assert_int_equal(image_decode(STR("\x89PNG\r\n\x1a\n"), 3, NULL, &im, &err), STATUS_INVALID);
    assert_int_equal(image_decode(STR("RIFF\0\0\0\0WEBP"), 3, NULL, &im, &err), STATUS_INVALID);
}

static void cut_files_are_errors(void **state)
{
    (void)state;
    static const char *const names[] = {"photo.jpg",   "progressive.jpg", "photo.png",
                                        "palette.png", "lossless.webp",   "lossy.webp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct slice file = test_file(names[i]);
        for (size_t n = 0; n + 16 < file.n; n += 7) { /* the last bytes of a file may be padding */
            uint8_t *p = malloc(n ? n : 1);
            memcpy(p, file.p, n);
            struct image im;
            struct error err = {0};
            if (image_decode((struct str){(const char *)p, n}, 3, NULL, &im, &err) != STATUS_INVALID)
                fail_msg("%s cut to %zu of %zu bytes is accepted", names[i], n, file.n);
            assert_true(err.text[0] && !im.pixels.owner);
            free(p);
        }
        test_file_free(file);
    }
}

static void flipped_bits_are_survived(void **state)
{
    (void)state;
    static const char *const names[] = {"photo.jpg", "progressive.jpg", "cmyk.jpg",  "photo.png",
                                        "alpha.png", "lossless.webp",   "lossy.webp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct slice file = test_file(names[i]);
        for (size_t at = 0; at < file.n; at += 3) {
            uint8_t *p = malloc(file.n);
            memcpy(p, file.p, file.n);
            p[at] ^= (uint8_t)(1u << (at % 8));
            struct image im;
            struct error err = {0};
            int rc =
                image_decode((struct str){(const char *)p, file.n}, 3, &(struct image_limits){.pixels = 1 << 20}, &im, &err);
            assert_true(rc == STATUS_OK || err.text[0]);
            image_release(&im);
            free(p);
        }
        test_file_free(file);
    }
}

static void resized_as_pillow_does(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = {{20, 13}, {45, 7}, {97, 64}, {1, 1}, {33, 31}};
    struct image im = load("photo.png", 3), out;
    struct error err;
    char name[64];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(image_resize(&im, sizes[i][0], sizes[i][1], IMAGE_BILINEAR, &out, &err), STATUS_OK);
        snprintf(name, sizeof name, "bilinear_%ux%u.rgb", sizes[i][0], sizes[i][1]);
        assert_int_equal(distance(&out, name), 0);
        image_release(&out);
    }
    for (size_t i = 0; i < 2; i++) {
        static const uint32_t area[][2] = {{20, 13}, {15, 31}}, plain[][2] = {{20, 13}, {70, 50}};
        assert_int_equal(image_resize(&im, area[i][0], area[i][1], IMAGE_AREA, &out, &err), STATUS_OK);
        snprintf(name, sizeof name, "area_%ux%u.rgb", area[i][0], area[i][1]);
        assert_true(distance(&out, name) <= 1); /* two passes of 8 bits */
        image_release(&out);
        assert_int_equal(image_resize(&im, plain[i][0], plain[i][1], IMAGE_BILINEAR_PLAIN, &out, &err), STATUS_OK);
        snprintf(name, sizeof name, "plain_%ux%u.rgb", plain[i][0], plain[i][1]);
        assert_true(distance(&out, name) <= 1);
        image_release(&out);
    }
    assert_int_equal(image_resize(&im, 45, 31, IMAGE_BILINEAR, &out, &err), STATUS_OK);
    assert_ptr_equal(out.pixels.owner, im.pixels.owner);
    image_release(&out);
    assert_int_equal(image_resize(&im, 0, 31, IMAGE_BILINEAR, &out, &err), STATUS_INVALID);
    assert_int_equal(image_resize(&im, 70000, 31, IMAGE_BILINEAR, &out, &err), STATUS_INVALID);
    /* A constant picture stays constant whatever the sizes. */
    struct image flat = {
        7, 5, 1,
        slice_borrow("\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8"
                     "\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8\xc8",
                     35)};
    for (uint32_t w = 1; w < 24; w++)
        for (uint32_t h = 1; h < 24; h += 3)
            for (int f = IMAGE_BILINEAR; f <= IMAGE_AREA; f++) {
                assert_int_equal(image_resize(&flat, w, h, (enum image_filter)f, &out, &err), STATUS_OK);
                for (size_t i = 0; i < out.pixels.n; i++)
                    assert_int_equal(out.pixels.p[i], 0xc8);
                image_release(&out);
            }
    image_release(&im);
}

static void cropped(void **state)
{
    (void)state;
    struct image im = load("photo.png", 3), out;
    struct error err;
    assert_int_equal(image_crop(&im, 10, 8, 4, 3, &out, &err), STATUS_OK); /* inside the coloured square */
    for (size_t i = 0; i < 36; i += 3)
        assert_memory_equal(out.pixels.p + i, "\xc8\x1e\x3c", 3);
    image_release(&out);
    assert_int_equal(image_crop(&im, 0, 5, 45, 26, &out, &err), STATUS_OK);
    assert_ptr_equal(out.pixels.p, im.pixels.p + 5 * 45 * 3);
    image_release(&out);
    assert_int_equal(image_crop(&im, 42, 0, 4, 1, &out, &err), STATUS_INVALID);
    assert_string_equal(err.text, "a picture of 45 x 31 pixels has no 4 x 1 at (42, 0)");
    assert_int_equal(image_crop(&im, 0xffffffff, 0, 2, 1, &out, &err), STATUS_INVALID);
    assert_int_equal(image_crop(&im, 0, 0, 0, 1, &out, &err), STATUS_INVALID);
    image_release(&im);
}

static void laid_out_as_tensors(void **state)
{
    (void)state;
    struct image im = load("photo.png", 3);
    struct tensor t;
    struct error err;
    struct image_layout l = {DTYPE_FP32, true, false, 1.0f / 255, {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
    struct slice want = test_file("normalised_chw.bin");
    assert_int_equal(image_tensor(&im, &l, &t, &err), STATUS_OK);
    struct shape chw = {3, {3, 31, 45}}, hwc = {3, {31, 45, 3}};
    assert_true(shape_eq(&t.shape, &chw));
    assert_int_equal(t.data.n, want.n);
    assert_memory_equal(t.data.p, want.p, want.n);
    tensor_release(&t);
    test_file_free(want);
    l = (struct image_layout){DTYPE_UINT8, false, true, 0, {0}, {0}};
    assert_int_equal(image_tensor(&im, &l, &t, &err), STATUS_OK);
    assert_true(shape_eq(&t.shape, &hwc));
    for (size_t i = 0; i < t.data.n; i++)
        assert_int_equal(t.data.p[i], im.pixels.p[i / 3 * 3 + 2 - i % 3]);
    tensor_release(&t);
    l = (struct image_layout){DTYPE_FP16, true, true, 1, {0, 0, 1}, {1, 1, 2}};
    assert_int_equal(image_tensor(&im, &l, &t, &err), STATUS_OK);
    uint16_t h;
    memcpy(&h, t.data.p, 2); /* blue of the first pixel: (0 - 1) / 2 */
    assert_int_equal(h, 0xb800);
    tensor_release(&t);
    l.std[1] = 0;
    assert_int_equal(image_tensor(&im, &l, &t, &err), STATUS_INVALID);
    l.dtype = DTYPE_INT64;
    assert_int_equal(image_tensor(&im, &l, &t, &err), STATUS_INVALID);
    image_release(&im);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoded_as_pillow_does),
        cmocka_unit_test(grey_is_luma),
        cmocka_unit_test(limits_and_refusals),
        cmocka_unit_test(cut_files_are_errors),
        cmocka_unit_test(flipped_bits_are_survived),
        cmocka_unit_test(resized_as_pillow_does),
        cmocka_unit_test(cropped),
        cmocka_unit_test(laid_out_as_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
