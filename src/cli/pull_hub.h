/* pull_hub.h: what a model hub says about a repository of files, and which of them a model needs. Pure. For `inferd pull`. */
#ifndef INFERD_CLI_PULL_HUB_H
#define INFERD_CLI_PULL_HUB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct hub_file {
    const char *path;   /* in the repository, relative */
    uint64_t size;      /* UINT64_MAX: not said */
    const char *sha256; /* 64 hexadecimal digits, or NULL: not said */
};

struct hub_listing {
    const char *revision; /* the commit that the files are of */
    struct hub_file *files;
    size_t n;
};

/* Read the answer of /api/models/REPO/revision/REV?blobs=true. A path that could leave a folder is refused. Strings live in `a`.
 * INVALID names what is wrong. */
int hub_listing_parse(struct str json, struct arena *a, struct hub_listing *out, struct error *err) MUST_CHECK;

/* Which files to take: `wanted` (a path, or the name of a quantisation such as "Q4_K_M"); without it the one GGUF file, that in Q4_K_M
 * among several, or the files of a Hugging Face folder. *gguf: it is one GGUF file. NOT_FOUND and INVALID list what there is. */
int hub_choose(const struct hub_listing *l, const char *wanted, struct arena *a, const struct hub_file ***out, size_t *n,
               bool *gguf, struct error *err) MUST_CHECK;

/* A model's name for a repository: its last part, with what names can't have replaced by '-'. NULL without memory. */
const char *hub_model_name(const char *repository, struct arena *a);

#endif
