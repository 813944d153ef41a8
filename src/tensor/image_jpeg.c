/* image_jpeg.c: JPEG by libjpeg-turbo. See image.h.
 *
 * Exception: setjmp and longjmp are used here and nowhere else: the library reports errors by a callback that must not
 * return. Decoding runs under them with all its state in one struct of the caller. The library only warns about truncated and
 * corrupt data and fills in grey: such warnings are errors here, except bytes between markers that nobody misses.
 */
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>
#include <jerror.h>

#include "base/status.h"
#include "tensor/image_priv.h"

#define SCANS_MAX 500 /* of a progressive picture; encoders make about ten */

struct decoder {
    struct jpeg_decompress_struct jpeg; /* first: the library hands its address back */
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    struct str file;
    uint32_t channels;
    const struct image_limits *limits;
    struct image *out;
    struct error *err;
    uint8_t *line; /* one CMYK row */
    int rc;
};

static void stop(j_common_ptr c)
{
    struct decoder *d = (struct decoder *)c;
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    d->rc = error_set(d->err, c->err->msg_code == JERR_OUT_OF_MEMORY ? STATUS_NOMEM : STATUS_INVALID,
                      "the JPEG picture can't be decoded: %s", text);
    longjmp(d->failed, 1);
}

static void warn(j_common_ptr c, int level)
{
    if (level >= 0)
        return; /* trace */
    if (c->err->msg_code != JWRN_EXTRANEOUS_DATA && c->err->msg_code != JWRN_ADOBE_XFORM)
        stop(c);
}

static void quiet(j_common_ptr c)
{
    (void)c;
}

static void progressed(j_common_ptr c)
{
    struct decoder *d = (struct decoder *)c;
    if (d->jpeg.input_scan_number <= SCANS_MAX)
        return;
    d->rc = error_set(d->err, STATUS_INVALID, "the JPEG picture has more than %d scans", SCANS_MAX);
    longjmp(d->failed, 1);
}

/* Adobe's inverted CMYK, which is what such files hold: 255 is no ink. */
static void cmyk_row(const uint8_t *in, uint32_t width, uint32_t channels, uint8_t *out)
{
    for (uint32_t i = 0; i < width; i++, in += 4) {
        uint8_t rgb[3];
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)((in[c] * in[3] + 127) / 255);
        if (channels == 3)
            memcpy(out + 3 * (size_t)i, rgb, 3);
        else
            out[i] = (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 32768u) >> 16);
    }
}

static void decode_rows(struct decoder *d)
{
    struct jpeg_decompress_struct *j = &d->jpeg;
    size_t stride = (size_t)d->out->width * d->channels;
    bool cmyk = j->out_color_space == JCS_CMYK;
    jpeg_start_decompress(j);
    if (cmyk) /* in the library's pool: freed with it */
        d->line = (*j->mem->alloc_large)((j_common_ptr)j, JPOOL_IMAGE, (size_t)d->out->width * 4);
    while (j->output_scanline < j->output_height) {
        uint8_t *row = image__pixels(d->out) + j->output_scanline * stride;
        JSAMPROW to = cmyk ? d->line : row;
        jpeg_read_scanlines(j, &to, 1);
        if (cmyk)
            cmyk_row(d->line, d->out->width, d->channels, row);
    }
    jpeg_finish_decompress(j);
}

static void decode(struct decoder *d)
{
    struct jpeg_decompress_struct *j = &d->jpeg;
    jpeg_create_decompress(j);
    j->progress = &d->progress;
    d->progress.progress_monitor = progressed;
    jpeg_mem_src(j, (const unsigned char *)d->file.p, (unsigned long)d->file.n);
    jpeg_read_header(j, TRUE);
    if (j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK)
        j->out_color_space = JCS_CMYK;
    else
        j->out_color_space = d->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    d->rc = image__create(j->image_width, j->image_height, d->channels, d->limits, d->out, d->err);
    if (!d->rc)
        decode_rows(d);
}

/* Own function: the decoder lives in the caller, so that nothing it holds is a local of the function that setjmp returns to. */
static void guarded(struct decoder *d)
{
    if (setjmp(d->failed) == 0)
        decode(d);
}

int image__jpeg(struct str file, uint32_t channels, const struct image_limits *limits, struct image *out, struct error *err)
{
    struct decoder d = {.file = file, .channels = channels, .limits = limits, .out = out, .err = err};
    d.jpeg.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = stop;
    d.errors.emit_message = warn;
    d.errors.output_message = quiet;
    guarded(&d);
    jpeg_destroy_decompress(&d.jpeg);
    return d.rc;
}
