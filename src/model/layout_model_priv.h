/* layout_model_priv.h: for layout.c, layout_model.c and those who read or sign a version as they do (seal_vault.c, seal_repo.c). */
#ifndef INFERD_MODEL_LAYOUT_MODEL_PRIV_H
#define INFERD_MODEL_LAYOUT_MODEL_PRIV_H

#include "model/layout_priv.h"
#include "os/dir.h"

#define LAYOUT_ENTRIES_MAX 10000 /* of one folder */
#define LAYOUT_YAML        "model.yaml"
#define LAYOUT_PBTXT       "config.pbtxt"
#define LAYOUT_TWICE       "two repositories have a model of this name: rename one of them"

/* Open `rel` beneath the root. The root is opened by its path each time, not kept: a repository that is replaced as a whole by moving a
 * link (git-sync, Kubernetes volumes) is seen at the next look. */
int layout_open(const struct repo_root *root, const char *rel, enum os_file_kind want, bool follow_out, int *fd,
                struct error *err) MUST_CHECK;

/* Fill everything behind name, root and dir. What is wrong with the model goes to m->problem; an error is ours (NOMEM, UNAVAILABLE without
 * descriptors). */
int layout_scan_model(const struct repo *r, struct repo_model *m, struct arena *a, struct error *err) MUST_CHECK;

#endif
