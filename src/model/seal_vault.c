/* seal_vault.c: see seal_vault.h. */
#include "model/seal_vault.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "conf/model_config.h"
#include "model/layout_model_priv.h"
#include "os/cgroup.h"
#include "os/dir.h"
#include "os/file.h"

#define SIDE_FILE_MAX ((size_t)1 << 30)

struct seal_vault {
    struct engine_files files; /* first: the vault is found from it */
    const struct registry_options *o;
    struct seal_policy policy;
    struct seal_keys keys;
    struct arena arena;
    struct buf text; /* of the signature file */
    struct sign_manifest manifest;
    bool is_signed, own_folder; /* own_folder: the model's folder is the version's */
};

int seal_policy_check(const struct seal_policy *p, struct error *err)
{
    struct seal_keys *keys = calloc(1, sizeof *keys);
    struct sign_keys *publics = calloc(1, sizeof *publics);
    int rc = keys && publics ? 0 : error_set(err, STATUS_NOMEM, "no memory for keys");
    if (!rc && (rc = seal_keys_load(keys, p->seal_keys, p->n_seal_keys, err)))
        rc = error_prefix(err, "models.seal_keys");
    if (!rc && (rc = sign_keys_load(publics, p->signature_keys, p->n_signature_keys, err)))
        rc = error_prefix(err, "models.signature_keys");
    if (!rc && p->require_signature && !publics->n)
        rc = error_set(err, STATUS_INVALID, "models.require_signature needs models.signature_keys: nothing could be verified");
    if (!rc && p->require_sealed && !keys->n)
        rc = error_set(err, STATUS_INVALID,
                       "models.require_sealed needs models.seal_keys or $" SEAL_KEY_ENV ": nothing could be unsealed");
    if (keys)
        seal_keys_wipe(keys);
    free(keys);
    free(publics);
    return rc;
}

/* ---- reading for an engine ---- */

/* Loading takes about 1.3 times what is read; said with numbers before the memory is taken. */
static int admit(const struct seal_vault *v, const char *rel, uint64_t bytes, struct error *err)
{
    struct os_memory_limits mem;
    os_memory_limits_read(&mem);
    uint64_t room = mem.available_bytes, need = bytes + bytes / 10 * 3;
    if (v->o->memory_limit_bytes)
        room = MIN_OF(room, v->o->memory_limit_bytes);
    if (need >= bytes && need <= room)
        return 0;
    return error_set(
        err, STATUS_EXHAUSTED,
        "%s has to be held in memory while it is loaded, which takes about %llu MiB, and %llu MiB are available: unload "
        "another model, or give the server more memory",
        rel, (unsigned long long)(need >> 20), (unsigned long long)(room >> 20));
}

static int changed(const char *rel, struct error *err)
{
    return error_set(err, STATUS_INVALID, "%s is not the file that was signed: it was changed, or is damaged", rel);
}

static int read_source(void *ctx, uint64_t offset, void *p, size_t n, struct error *err)
{
    return os_file_read_at(*(const int *)ctx, offset, p, n, err);
}

static int read_sealed(const struct seal_vault *v, const char *rel, int fd, uint64_t bytes, const struct sign_entry *entry,
                       uint64_t limit, struct os_blob *out, struct error *err)
{
    uint8_t digest[SIGN_DIGEST_BYTES];
    struct seal_source s = {.read = read_source, .ctx = &fd, .bytes = bytes, .name = rel};
    int rc = admit(v, rel, bytes, err);
    if (!rc)
        rc = seal_open(&s, &v->keys, limit, entry ? digest : NULL, out, err);
    if (!rc && entry && (bytes != entry->bytes || memcmp(digest, entry->sha256, sizeof digest) != 0)) {
        os_blob_release(out);
        rc = changed(rel, err);
    }
    if (!rc)
        LOG(v->o->log, LOG_INFO, "model_file_unsealed", LOG_S("file", rel), LOG_U("bytes", out->n));
    return rc;
}

static int read_signed(const struct seal_vault *v, int dir_fd, const char *rel, bool follow_out, const struct sign_entry *entry,
                       uint64_t limit, struct os_blob *out, struct error *err)
{
    uint8_t digest[SIGN_DIGEST_BYTES];
    int rc = admit(v, rel, entry->bytes, err);
    if (!rc)
        rc = os_blob_read(dir_fd, rel, follow_out, limit, out, err);
    if (!rc &&
        (out->n != entry->bytes || !sign_digest(out->p, out->n, digest) || memcmp(digest, entry->sha256, sizeof digest) != 0)) {
        os_blob_release(out);
        rc = changed(rel, err);
    }
    return rc;
}

static int look(int fd, uint64_t *bytes, bool *sealed, struct error *err)
{
    uint8_t magic[SEAL_MAGIC_BYTES] = {0};
    struct os_file_info info;
    int rc = os_file_info_fd(fd, &info, err);
    if (!rc && info.size_bytes >= sizeof magic)
        rc = os_file_read_at(fd, 0, magic, sizeof magic, err);
    *bytes = rc ? 0 : info.size_bytes;
    *sealed = !rc && seal_is_sealed(magic, sizeof magic);
    return rc;
}

static int vault_read(const struct engine_files *f, int dir_fd, const char *rel, bool follow_out, uint64_t limit,
                      struct os_blob *out, enum engine_file *kind, struct error *err)
{
    const struct seal_vault *v = (const struct seal_vault *)f;
    const struct sign_entry *entry = v->is_signed ? sign_find(&v->manifest, false, str_of(rel)) : NULL;
    uint64_t bytes = 0;
    bool sealed = false;
    int fd = -1, rc = os_open_beneath(dir_fd, rel, OS_FILE_REGULAR, follow_out, &fd, err);
    *out = (struct os_blob){0};
    *kind = ENGINE_FILE_PLAIN;
    if (rc == STATUS_NOT_FOUND && entry) /* also one that may be left out: without it the model is another */
        rc = error_set(err, STATUS_INVALID, "%s is not there, and it was signed", rel);
    if (!rc)
        rc = look(fd, &bytes, &sealed, err);
    if (!rc && v->is_signed && !entry)
        rc = error_set(err, STATUS_FORBIDDEN, "%s is not covered by the version's signature: sign it again", rel);
    if (!rc && sealed) {
        *kind = ENGINE_FILE_SECRET;
        rc = read_sealed(v, rel, fd, bytes, entry, limit, out, err);
    } else if (!rc && v->policy.require_sealed) {
        rc = error_set(err, STATUS_FORBIDDEN, "%s is not sealed, and models.require_sealed is set: `inferd seal` it", rel);
    } else if (!rc && entry) {
        *kind = ENGINE_FILE_CHECKED;
        rc = read_signed(v, dir_fd, rel, follow_out, entry, limit, out, err);
    }
    os_close(fd);
    return rc;
}

/* ---- opening ---- */

/* The model's own file `rel` (relative to its folder) is what was signed. */
static int check_side(const struct seal_vault *v, const struct repo *r, const struct repo_model *m, const char *rel,
                      struct error *err)
{
    uint8_t digest[SIGN_DIGEST_BYTES];
    struct buf text;
    const struct sign_entry *e = sign_find(&v->manifest, !v->own_folder, str_of(rel));
    if (!e)
        return error_set(err, STATUS_FORBIDDEN, "%s is not covered by the version's signature: sign it again", rel);
    buf_init(&text);
    int rc = repo_read(r, m, rel, SIDE_FILE_MAX, &text, err);
    if (!rc && (text.n != e->bytes || !sign_digest(text.p, text.n, digest) || memcmp(digest, e->sha256, sizeof digest) != 0))
        rc = changed(rel, err);
    buf_release(&text);
    return rc;
}

static int check_named(struct seal_vault *v, const struct repo *r, const struct repo_model *m, const char *folder,
                       struct str name, struct error *err)
{
    if (!name.n)
        return 0;
    const char *rel = arena_printf(&v->arena, "%s%.*s", folder, STR_ARG(name));
    return rel ? check_side(v, r, m, rel, err) : error_set(err, STATUS_NOMEM, "no memory to check a signature");
}

/* The configuration that is used is the one that would have been used when the version was signed: none was added, and none taken away. */
static int check_config(const struct seal_vault *v, const struct repo *r, const struct repo_model *m, struct error *err)
{
    const char *used = m->config_file ? strrchr(m->config_file, '/') : NULL, *expected = NULL;
    used = used ? used + 1 : m->config_file;
    if (sign_find(&v->manifest, !v->own_folder, STR(LAYOUT_YAML)))
        expected = LAYOUT_YAML;
    else if (sign_find(&v->manifest, !v->own_folder, STR(LAYOUT_PBTXT)))
        expected = LAYOUT_PBTXT;
    if (expected && (!used || strcmp(used, expected) != 0))
        return error_set(err, STATUS_INVALID, "%s is not there, and it was signed", expected);
    return used ? check_side(v, r, m, used, err) : 0;
}

static int check_sides(struct seal_vault *v, const struct repo *r, const struct repo_model *m, const struct model_config *cfg,
                       struct error *err)
{
    int rc = check_config(v, r, m, err);
    for (size_t i = 0; i < cfg->n_outputs && !rc; i++)
        rc = check_named(v, r, m, "", cfg->outputs[i].label_filename, err);
    for (size_t i = 0; i < cfg->n_warmup && !rc; i++)
        for (size_t k = 0; k < cfg->warmup[i].n_inputs && !rc; k++)
            rc = check_named(v, r, m, "warmup/", cfg->warmup[i].inputs[k].file, err);
    return rc;
}

static int read_signature(struct seal_vault *v, const struct repo_model *m, const struct repo_version *rv, int dir_fd,
                          struct error *err)
{
    const char *name = SIGN_FILE;
    int fd = -1;
    if (m->root->kind == ROOT_FILE)
        name = arena_printf(&v->arena, "%.*s.sig", STR_ARG(m->root->file));
    if (!name)
        return error_set(err, STATUS_NOMEM, "no memory to check a signature");
    int rc = os_open_beneath(dir_fd, name, OS_FILE_REGULAR, v->o->follow_symlinks, &fd, err);
    if (rc == STATUS_NOT_FOUND && !v->policy.require_signature) {
        if (err)
            *err = (struct error){0};
        return 0;
    }
    if (rc == STATUS_NOT_FOUND)
        return error_set(err, STATUS_FORBIDDEN,
                         "version %.*s has no signature (%s), and models.require_signature is set: `inferd sign` it",
                         STR_ARG(rv->name), name);
    if (!rc)
        rc = os_file_read_fd(fd, name, SIGN_BYTES_MAX, &v->text, err);
    if (!rc)
        rc = sign_parse(buf_str(&v->text), &v->arena, &v->manifest, err);
    v->is_signed = rc == 0;
    os_close(fd);
    return rc ? error_prefix(err, "%s", name) : 0;
}

static int verify(struct seal_vault *v, const struct repo_model *m, const struct repo_version *rv, struct error *err)
{
    uint8_t id[SEAL_ID_BYTES];
    char shown[SEAL_ID_TEXT];
    struct sign_keys *keys = calloc(1, sizeof *keys);
    int rc = keys ? sign_keys_load(keys, v->policy.signature_keys, v->policy.n_signature_keys, err)
                  : error_set(err, STATUS_NOMEM, "no memory for keys");
    if (!rc)
        rc = sign_verify(&v->manifest, keys, id, err);
    free(keys);
    if (!rc && (!str_eq(v->manifest.model, m->name) || !str_eq(v->manifest.version, rv->name)))
        rc = error_set(err, STATUS_INVALID,
                       "it is the signature of model \"%.*s\" version %.*s, and this is \"%.*s\" version %.*s",
                       STR_ARG(v->manifest.model), STR_ARG(v->manifest.version), STR_ARG(m->name), STR_ARG(rv->name));
    if (rc)
        return error_prefix(err, SIGN_FILE);
    seal_id_text(id, shown);
    LOG(v->o->log, LOG_INFO, "model_signature_good", LOG_STR("model", m->name), LOG_STR("version", rv->name),
        LOG_S("key", shown), LOG_U("files", v->manifest.n));
    return 0;
}

int seal_vault_open(const struct repo *r, const struct repo_model *m, const struct repo_version *rv,
                    const struct model_config *cfg, int dir_fd, struct seal_vault **out, struct error *err)
{
    struct seal_vault *v = calloc(1, sizeof *v);
    *out = NULL;
    if (!v)
        return error_set(err, STATUS_NOMEM, "no memory to open a model's files");
    v->files.read = vault_read;
    v->o = r->o;
    v->policy = r->o->seal;
    v->own_folder = strcmp(rv->dir, m->dir) == 0;
    arena_init(&v->arena, 4096, 64 << 20);
    buf_init(&v->text);
    int rc = seal_keys_load(&v->keys, v->policy.seal_keys, v->policy.n_seal_keys, err);
    if (!rc && v->policy.n_signature_keys)
        rc = read_signature(v, m, rv, dir_fd, err);
    if (!rc && v->is_signed)
        rc = verify(v, m, rv, err);
    if (!rc && v->is_signed)
        rc = check_sides(v, r, m, cfg, err);
    if (rc) {
        seal_vault_close(v);
        return rc;
    }
    *out = v;
    return 0;
}

void seal_vault_close(struct seal_vault *v)
{
    if (!v)
        return;
    seal_keys_wipe(&v->keys);
    buf_release(&v->text);
    arena_release(&v->arena);
    free(v);
}

const struct engine_files *seal_vault_files(const struct seal_vault *v)
{
    return &v->files;
}

bool seal_vault_signed(const struct seal_vault *v)
{
    return v->is_signed;
}
