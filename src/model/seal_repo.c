/* seal_repo.c: signing what lies in a repository (`inferd sign`): the same walk over roots, models and versions as a load, so that what is
 * signed is what would be loaded. Of a version's folder all files are listed; of the model's folder those beside the version folders, and
 * warmup/; names that begin with a dot in the model's folder, which is what a load overlooks, are not. */
#include "model/seal_repo.h"

#include <openssl/evp.h>

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "model/layout_model_priv.h"
#include "model/seal_sign.h"
#include "model/version_name_priv.h"
#include "os/dir.h"
#include "os/file.h"

#define PART_BYTES ((size_t)1 << 20)
#define DEPTH_MAX  4

struct listing {
    const struct registry_options *o;
    struct arena arena;
    struct sign_entry *v;
    size_t n, cap;
    uint8_t *part; /* [PART_BYTES] */
    struct error *err;
};

static int digest_fd(struct listing *l, int fd, uint64_t bytes, uint8_t out[SIGN_DIGEST_BYTES])
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    int rc = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 ? 0 : STATUS_NOMEM;
    for (uint64_t at = 0; !rc && at < bytes; at += PART_BYTES) {
        size_t n = (size_t)MIN_OF(bytes - at, (uint64_t)PART_BYTES);
        rc = os_file_read_at(fd, at, l->part, n, l->err);
        if (!rc && EVP_DigestUpdate(md, l->part, n) != 1)
            rc = STATUS_INTERNAL;
    }
    if (!rc && EVP_DigestFinal_ex(md, out, NULL) != 1)
        rc = STATUS_INTERNAL;
    EVP_MD_CTX_free(md);
    return rc == STATUS_NOMEM || rc == STATUS_INTERNAL ? error_set(l->err, rc, "a digest could not be made") : rc;
}

static int add(struct listing *l, int dir, const char *name, const char *path, bool model_file)
{
    struct os_file_info info;
    int fd = -1, rc = os_open_beneath(dir, name, OS_FILE_REGULAR, l->o->follow_symlinks, &fd, l->err);
    struct sign_entry e = {.model_file = model_file, .path = str_of(path)};
    if (!rc)
        rc = os_file_info_fd(fd, &info, l->err);
    if (!rc && !sign_path_valid(e.path))
        rc = error_set(l->err, STATUS_INVALID, "the name of a file has characters that can't be signed");
    if (!rc && l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        struct sign_entry *v = cap <= 2 * SIGN_ENTRIES_MAX ? realloc(l->v, cap * sizeof *v) : NULL;
        rc = v ? 0 : error_set(l->err, STATUS_TOO_LARGE, "more than %zu files", l->n);
        l->v = v ? v : l->v;
        l->cap = v ? cap : l->cap;
    }
    if (!rc)
        rc = digest_fd(l, fd, e.bytes = info.size_bytes, e.sha256);
    if (!rc)
        l->v[l->n++] = e;
    os_close(fd);
    return rc ? error_prefix(l->err, "%s", path) : 0;
}

/* What the folder that is walked is. */
enum walked { WALK_VERSION, WALK_MODEL, WALK_WARMUP };

static bool is_folder(struct listing *l, int dir, const struct os_dir_entry *e, int *sub)
{
    *sub = -1;
    return (e->kind == OS_FILE_DIRECTORY || e->kind == OS_FILE_SYMLINK) &&
           os_open_beneath(dir, e->name, OS_FILE_DIRECTORY, l->o->follow_symlinks, sub, NULL) == 0;
}

static bool left_out(const char *name, enum walked what, int depth)
{
    size_t n = strlen(name);
    return (depth == 1 && strcmp(name, SIGN_FILE) == 0) || (what == WALK_MODEL && name[0] == '.') ||
           (n > 5 && strcmp(name + n - 5, ".part") == 0);
}

static int walk(struct listing *l, int dir, const char *prefix, enum walked what, int depth);

static int walk_entry(struct listing *l, int dir, const struct os_dir_entry *e, const char *prefix, enum walked what,
                      int depth) /* NOLINT(misc-no-recursion): depth is bounded */
{
    int sub, rc = 0;
    const char *path = arena_printf(&l->arena, "%s%s", prefix, e->name);
    if (!path)
        return error_set(l->err, STATUS_NOMEM, "no memory for a list of files");
    if (left_out(e->name, what, depth))
        return 0;
    if (!is_folder(l, dir, e, &sub))
        return add(l, dir, e->name, path, what != WALK_VERSION);
    bool warmup = what == WALK_MODEL && strcmp(e->name, "warmup") == 0;
    const char *below = arena_printf(&l->arena, "%s/", path);
    if (!below)
        rc = error_set(l->err, STATUS_NOMEM, "no memory for a list of files");
    else if (depth < DEPTH_MAX && (what != WALK_MODEL || warmup))
        rc = walk(l, sub, below, warmup ? WALK_WARMUP : what, depth + 1);
    os_close(sub);
    return rc;
}

static int walk(struct listing *l, int dir, const char *prefix, enum walked what,
                int depth) /* NOLINT(misc-no-recursion): depth is bounded */
{
    struct os_dir_list list = {0};
    int rc = os_dir_list(dir, LAYOUT_ENTRIES_MAX, &list, l->err);
    for (size_t i = 0; i < list.n && !rc; i++)
        rc = walk_entry(l, dir, &list.entries[i], prefix, what, depth);
    os_dir_list_release(&list);
    return rc;
}

static int list_version(struct listing *l, const struct repo *r, const struct repo_model *m, const struct repo_version *v)
{
    int fd = -1, rc = repo_version_open(r, m, v, &fd, l->err);
    if (rc)
        return rc;
    if (m->root->kind == ROOT_FILE) {
        char *name = arena_strdup(&l->arena, m->root->file);
        rc = name ? add(l, fd, name, name, false) : error_set(l->err, STATUS_NOMEM, "no memory for a list of files");
    } else {
        rc = walk(l, fd, "", WALK_VERSION, 1);
    }
    os_close(fd);
    if (rc || strcmp(v->dir, m->dir) == 0)
        return rc;
    rc = layout_open(m->root, m->dir, OS_FILE_DIRECTORY, l->o->follow_symlinks, &fd, l->err);
    if (!rc) {
        rc = walk(l, fd, "", WALK_MODEL, 1);
        os_close(fd);
    }
    return rc;
}

static int sign_version(const struct repo *r, const struct repo_model *m, const struct repo_version *v, struct str private_pem,
                        struct buf *report, struct error *err)
{
    struct listing l = {.o = r->o, .part = malloc(PART_BYTES), .err = err};
    struct buf text, path;
    buf_init(&text);
    buf_init(&path);
    arena_init(&l.arena, 4096, 64 << 20);
    int rc = l.part ? list_version(&l, r, m, v) : error_set(err, STATUS_NOMEM, "no memory to sign a version");
    if (!rc)
        sign_render(m->name, v->name, l.v, l.n, &text);
    if (!rc)
        rc = sign_append(buf_str(&text), private_pem, &text, err);
    buf_printf(&path, "%s/%s/", m->root->path, v->dir);
    if (m->root->kind == ROOT_FILE)
        buf_printf(&path, "%.*s.sig", STR_ARG(m->root->file));
    else
        buf_append_z(&path, SIGN_FILE);
    if (!rc && (text.failed || path.failed))
        rc = error_set(err, STATUS_NOMEM, "no memory to sign a version");
    if (!rc)
        rc = os_file_write_atomic(buf_z(&path), text.p, text.n, 0644, err);
    if (!rc)
        buf_printf(report, "%.*s version %.*s: %zu files\n", STR_ARG(m->name), STR_ARG(v->name), l.n);
    free(l.v);
    free(l.part);
    arena_release(&l.arena);
    buf_release(&text);
    buf_release(&path);
    return rc;
}

int seal_repo_sign(const struct registry_options *o, struct str private_pem, struct buf *report, struct error *err)
{
    struct repo repo;
    struct arena a;
    struct repo_model *models = NULL;
    size_t n = 0, done = 0;
    int rc = repo_open(&repo, o, err);
    if (rc)
        return rc;
    arena_init(&a, 65536, 0);
    rc = repo_scan(&repo, &a, &models, &n, err);
    for (size_t i = 0; i < n && !rc; i++) {
        const struct repo_model *m = &models[i];
        if (m->problem)
            rc = error_set(err, STATUS_INVALID, "model \"%.*s\": %s", STR_ARG(m->name), m->problem);
        for (size_t k = 0; k < m->n_versions && !rc; k++, done++)
            if ((rc = sign_version(&repo, m, &m->versions[k], private_pem, report, err)))
                rc = error_prefix(err, "model \"%.*s\" version %.*s", STR_ARG(m->name), STR_ARG(m->versions[k].name));
    }
    if (!rc && !done)
        rc = error_set(err, STATUS_NOT_FOUND, "there is no model to sign");
    arena_release(&a);
    repo_release(&repo);
    return rc;
}
