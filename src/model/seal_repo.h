/* seal_repo.h: signing the models of repositories, for `inferd sign`. */
#ifndef INFERD_MODEL_SEAL_REPO_H
#define INFERD_MODEL_SEAL_REPO_H

#include "base/buf.h"
#include "base/error.h"
#include "model/registry.h"

/* Write a signature file beside each version of each model in `o`'s roots (engines and follow_symlinks are what else counts of it), with the
 * private key of a PEM text; a line a version goes to `report`. Stops at the first that can't be signed; those before it are. One thread;
 * blocks on the disk. */
int seal_repo_sign(const struct registry_options *o, struct str private_pem, struct buf *report, struct error *err) MUST_CHECK;

#endif
