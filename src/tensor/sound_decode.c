/* sound_decode.c: libsndfile over a block of memory. See sound.h.
 *
 * The library's header of a file may promise anything, so frames are read in blocks and memory grows with what really comes, up
 * to the limit. */
#include <sndfile.h>

#include "base/size.h"
#include "base/status.h"
#include "tensor/sound.h"

#define FRAMES_DEFAULT   28800000u
#define CHANNELS_DEFAULT 16u
#define BLOCK            4096 /* samples of one read, all channels */

/* ---- the library's file callbacks, over memory ---- */

struct memory {
    struct str file;
    size_t at;
};

static sf_count_t memory_length(void *user)
{
    return (sf_count_t)((struct memory *)user)->file.n;
}

static sf_count_t memory_tell(void *user)
{
    return (sf_count_t)((struct memory *)user)->at;
}

static sf_count_t memory_seek(sf_count_t offset, int whence, void *user)
{
    struct memory *m = user;
    sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (sf_count_t)m->at : (sf_count_t)m->file.n;
    sf_count_t to;
    if (__builtin_add_overflow(base, offset, &to) || to < 0 || (uint64_t)to > m->file.n)
        return -1;
    m->at = (size_t)to;
    return to;
}

static sf_count_t memory_read(void *to, sf_count_t count, void *user)
{
    struct memory *m = user;
    size_t n = count < 0 ? 0 : MIN_OF((size_t)count, m->file.n - m->at);
    if (n)
        memcpy(to, m->file.p + m->at, n);
    m->at += n;
    return (sf_count_t)n;
}

static sf_count_t memory_write(const void *from, sf_count_t count, void *user)
{
    (void)from, (void)count, (void)user;
    return 0;
}

/* ---- decoding ---- */

/* The first bytes are those of a format that the library reads with its own code, or with libFLAC. */
static bool is_sturdy(struct str file)
{
    static const char marks[][5] = {"RIFF", "RIFX", "RF64", "FORM", "fLaC", ".snd", "caff"};
    for (size_t i = 0; i < COUNT_OF(marks); i++)
        if (str_starts(file, str_of(marks[i])))
            return true;
    return false;
}

static int unusable(SNDFILE *f, struct error *err)
{
    return error_set(err, STATUS_INVALID, "the sound can't be decoded: %s", sf_strerror(f));
}

/* Double the slab. */
static bool more_room(struct slab **s)
{
    struct slab *bigger = slab_create((*s)->cap * 2);
    if (!bigger)
        return false;
    memcpy(bigger->data, (*s)->data, (*s)->n);
    bigger->n = (*s)->n;
    slab_unref(*s);
    *s = bigger;
    return true;
}

/* All frames, channels averaged, appended to *mono. */
static int read_frames(SNDFILE *f, const SF_INFO *info, uint64_t frames_max, struct slab **mono, struct error *err)
{
    float block[BLOCK];
    const size_t channels = (size_t)info->channels;
    const float share = 1.0f / (float)channels;
    sf_count_t n;
    while ((n = sf_readf_float(f, block, (sf_count_t)(BLOCK / channels))) > 0) {
        if ((uint64_t)n > frames_max - (*mono)->n / sizeof(float))
            return error_set(err, STATUS_TOO_LARGE, "the sound has more than %llu samples a channel",
                             (unsigned long long)frames_max);
        while ((*mono)->cap - (*mono)->n < (size_t)n * sizeof(float))
            if (!more_room(mono))
                return error_set(err, STATUS_NOMEM, "no memory for the sound");
        float *to = (float *)((*mono)->data + (*mono)->n);
        for (size_t i = 0; i < (size_t)n; i++) {
            float sum = 0;
            for (size_t c = 0; c < channels; c++)
                sum += block[i * channels + c];
            to[i] = channels == 1 ? sum : sum * share;
        }
        (*mono)->n += (size_t)n * sizeof(float);
    }
    if (sf_error(f))
        return unusable(f, err);
    /* A header that promises frames which don't come is a file that was cut off; an MP3's count is only an estimate. */
    if ((info->format & SF_FORMAT_TYPEMASK) != SF_FORMAT_MPEG && info->frames > 0 && info->frames < SF_COUNT_MAX &&
        (uint64_t)info->frames > (*mono)->n / sizeof(float))
        return error_set(err, STATUS_INVALID, "the sound is cut off: %llu of %llu samples are there",
                         (unsigned long long)((*mono)->n / sizeof(float)), (unsigned long long)info->frames);
    return STATUS_OK;
}

static int check_info(const SF_INFO *info, uint64_t frames_max, uint32_t channels_max, struct error *err)
{
    if (info->channels < 1 || (uint32_t)info->channels > channels_max)
        return error_set(err, STATUS_TOO_LARGE, "the sound has %d channels, and 1 to %u are allowed", info->channels,
                         channels_max);
    if (info->samplerate < SOUND_RATE_MIN || info->samplerate > SOUND_RATE_MAX)
        return error_set(err, STATUS_INVALID, "the sound has %d samples a second, and %d to %d are taken", info->samplerate,
                         SOUND_RATE_MIN, SOUND_RATE_MAX);
    if (info->frames > 0 && info->frames < SF_COUNT_MAX && (uint64_t)info->frames > frames_max)
        return error_set(err, STATUS_TOO_LARGE, "the sound has %lld samples a channel, and %llu are allowed",
                         (long long)info->frames, (unsigned long long)frames_max);
    return STATUS_OK;
}

static int decode(SNDFILE *f, const SF_INFO *info, uint32_t rate, uint64_t frames_max, struct slab **samples, struct error *err)
{
    struct slab *mono = slab_create(64 * 1024), *resampled;
    size_t n;
    if (!mono)
        return error_set(err, STATUS_NOMEM, "no memory for the sound");
    int rc = read_frames(f, info, frames_max, &mono, err);
    if (!rc && rate && rate != (uint32_t)info->samplerate) {
        rc = sound_resample((const float *)mono->data, mono->n / sizeof(float), (uint32_t)info->samplerate, rate, frames_max,
                            &resampled, &n, err);
        slab_unref(mono);
        mono = rc ? NULL : resampled;
    }
    if (rc)
        slab_unref(mono);
    else
        *samples = mono;
    return rc;
}

int sound_decode(struct str file, uint32_t rate, const struct sound_limits *limits, struct tensor *out, uint32_t *rate_out,
                 struct error *err)
{
    uint64_t frames_max = limits && limits->frames ? limits->frames : FRAMES_DEFAULT;
    uint32_t channels_max = limits && limits->channels ? limits->channels : CHANNELS_DEFAULT;
    SF_VIRTUAL_IO io = {memory_length, memory_seek, memory_read, memory_write, memory_tell};
    struct memory m = {file, 0};
    SF_INFO info = {0};
    struct slab *samples = NULL;
    *out = (struct tensor){.dtype = DTYPE_FP32};
    if (rate && (rate < SOUND_RATE_MIN || rate > SOUND_RATE_MAX))
        return error_set(err, STATUS_INVALID, "a sound can't be brought to %u samples a second: %d to %d are possible", rate,
                         SOUND_RATE_MIN, SOUND_RATE_MAX);
    if (!(limits && limits->trusted) && !is_sturdy(file))
        return error_set(err, STATUS_INVALID, "the data (%zu bytes) is not a WAV, AIFF, AU, CAF or FLAC sound", file.n);
    SNDFILE *f = sf_open_virtual(&io, SFM_READ, &info, &m);
    if (!f)
        return unusable(NULL, err);
    int rc = check_info(&info, frames_max, MIN_OF(channels_max, (uint32_t)BLOCK), err);
    if (!rc)
        rc = decode(f, &info, rate, frames_max, &samples, err);
    sf_close(f);
    if (rc)
        return rc;
    *rate_out = rate ? rate : (uint32_t)info.samplerate;
    out->shape = (struct shape){1, {(int64_t)(samples->n / sizeof(float))}};
    out->data = (struct slice){samples->data, samples->n, samples};
    return STATUS_OK;
}
