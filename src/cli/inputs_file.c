/* inputs_file.c: files into tensors, fitted to what the input takes. The format is told by the content. */
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/inputs_priv.h"
#include "tensor/image.h"
#include "tensor/npy.h"
#include "tensor/sound.h"
#include "wire/json.h"

#define FILE_MAX_BYTES ((size_t)1 << 30)

static bool at(struct str bytes, size_t offset, const char *magic)
{
    size_t n = strlen(magic);
    return bytes.n >= offset + n && memcmp(bytes.p + offset, magic, n) == 0;
}

enum inputs_kind inputs__kind(const char *path, struct str b)
{
    bool riff = at(b, 0, "RIFF");
    if (at(b, 0, "\x93NUMPY"))
        return INPUTS_NPY;
    if (str_ends(str_of(path), STR(".json")))
        return INPUTS_JSON;
    if (at(b, 0, "\xff\xd8\xff") || at(b, 0, "\x89PNG\r\n\x1a\n") || (riff && at(b, 8, "WEBP")))
        return INPUTS_IMAGE;
    bool mp3 = at(b, 0, "ID3") || (b.n > 1 && (uint8_t)b.p[0] == 0xff && ((uint8_t)b.p[1] & 0xe6) == 0xe2);
    if ((riff && at(b, 8, "WAVE")) || at(b, 0, "fLaC") || at(b, 0, "OggS") || (at(b, 0, "FORM") && at(b, 8, "AIF")) ||
        at(b, 0, ".snd") || at(b, 0, "caff") || mp3)
        return INPUTS_SOUND;
    return INPUTS_RAW;
}

static void batch_shape(const struct kserve_io *io, struct tensor *t)
{
    inputs__add_batch_axis(io, &t->shape);
}

/* ---- as bytes ---- */

/* The input takes a file as it is: strings, or a run of bytes of any length. */
static bool takes_bytes(const struct kserve_io *io)
{
    int rank = io->shape.rank;
    if (io->dtype == DTYPE_BYTES)
        return true;
    return io->dtype == DTYPE_UINT8 && rank > 0 && rank <= 2 && io->shape.dim[rank - 1] == TENSOR_DIM_DYNAMIC;
}

static int raw_tensor(const struct kserve_io *io, struct str bytes, struct tensor *t, struct error *err)
{
    if (!takes_bytes(io)) {
        char shape[256];
        return error_set(err, STATUS_INVALID,
                         "input '%.*s' takes %s %s: give it a .npy or .json file, a JPEG, PNG or WebP picture or a "
                         "sound (or NAME=FILE for another input)",
                         STR_ARG(io->name), dtype_name(io->dtype), shape_format(&io->shape, shape, sizeof shape));
    }
    size_t prefix = io->dtype == DTYPE_BYTES ? 4 : 0;
    struct slab *s = bytes.n <= UINT32_MAX ? slab_create(bytes.n + prefix ? bytes.n + prefix : 1) : NULL;
    if (!s)
        return error_set(err, STATUS_NOMEM, "not enough memory");
    uint32_t n = (uint32_t)bytes.n;
    memcpy(s->data, &n, prefix);
    if (bytes.n)
        memcpy(s->data + prefix, bytes.p, bytes.n);
    s->n = bytes.n + prefix;
    t->dtype = io->dtype;
    t->data = (struct slice){s->data, s->n, s};
    t->shape = (struct shape){.rank = 1, .dim = {prefix ? 1 : (int64_t)bytes.n}};
    while (prefix && t->shape.rank < io->shape.rank) /* one string in as many axes as there are */
        t->shape.dim[t->shape.rank++] = 1;
    if (!prefix)
        batch_shape(io, t);
    return 0;
}

/* ---- pictures ---- */

struct picture {
    bool chw;
    int64_t height, width; /* -1: any */
    uint32_t channels;
};

/* How the last three dims of an input hold a picture. */
static bool picture_axes(const struct kserve_io *io, struct picture *out)
{
    if (io->shape.rank < 3 || io->shape.rank > 4)
        return false;
    const int64_t *d = io->shape.dim + io->shape.rank - 3;
    bool first = d[0] == 3 || d[0] == 1, last = d[2] == 3 || d[2] == 1, open = d[0] == -1 && d[1] == -1 && d[2] == -1;
    if (!first && !last && !open)
        return false;
    *out = (struct picture){.chw = first || open};
    int64_t channels = open ? 3 : first ? d[0] : d[2];
    out->channels = (uint32_t)channels;
    out->height = out->chw ? d[1] : d[0];
    out->width = out->chw ? d[2] : d[1];
    return true;
}

static void set_scale(const char *scale, struct image_layout *l)
{
    static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    bool imagenet = strcmp(scale, "imagenet") == 0;
    l->scale = 1.0f / 255;
    if (strcmp(scale, "none") == 0)
        l->scale = 1;
    if (strcmp(scale, "signed") == 0)
        l->scale = 2.0f / 255;
    for (int i = 0; i < 3; i++) {
        l->mean[i] = imagenet ? mean[i] : strcmp(scale, "signed") == 0 ? 1 : 0;
        l->std[i] = imagenet ? std[i] : 1;
    }
}

/* The model's size; where it leaves one side open, the picture's proportions; where both, the picture's own size. */
static void picture_size(const struct picture *p, const struct image *i, uint32_t *width, uint32_t *height)
{
    bool fixed_width = p->width > 0 && p->width <= IMAGE_SIDE_MAX, fixed_height = p->height > 0 && p->height <= IMAGE_SIDE_MAX;
    double scale = 1;
    if (fixed_width != fixed_height)
        scale = fixed_width ? (double)p->width / i->width : (double)p->height / i->height;
    double w = fmin(fmax(floor(i->width * scale + 0.5), 1), IMAGE_SIDE_MAX);
    double h = fmin(fmax(floor(i->height * scale + 0.5), 1), IMAGE_SIDE_MAX);
    *width = fixed_width ? (uint32_t)p->width : (uint32_t)w;
    *height = fixed_height ? (uint32_t)p->height : (uint32_t)h;
}

static int picture_tensor(const struct kserve_io *io, struct str bytes, const struct inputs_media *media, struct tensor *t,
                          struct error *err)
{
    struct picture p;
    struct image decoded, sized;
    char shape[256];
    bool real = io->dtype == DTYPE_FP32 || io->dtype == DTYPE_FP16 || io->dtype == DTYPE_BF16;
    if (!picture_axes(io, &p) || (!real && io->dtype != DTYPE_UINT8))
        return error_set(err, STATUS_INVALID, "input '%.*s' takes %s %s, which a picture does not fit", STR_ARG(io->name),
                         dtype_name(io->dtype), shape_format(&io->shape, shape, sizeof shape));
    int rc = image_decode(bytes, p.channels, NULL, &decoded, err);
    if (rc < 0)
        return rc;
    uint32_t width, height;
    picture_size(&p, &decoded, &width, &height);
    struct image_layout layout = {.dtype = io->dtype, .chw = p.chw, .bgr = media->bgr && p.channels == 3};
    set_scale(media->scale, &layout);
    rc = image_resize(&decoded, width, height, IMAGE_BILINEAR, &sized, err);
    image_release(&decoded);
    if (rc < 0)
        return rc;
    rc = image_tensor(&sized, &layout, t, err);
    image_release(&sized);
    if (rc == 0)
        batch_shape(io, t);
    return rc;
}

/* ---- sounds ---- */

static void to_pcm(struct tensor *t)
{
    for (size_t i = 0; i < t->data.n / 4; i++) {
        float f;
        memcpy(&f, t->data.p + 4 * i, 4);
        f *= 32768;
        memcpy(t->data.owner->data + 4 * i, &f, 4); /* the slab is ours alone still */
    }
}

static int sound_tensor(const struct kserve_io *io, struct str bytes, const struct inputs_media *media, struct tensor *t,
                        struct error *err)
{
    const struct sound_limits limits = {.trusted = true};
    uint32_t rate;
    char shape[256];
    bool real = io->dtype == DTYPE_FP32 || io->dtype == DTYPE_FP16 || io->dtype == DTYPE_BF16 || io->dtype == DTYPE_FP64;
    if ((!real && io->dtype != DTYPE_INT16) || io->shape.rank > 2)
        return error_set(err, STATUS_INVALID, "input '%.*s' takes %s %s, which a sound does not fit", STR_ARG(io->name),
                         dtype_name(io->dtype), shape_format(&io->shape, shape, sizeof shape));
    int rc = sound_decode(bytes, media->rate, &limits, t, &rate, err);
    if (rc == 0 && io->dtype == DTYPE_INT16)
        to_pcm(t);
    if (rc == 0 && io->dtype != DTYPE_FP32)
        rc = inputs__cast(t, io->dtype, err);
    if (rc == 0)
        batch_shape(io, t);
    return rc;
}

/* ---- arrays ---- */

static int npy_tensor(const struct kserve_io *io, struct str bytes, const struct inputs_media *media, struct tensor *t,
                      struct error *err)
{
    int rc = npy_read(slice_borrow(bytes.p, bytes.n), t, err);
    if (rc < 0)
        return rc;
    batch_shape(io, t);
    if (t->dtype == io->dtype)
        return 0;
    if (media->cast || (io->dtype == DTYPE_BF16 && t->dtype == DTYPE_FP32)) /* numpy has no bfloat16 */
        rc = inputs__cast(t, io->dtype, err);
    else
        rc = error_set(err, STATUS_INVALID, "input '%.*s' takes %s and the array is %s: convert it, or use --cast",
                       STR_ARG(io->name), dtype_name(io->dtype), dtype_name(t->dtype));
    if (rc < 0)
        tensor_release(t);
    return rc;
}

/* {"ids": [...], "mask": [...]}: inputs by name. */
static int json_inputs(struct inputs *in, const struct kserve_model *m, const struct kserve_io *io, struct str bytes,
                       struct error *err)
{
    struct json j;
    yyjson_val *key, *v;
    size_t i, n;
    int rc = json_parse(&j, bytes, NULL, err);
    if (rc < 0)
        return rc;
    if (!yyjson_is_obj(j.root))
        rc = inputs__put_json(in, io, j.root, err);
    yyjson_val *list = yyjson_obj_get(j.root, "inputs");
    if (yyjson_is_arr(list)) { /* a whole KServe request */
        yyjson_arr_foreach(list, i, n, v)
        {
            const struct kserve_io *each = rc < 0 ? NULL : inputs__find(m, json_str(yyjson_obj_get(v, "name")), err);
            if (rc == 0)
                rc = each ? inputs__put_json(in, each, yyjson_obj_get(v, "data"), err) : STATUS_NOT_FOUND;
        }
    } else if (yyjson_is_obj(j.root)) {
        yyjson_obj_foreach(j.root, i, n, key, v)
        {
            const struct kserve_io *each = rc < 0 ? NULL : inputs__find(m, json_str(key), err);
            if (rc == 0)
                rc = each ? inputs__put_json(in, each, v, err) : STATUS_NOT_FOUND;
        }
    }
    json_release(&j);
    return rc;
}

/* ---- one argument ---- */

/* "NAME=FILE" when NAME is an input, else a file name that may hold '='. NULL io: no input is left. */
static const struct kserve_io *target_of(const struct inputs *in, const struct kserve_model *m, const char *argument,
                                         const char **path)
{
    const char *equals = strchr(argument, '=');
    for (size_t i = 0; equals && i < m->n_inputs; i++)
        if (str_eq(m->inputs[i].name, (struct str){argument, (size_t)(equals - argument)})) {
            *path = equals + 1;
            return &m->inputs[i];
        }
    *path = argument;
    for (size_t i = 0; i < m->n_inputs; i++)
        if (!inputs__has(in, m->inputs[i].name) && !m->inputs[i].optional)
            return &m->inputs[i];
    for (size_t i = 0; i < m->n_inputs; i++)
        if (!inputs__has(in, m->inputs[i].name))
            return &m->inputs[i];
    return NULL;
}

int inputs_add_file(struct inputs *in, const struct kserve_model *m, const char *argument, const struct inputs_media *media,
                    struct error *err)
{
    const char *path;
    struct tensor t = {0};
    const struct kserve_io *io = target_of(in, m, argument, &path);
    if (!io || in->n_files == COUNT_OF(in->files))
        return error_set(err, STATUS_INVALID, "%s: every input of the model has its data already", argument);
    struct buf *file = &in->files[in->n_files++];
    buf_init(file);
    int rc = cli_read_file(path, FILE_MAX_BYTES, file, err);
    if (rc < 0)
        return rc;
    struct str bytes = buf_str(file);
    enum inputs_kind kind = inputs__kind(path, bytes);
    if (kind == INPUTS_JSON)
        rc = json_inputs(in, m, io, bytes, err);
    else if (kind == INPUTS_NPY)
        rc = npy_tensor(io, bytes, media, &t, err);
    else if (kind == INPUTS_RAW || takes_bytes(io))
        rc = raw_tensor(io, bytes, &t, err);
    else
        rc = kind == INPUTS_IMAGE ? picture_tensor(io, bytes, media, &t, err) : sound_tensor(io, bytes, media, &t, err);
    if (rc == 0 && kind != INPUTS_JSON)
        return inputs__put(in, io, &t, err);
    return rc < 0 ? error_prefix(err, "%s", path) : 0;
}
