/* inputs.h: tensors for a request: generated from a model's metadata, written on the command line as JSON, or read from files. */
#ifndef INFERD_CLI_INPUTS_H
#define INFERD_CLI_INPUTS_H

#include "base/rand.h"
#include "cli/kserve.h"

struct inputs {
    struct tensor tensors[KSERVE_IO_MAX]; /* in no particular order; names borrowed from the model */
    size_t n;
    struct arena arena;
    struct buf files[KSERVE_IO_MAX]; /* what was read; tensors may point into them */
    size_t n_files;
};

void inputs_init(struct inputs *in);
void inputs_release(struct inputs *in);

struct inputs_generate {
    uint32_t rows;          /* on the batch axis */
    int64_t dynamic;        /* other dims that the model leaves open */
    struct cli_list shapes; /* "NAME=1,128": the whole shape of an input */
    bool zero;
    double int_below; /* random whole numbers are in [0, int_below), within the dtype */
    struct rand rand;
};

/* A tensor for each input that `in` has none for; optional ones only where `shapes` names them. INVALID: a shape that doesn't
 * parse, names no input or does not fit the metadata. */
int inputs_generate(struct inputs *in, const struct kserve_model *m, struct inputs_generate *g, struct error *err) MUST_CHECK;

/* "NAME=JSON": data as JSON, nested as the shape or flat for inputs of one dimension. */
int inputs_add_json(struct inputs *in, const struct kserve_model *m, const char *text, struct error *err) MUST_CHECK;

struct inputs_media {
    const char *scale; /* pictures: "unit" 0..1, "signed" -1..1, "imagenet" mean and deviation, "none" 0..255 */
    bool bgr;
    uint32_t rate; /* sounds: Hz to resample to; 0: the file's own */
    bool cast;     /* numbers of another dtype than the input's are converted */
};

/* "FILE" or "NAME=FILE"; FILE "-" is standard input. .npy; .json (an object of inputs by name, or one input's data); pictures and
 * sounds, fitted to the input's shape and dtype; anything else goes as its bytes into an input of BYTES or UINT8. Without a name the
 * file goes to the first input that has nothing yet. Blocks on the file. */
int inputs_add_file(struct inputs *in, const struct kserve_model *m, const char *argument, const struct inputs_media *media,
                    struct error *err) MUST_CHECK;

#endif
