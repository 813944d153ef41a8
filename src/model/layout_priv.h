/* layout_priv.h: for siblings in model/ only: what lies on the disk below the repository roots.
 *
 * A root is a repository (each folder in it is a model), a lone model folder, or a lone model file. A model folder is Triton's
 * (`1/model.onnx`, `2/model.onnx`) or holds the model file itself (then it is version 1), beside model.yaml or config.pbtxt or
 * nothing. Everything is opened beneath the root. A scan is a picture of names, sizes and times; it opens no model. What is wrong
 * with one model is kept with it (`problem`) and never touches the others. Loader threads; may block on the disk. */
#ifndef INFERD_MODEL_LAYOUT_PRIV_H
#define INFERD_MODEL_LAYOUT_PRIV_H

#include "base/arena.h"
#include "conf/model_config.h"
#include "engine/engine.h"
#include "model/registry.h"

enum root_kind { ROOT_REPOSITORY, ROOT_MODEL, ROOT_FILE };

struct repo_root {
    enum root_kind kind;
    const char *path; /* as given; for ROOT_FILE the folder's */
    struct str name;  /* ROOT_MODEL, ROOT_FILE: the model's name */
    struct str file;  /* ROOT_FILE: the file's name inside the folder */
};

struct repo {
    const struct registry_options *o;
    struct arena arena;
    struct repo_root *roots;
    size_t n;
};

struct repo_version {
    struct str name;
    const char *dir;                        /* relative to the root: "resnet/1", "resnet", "." */
    const char *file;                       /* the model file inside, NULL: none that an engine knows */
    size_t engine;                          /* index of the engine that knows it */
    uint64_t fingerprint, bytes, newest_ns; /* over the files inside; newest change, wall clock */
};

struct repo_model {
    struct str name;
    const struct repo_root *root;
    const char *dir;                 /* relative to the root */
    const char *config_file;         /* relative to the root; NULL: none */
    uint64_t fingerprint, newest_ns; /* of config, labels and warm-up data */
    struct repo_version *versions;   /* ascending */
    size_t n_versions;
    const char *problem; /* not NULL: not loadable, and why (no paths) */
    const char *warnings[8];
    size_t n_warnings;
};

/* Open the roots. INVALID / NOT_FOUND / FORBIDDEN: names the unusable root. */
int repo_open(struct repo *r, const struct registry_options *o, struct error *err) MUST_CHECK;
void repo_release(struct repo *r);

/* Picture of all models, sorted by name, allocated from `a`. Two roots with the same name give one entry with a problem. UNAVAILABLE
 * (no descriptors), NOMEM, or what is wrong with a root. */
int repo_scan(const struct repo *r, struct arena *a, struct repo_model **out, size_t *n, struct error *err) MUST_CHECK;

/* The same for one model. NOT_FOUND when no root has it; UNAVAILABLE, NOMEM as above. */
int repo_find(const struct repo *r, struct str name, struct arena *a, struct repo_model *out, struct error *err) MUST_CHECK;

/* Over the model's folder and all its versions; never 0. *newest_ns: the latest change in it, wall clock. */
uint64_t repo_fingerprint(const struct repo_model *m, uint64_t *newest_ns);

/* Whether any root has a folder of this (valid) name, by one system call a root: 0 or NOT_FOUND. UNAVAILABLE, NOMEM: that can't be told
 * now. */
int repo_has(const struct repo *r, struct str name, struct error *err) MUST_CHECK;

/* Parse the model's config file (or start from an empty one) into `cfg`, strings from `a`. */
int repo_config(const struct repo *r, const struct repo_model *m, struct arena *a, struct model_config *cfg,
                struct error *err) MUST_CHECK;

/* Open a version's folder; the caller closes. */
int repo_version_open(const struct repo *r, const struct repo_model *m, const struct repo_version *v, int *fd,
                      struct error *err) MUST_CHECK;

/* Read `file` (relative to the model's folder) into `out`. */
int repo_read(const struct repo *r, const struct repo_model *m, const char *file, size_t limit, struct buf *out,
              struct error *err) MUST_CHECK;

/* Which versions the config's policy wants: sets wanted[0..m->n_versions). INVALID when it names one that isn't there. */
int repo_wanted(const struct repo_model *m, const struct model_config *cfg, bool *wanted, struct error *err) MUST_CHECK;

#endif
