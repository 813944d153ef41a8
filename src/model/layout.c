/* layout.c: the roots, and which models lie in them. Versions of one model: layout_model.c. */
#include "model/layout_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "model/layout_model_priv.h"
#include "model/version_name_priv.h"
#include "os/dir.h"

static struct str base_name(struct str path)
{
    while (path.n > 1 && path.p[path.n - 1] == '/')
        path.n--;
    for (size_t i = path.n; i > 0; i--)
        if (path.p[i - 1] == '/')
            return (struct str){path.p + i, path.n - i};
    return path;
}

static struct str stem(struct str file)
{
    for (size_t i = file.n; i > 1; i--)
        if (file.p[i - 1] == '.')
            return (struct str){file.p, i - 1};
    return file;
}

/* "dir/sub/model.onnx" -> "dir/sub"; "model.onnx" -> ".". */
static const char *parent_of(struct arena *a, struct str path)
{
    struct str base = base_name(path);
    size_t n = (size_t)(base.p - path.p);
    while (n > 1 && path.p[n - 1] == '/')
        n--;
    return n ? arena_strdup(a, (struct str){path.p, n}) : ".";
}

/* What a model in this folder is called: the last component of its real path, so that "." and "x/.." have a name, too; of a version's
 * folder ("smollm2/1") the one before it. */
static struct str folder_name(struct arena *a, struct str path)
{
    struct str name = base_name(path);
    if (!str_eqz(name, ".") && !str_eqz(name, "..") && !str_eqz(name, "/") && !version_name_valid(name))
        return name;
    char *z = arena_strdup(a, path), *full = z ? realpath(z, NULL) : NULL, *copy = full ? arena_strdup(a, str_of(full)) : NULL;
    free(full);
    if (!copy)
        return name;
    name = base_name(str_of(copy));
    const char *above = version_name_valid(name) ? parent_of(a, str_of(copy)) : NULL;
    struct str outer = above ? base_name(str_of(above)) : (struct str){0};
    return str_is_model_name(outer) ? outer : name;
}

static bool known_file(const struct registry_options *o, struct str name)
{
    for (size_t e = 0; o->engines && o->engines[e]; e++)
        for (size_t f = 0; o->engines[e]->files && o->engines[e]->files[f]; f++)
            if (str_eqz(name, o->engines[e]->files[f]))
                return true;
    return false;
}

static bool holds(int fd, const char *rel, const struct registry_options *o)
{
    struct os_dir_list l = {0};
    int sub = -1;
    bool found = false;
    if (!os_open_beneath(fd, rel, OS_FILE_DIRECTORY, o->follow_symlinks, &sub, NULL) &&
        !os_dir_list(sub, LAYOUT_ENTRIES_MAX, &l, NULL))
        for (size_t i = 0; i < l.n && !found; i++)
            found = known_file(o, str_of(l.entries[i].name));
    os_dir_list_release(&l);
    os_close(sub);
    return found;
}

/* A folder is one model when it has a config, a model file, or a version folder with a model file. */
static bool is_model_folder(int fd, const struct registry_options *o)
{
    struct os_dir_list l = {0};
    bool is = false;
    if (!os_dir_list(fd, LAYOUT_ENTRIES_MAX, &l, NULL))
        for (size_t i = 0; i < l.n && !is; i++) {
            struct str name = str_of(l.entries[i].name);
            is = known_file(o, name) || str_eqz(name, LAYOUT_YAML) || str_eqz(name, LAYOUT_PBTXT) ||
                 (version_name_valid(name) && l.entries[i].kind != OS_FILE_REGULAR && holds(fd, l.entries[i].name, o));
        }
    os_dir_list_release(&l);
    return is;
}

static int open_file_root(struct repo *r, struct repo_root *root, struct str path, struct error *err)
{
    root->kind = ROOT_FILE;
    root->file = base_name(path);
    root->path = parent_of(&r->arena, path);
    if (!root->path)
        return error_set(err, STATUS_NOMEM, "no memory for the model repository");
    root->name = known_file(r->o, root->file) ? folder_name(&r->arena, str_of(root->path)) : stem(root->file);
    return 0;
}

static int open_root(struct repo *r, struct repo_root *root, const char *path, struct error *err)
{
    struct os_file_info info;
    root->path = path;
    int rc = os_file_info(path, &info, err);
    if (rc)
        return error_prefix(err, "model repository");
    if (info.kind == OS_FILE_REGULAR)
        rc = open_file_root(r, root, str_of(path), err);
    int fd = -1;
    if (!rc)
        rc = os_dir_open(root->path, &fd, err);
    if (rc)
        return error_prefix(err, "model repository");
    if (root->kind != ROOT_FILE && is_model_folder(fd, r->o)) {
        root->kind = ROOT_MODEL;
        root->name = folder_name(&r->arena, str_of(path));
    }
    os_close(fd);
    if (root->kind != ROOT_REPOSITORY && !str_is_model_name(root->name))
        return error_set(err, STATUS_INVALID,
                         "\"%.*s\" cannot be a model's name: use letters, digits, '.', '_' and '-', at most 128",
                         STR_ARG(root->name));
    return 0;
}

int repo_open(struct repo *r, const struct registry_options *o, struct error *err)
{
    *r = (struct repo){.o = o};
    arena_init(&r->arena, 4096, 0);
    r->roots = arena_array(&r->arena, o->n_roots + 1, sizeof *r->roots);
    if (!r->roots)
        return error_set(err, STATUS_NOMEM, "no memory for the model repository");
    int rc = 0;
    for (size_t i = 0; i < o->n_roots && !rc; i++) {
        r->n = i + 1;
        rc = open_root(r, &r->roots[i], o->roots[i], err);
    }
    if (rc)
        repo_release(r);
    return rc;
}

void repo_release(struct repo *r)
{
    r->n = 0;
    arena_release(&r->arena);
}

int layout_open(const struct repo_root *root, const char *rel, enum os_file_kind want, bool follow_out, int *fd,
                struct error *err)
{
    int dir = -1, rc = os_dir_open(root->path, &dir, err);
    if (!rc)
        rc = os_open_beneath(dir, rel, want, follow_out, fd, err);
    os_close(dir);
    return rc;
}

struct found {
    struct repo_model *models;
    size_t n, cap;
};

static struct repo_model *add_model(struct arena *a, struct found *f)
{
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 16;
        struct repo_model *m = arena_array(a, cap, sizeof *m);
        if (!m)
            return NULL;
        if (f->n)
            memcpy(m, f->models, f->n * sizeof *m);
        f->models = m;
        f->cap = cap;
    }
    struct repo_model *m = &f->models[f->n++];
    memset(m, 0, sizeof *m);
    return m;
}

static int scan_repository(const struct repo *r, const struct repo_root *root, struct arena *a, struct found *f,
                           struct error *err)
{
    struct os_dir_list l = {0};
    int fd = -1, rc = os_dir_open(root->path, &fd, err);
    if (!rc)
        rc = os_dir_list(fd, LAYOUT_ENTRIES_MAX, &l, err);
    os_close(fd);
    for (size_t i = 0; i < l.n && !rc; i++) {
        const struct os_dir_entry *e = &l.entries[i];
        if (e->name[0] == '.' || e->kind == OS_FILE_REGULAR || e->kind == OS_FILE_OTHER)
            continue;
        struct str name = str_of(e->name);
        if (!str_is_model_name(name)) {
            LOG(r->o->log, LOG_WARN, "folder_ignored", LOG_STR("folder", name), LOG_S("reason", "not a model name"));
            continue;
        }
        struct repo_model *m = add_model(a, f);
        const char *dir = m ? arena_strdup(a, name) : NULL;
        rc = dir ? 0 : error_set(err, STATUS_NOMEM, "no memory for the list of models");
        if (rc)
            break;
        *m = (struct repo_model){.name = str_of(dir), .root = root, .dir = dir};
        rc = layout_scan_model(r, m, a, err);
    }
    os_dir_list_release(&l);
    return rc;
}

static int by_name(const void *x, const void *y)
{
    const struct repo_model *a = x, *b = y;
    int c = memcmp(a->name.p, b->name.p, MIN_OF(a->name.n, b->name.n));
    return c ? c : (a->name.n > b->name.n) - (a->name.n < b->name.n);
}

/* The same name from two roots: one entry, which is not loadable. */
static void merge_same(struct found *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (n && str_eq(f->models[n - 1].name, f->models[i].name)) {
            f->models[n - 1].problem = LAYOUT_TWICE;
            continue;
        }
        f->models[n++] = f->models[i];
    }
    f->n = n;
}

int repo_scan(const struct repo *r, struct arena *a, struct repo_model **out, size_t *n, struct error *err)
{
    struct found f = {0};
    int rc = 0;
    for (size_t i = 0; i < r->n && !rc; i++) {
        const struct repo_root *root = &r->roots[i];
        if (root->kind == ROOT_REPOSITORY) {
            rc = scan_repository(r, root, a, &f, err);
            continue;
        }
        struct repo_model *m = add_model(a, &f);
        if (!m)
            return error_set(err, STATUS_NOMEM, "no memory for the list of models");
        *m = (struct repo_model){.name = root->name, .root = root, .dir = "."};
        rc = layout_scan_model(r, m, a, err);
    }
    if (rc)
        return rc;
    if (f.n)
        qsort(f.models, f.n, sizeof *f.models, by_name);
    merge_same(&f);
    *out = f.models;
    *n = f.n;
    return 0;
}
