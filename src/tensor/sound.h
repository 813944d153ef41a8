/* sound.h: sound files into mono samples at a model's rate.
 *
 * WAV, AIFF, AU, CAF and FLAC, by libsndfile from memory; the format is told by the content. Ogg (Vorbis, Opus) and MP3 only when
 * `limits.trusted` says that the file is not a stranger's: on a broken one the library (1.2) leaks memory for the former and writes
 * to stderr for the latter, which no client may make a server do. Channels are
 * averaged; samples are floats in [-1, 1) at full scale. Resampling is a windowed sinc (Kaiser, 32 zero crossings a side; Smith,
 * "Digital Audio Resampling") with its cut-off below the lower of both rates' halves, evaluated in double for each phase. Length
 * and rate are bounded before memory is taken. Pure; any thread; slow for long sounds, so not on an I/O thread. */
#ifndef INFERD_TENSOR_SOUND_H
#define INFERD_TENSOR_SOUND_H

#include "tensor/tensor.h"

struct sound_limits {
    uint64_t frames;   /* samples a channel, of the file and after resampling; 0: 28800000 (10 minutes at 48 kHz) */
    uint32_t channels; /* 0: 16 */
    bool trusted;      /* the operator's own file (command line): Ogg and MP3 too */
};

#define SOUND_RATE_MIN 1000
#define SOUND_RATE_MAX 384000

/* Decode `file` to one channel. `rate` in Hz; 0: the file's own. `out` is an FP32 tensor of shape [samples] without a name;
 * *rate_out is its rate. STATUS_INVALID: not a sound file, corrupt, rate outside SOUND_RATE_MIN..MAX; STATUS_TOO_LARGE:
 * beyond `limits` (may be NULL); STATUS_NOMEM. On error `out` is empty. */
int sound_decode(struct str file, uint32_t rate, const struct sound_limits *limits, struct tensor *out, uint32_t *rate_out,
                 struct error *err) MUST_CHECK;

/* `n` samples at rate `from` as *n_out = ceil(n x to / from) samples at rate `to` in a new slab of floats. STATUS_INVALID for
 * rates outside the range, STATUS_TOO_LARGE when *n_out exceeds `max_out`, STATUS_NOMEM. Sample 0 stays at time 0; what lies
 * before and behind counts as silence. */
int sound_resample(const float *in, size_t n, uint32_t from, uint32_t to, uint64_t max_out, struct slab **out, size_t *n_out,
                   struct error *err) MUST_CHECK;

#endif
