/* seal_vault.h: what stands between a load and the files of a version: unseals what is sealed, and, where the version is signed, lets
 * through only what was signed. One is made for each load (or estimate, or check) and gone after it; keys are read for it and zeroed at its
 * end, so a new key file needs no restart.
 *
 * A version is signed when there are signature keys and it has a signature file, or a signature is required. Then each file that the
 * engine asks for must be listed and have its digest: it is read into memory, digested there, and used from there, so it can't be changed
 * in between. The model's own files (config, labels, warm-up data) are checked when the vault opens; a change between that and their use
 * makes the load void, as any change of files during a load does (loader.c).
 *
 * Loader threads; one thread a vault; blocks on the disk. */
#ifndef INFERD_MODEL_SEAL_VAULT_H
#define INFERD_MODEL_SEAL_VAULT_H

#include "engine/engine.h"
#include "model/seal.h"
#include "model/seal_sign.h"

/* What the configuration says; all borrowed, and it lives as long as the registry. */
struct seal_policy {
    const char *const *seal_keys; /* files */
    size_t n_seal_keys;
    const char *const *signature_keys; /* PEM files of public keys */
    size_t n_signature_keys;
    bool require_sealed, require_signature;
};

/* Are its key files there and right? At the start of a server, so that a mistake isn't found by the first load. */
int seal_policy_check(const struct seal_policy *p, struct error *err) MUST_CHECK;

struct repo;
struct repo_model;
struct repo_version;
struct model_config;
struct seal_vault;

/* `dir_fd`: the version's open folder, which stays the caller's. FORBIDDEN: not signed, or by nobody known; INVALID: the signature is
 * wrong, or a file of the model's is not what was signed. Names the file. */
int seal_vault_open(const struct repo *r, const struct repo_model *m, const struct repo_version *v,
                    const struct model_config *cfg, int dir_fd, struct seal_vault **out, struct error *err) MUST_CHECK;
void seal_vault_close(struct seal_vault *v); /* NULL accepted */
/* For engine_load.files; lives as long as the vault. */
const struct engine_files *seal_vault_files(const struct seal_vault *v);
bool seal_vault_signed(const struct seal_vault *v);

#endif
