/* layout_model.c: one model folder: its config, its versions, and a fingerprint of each.
 *
 * A fingerprint is a hash over the name, size, modification time, change time and inode of every file: enough to see any copy, touch
 * or replacement without reading contents. `newest_ns` is the latest change among them, so that a copy in progress can be told
 * from one that settled, also at the first scan. What lies below a folder is looked at only where a model can be loaded from it, and
 * only so much of it: a path that is no repository ("/") is told as such at once. */
#include "model/layout_model_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/size.h"
#include "base/status.h"
#include "model/version_name_priv.h"
#include "os/dir.h"

#define LAYOUT_DEPTH_MAX    4     /* external data may lie in folders of the version */
#define LAYOUT_FILES_MAX    20000 /* of one version that are looked at */
#define LAYOUT_CONFIG_BYTES (1u << 20)

struct picture {
    uint64_t hash, bytes, newest_ns;
    size_t files;
    int shortage; /* negative: the server ran out of something while looking; the picture says nothing */
};

static bool is_shortage(int rc)
{
    return rc == STATUS_EXHAUSTED || rc == STATUS_NOMEM;
}

/* Running out of descriptors says nothing about the model: it must neither look absent nor changed. */
static int shortage_error(int rc, struct error *err)
{
    return rc == STATUS_NOMEM
               ? error_set(err, rc, "no memory to look at the model repository")
               : error_set(err, STATUS_UNAVAILABLE,
                           "the server has no free file descriptors to look at the model repository: try again when "
                           "there are fewer connections, or raise its limit (ulimit -n, LimitNOFILE)");
}

static void add_file(struct picture *p, const char *name, const struct os_file_info *info)
{
    struct {
        uint64_t size, mtime, ctime, inode, device;
    } key = {info->size_bytes, info->mtime_ns, info->ctime_ns, info->inode, info->device};
    p->hash = hash_bytes(name, strlen(name), p->hash);
    p->hash = hash_bytes(&key, sizeof key, p->hash);
    p->bytes += info->size_bytes;
    p->newest_ns = MAX_OF(p->newest_ns, MAX_OF(info->mtime_ns, info->ctime_ns));
}

static void add_unreadable(struct picture *p, const char *name, int rc)
{
    p->hash = hash_bytes(name, strlen(name), p->hash ^ (uint64_t)rc);
    p->shortage = is_shortage(rc) ? rc : p->shortage;
}

static void add_regular(const struct repo *r, int fd, const char *name, struct picture *p)
{
    struct os_file_info info;
    int file = -1, rc = os_open_beneath(fd, name, OS_FILE_REGULAR, r->o->follow_symlinks, &file, NULL);
    if (!rc)
        rc = os_file_info_fd(file, &info, NULL);
    if (rc)
        add_unreadable(p, name, rc);
    else
        add_file(p, name, &info);
    os_close(file);
}

/* Everything below the open folder `fd`. */
static void add_folder(const struct repo *r, int fd, int depth,
                       struct picture *p) /* NOLINT(misc-no-recursion): depth is bounded */
{
    struct os_dir_list l = {0};
    int rc = os_dir_list(fd, LAYOUT_ENTRIES_MAX, &l, NULL);
    if (rc)
        add_unreadable(p, ".", rc);
    for (size_t i = 0; i < l.n && !rc && p->files < LAYOUT_FILES_MAX; i++) {
        const struct os_dir_entry *e = &l.entries[i];
        int sub = -1;
        bool folder = e->kind == OS_FILE_DIRECTORY;
        p->files++;
        if (e->kind == OS_FILE_SYMLINK || folder)
            folder = !os_open_beneath(fd, e->name, OS_FILE_DIRECTORY, r->o->follow_symlinks, &sub, NULL);
        if (folder && depth < LAYOUT_DEPTH_MAX)
            add_folder(r, sub, depth + 1, p);
        else if (!folder)
            add_regular(r, fd, e->name, p);
        os_close(sub);
    }
    os_dir_list_release(&l);
}

static const char *join(struct arena *a, const char *dir, const char *name)
{
    return strcmp(dir, ".") == 0 ? arena_strdup(a, str_of(name)) : arena_printf(a, "%s/%s", dir, name);
}

static void warn(struct repo_model *m, const char *text)
{
    if (text && m->n_warnings < COUNT_OF(m->warnings))
        m->warnings[m->n_warnings++] = text;
}

/* The model file in a listing: the first name of the first engine that knows one; for a lone file, that file by its extension. */
static void pick_file(const struct repo *r, const struct repo_model *m, const struct os_dir_list *l, struct repo_version *v,
                      struct arena *a)
{
    const struct engine_ops *const *engines = r->o->engines;
    for (size_t e = 0; engines && engines[e] && !v->file; e++)
        for (size_t f = 0; engines[e]->files && engines[e]->files[f] && !v->file; f++) {
            const char *known = engines[e]->files[f], *dot = strrchr(known, '.');
            if (m->root->kind == ROOT_FILE) {
                if (dot && str_ends(m->root->file, str_of(dot)))
                    v->file = arena_strdup(a, m->root->file);
            } else {
                for (size_t i = 0; i < l->n; i++)
                    if (strcmp(l->entries[i].name, known) == 0)
                        v->file = known;
            }
            v->engine = e;
        }
}

/* A folder that nothing can be loaded from as it is: it changes when an entry comes or goes. */
static void add_names(const struct os_dir_list *l, struct picture *p)
{
    p->hash = hash_bytes(&l->n, sizeof l->n, p->hash);
    for (size_t i = 0; i < l->n; i++)
        p->hash = hash_bytes(l->entries[i].name, strlen(l->entries[i].name), p->hash);
}

static bool has_config(const struct os_dir_list *l)
{
    bool has = false;
    for (size_t i = 0; i < l->n && !has; i++)
        has = strcmp(l->entries[i].name, LAYOUT_YAML) == 0 || strcmp(l->entries[i].name, LAYOUT_PBTXT) == 0;
    return has;
}

/* `configured`: the model has a config, which may name its file. */
static int add_version(const struct repo *r, struct repo_model *m, struct arena *a, int model_fd, const char *name,
                       bool own_folder, bool configured, struct error *err)
{
    struct repo_version *v = &m->versions[m->n_versions];
    *v = (struct repo_version){.name = str_of(own_folder ? arena_strdup(a, str_of(name)) : "1"),
                               .dir = own_folder ? join(a, m->dir, name) : m->dir};
    if (!v->name.p || !v->dir)
        return error_set(err, STATUS_NOMEM, "no memory for the list of versions");
    int fd = -1;
    struct os_dir_list l = {0};
    struct picture p = {0};
    int rc = os_open_beneath(model_fd, own_folder ? name : ".", OS_FILE_DIRECTORY, r->o->follow_symlinks, &fd, NULL);
    if (!rc)
        rc = os_dir_list(fd, LAYOUT_ENTRIES_MAX, &l, NULL);
    if (!rc) {
        pick_file(r, m, &l, v, a);
        if (m->root->kind == ROOT_FILE)
            add_regular(r, fd, v->file ? v->file : "", &p);
        else if (v->file || configured)
            add_folder(r, fd, 1, &p);
        else
            add_names(&l, &p);
        if (p.files >= LAYOUT_FILES_MAX)
            warn(m, arena_printf(a, "version %.*s holds more than %d files: changes in the others are not noticed",
                                 STR_ARG(v->name), LAYOUT_FILES_MAX));
    } else if (is_shortage(rc)) {
        p.shortage = rc;
    }
    os_dir_list_release(&l);
    os_close(fd);
    if (p.shortage)
        return shortage_error(p.shortage, err);
    v->fingerprint = p.hash;
    v->bytes = p.bytes;
    v->newest_ns = p.newest_ns;
    m->n_versions++;
    return 0;
}

/* Names in a model folder that are neither versions nor worth a word. */
static bool usual_name(const char *name)
{
    return name[0] == '.' || strcmp(name, "warmup") == 0 || strcmp(name, "configs") == 0 || strcmp(name, "labels") == 0 ||
           strcmp(name, "adapters") == 0;
}

static int scan_entries(const struct repo *r, struct repo_model *m, struct arena *a, int fd, const struct os_dir_list *l,
                        struct error *err)
{
    struct picture p = {0};
    int rc = 0;
    const char *yaml = NULL, *pbtxt = NULL;
    bool configured = has_config(l);
    for (size_t i = 0; i < l->n && !rc; i++) {
        const char *name = l->entries[i].name;
        int sub = -1;
        bool folder = l->entries[i].kind == OS_FILE_DIRECTORY;
        if (l->entries[i].kind == OS_FILE_SYMLINK || folder)
            folder = !os_open_beneath(fd, name, OS_FILE_DIRECTORY, r->o->follow_symlinks, &sub, NULL);
        if (!folder) {
            yaml = strcmp(name, LAYOUT_YAML) == 0 ? name : yaml;
            pbtxt = strcmp(name, LAYOUT_PBTXT) == 0 ? name : pbtxt;
            if (name[0] != '.')
                add_regular(r, fd, name, &p);
        } else if (version_name_valid(str_of(name))) {
            rc = add_version(r, m, a, fd, name, true, configured, err);
        } else if (strcmp(name, "warmup") == 0) {
            add_folder(r, sub, 1, &p);
        } else if (!usual_name(name)) {
            warn(m,
                 arena_printf(a, "folder \"%s\" is ignored: a version is an integer without leading zeros or MAJOR.MINOR.PATCH",
                              name));
        }
        os_close(sub);
    }
    if (!rc && p.shortage)
        rc = shortage_error(p.shortage, err);
    m->fingerprint = p.hash;
    m->newest_ns = p.newest_ns;
    if (yaml && pbtxt)
        warn(m, "both model.yaml and config.pbtxt are there: model.yaml is used");
    if (yaml || pbtxt)
        m->config_file = join(a, m->dir, yaml ? yaml : pbtxt);
    return rc;
}

static int version_order(const void *x, const void *y)
{
    return version_name_compare(((const struct repo_version *)x)->name, ((const struct repo_version *)y)->name);
}

static int scan_folder(const struct repo *r, struct repo_model *m, struct arena *a, int fd, struct error *err)
{
    struct os_dir_list l = {0};
    int rc = os_dir_list(fd, LAYOUT_ENTRIES_MAX, &l, NULL);
    if (is_shortage(rc)) {
        rc = shortage_error(rc, err);
    } else if (rc) {
        m->problem = "the model's folder cannot be listed";
        rc = 0;
    } else {
        m->versions = arena_array(a, l.n + 1, sizeof *m->versions);
        rc = m->versions ? 0 : error_set(err, STATUS_NOMEM, "no memory for the list of versions");
    }
    if (!rc && !m->problem && m->root->kind != ROOT_FILE)
        rc = scan_entries(r, m, a, fd, &l, err);
    if (!rc && !m->problem && m->n_versions == 0)
        rc = add_version(r, m, a, fd, ".", false, has_config(&l), err);
    if (!rc && m->n_versions > 1)
        qsort(m->versions, m->n_versions, sizeof *m->versions, version_order);
    os_dir_list_release(&l);
    return rc;
}

int layout_scan_model(const struct repo *r, struct repo_model *m, struct arena *a, struct error *err)
{
    int fd = -1, rc = layout_open(m->root, m->dir, OS_FILE_DIRECTORY, r->o->follow_symlinks, &fd, NULL);
    if (is_shortage(rc))
        return shortage_error(rc, err);
    if (rc) {
        m->problem = "the model's folder cannot be opened, or is a link that leaves the repository";
        return 0;
    }
    rc = scan_folder(r, m, a, fd, err);
    os_close(fd);
    return rc;
}

static int read_beneath(const struct repo *r, const struct repo_model *m, const char *rel, const char *shown, size_t limit,
                        struct buf *out, struct error *err)
{
    int fd = -1, rc = layout_open(m->root, rel, OS_FILE_REGULAR, r->o->follow_symlinks, &fd, err);
    if (!rc)
        rc = os_file_read_fd(fd, shown, limit, out, err);
    os_close(fd);
    return rc;
}

int repo_read(const struct repo *r, const struct repo_model *m, const char *file, size_t limit, struct buf *out,
              struct error *err)
{
    struct arena a;
    arena_init(&a, 1024, 0);
    const char *rel = join(&a, m->dir, file);
    int rc = rel ? read_beneath(r, m, rel, file, limit, out, err) : error_set(err, STATUS_NOMEM, "no memory to read %s", file);
    arena_release(&a);
    return rc;
}

int repo_config(const struct repo *r, const struct repo_model *m, struct arena *a, struct model_config *cfg, struct error *err)
{
    model_config_init(cfg);
    if (!m->config_file)
        return 0;
    const char *file = strrchr(m->config_file, '/') ? strrchr(m->config_file, '/') + 1 : m->config_file;
    const char *where = arena_printf(a, "%.*s/%s", STR_ARG(m->name), file);
    struct buf text;
    buf_init(&text);
    int rc = where ? read_beneath(r, m, m->config_file, where, LAYOUT_CONFIG_BYTES, &text, err)
                   : error_set(err, STATUS_NOMEM, "no memory for a model's config");
    if (!rc)
        rc = (strcmp(file, LAYOUT_YAML) == 0 ? model_config_from_yaml : model_config_from_pbtxt)(buf_str(&text), where, a, cfg,
                                                                                                 err);
    buf_release(&text);
    if (!rc && cfg->name.n && !str_eq(cfg->name, m->name))
        return error_set(err, STATUS_INVALID,
                         "%s: the name is \"%.*s\" and the folder is \"%.*s\": make them equal or leave name out", where,
                         STR_ARG(cfg->name), STR_ARG(m->name));
    return rc;
}

int repo_version_open(const struct repo *r, const struct repo_model *m, const struct repo_version *v, int *fd,
                      struct error *err)
{
    return layout_open(m->root, v->dir, OS_FILE_DIRECTORY, r->o->follow_symlinks, fd, err);
}

static int find_version(const struct repo_model *m, struct str name)
{
    for (size_t i = 0; i < m->n_versions; i++)
        if (str_eq(m->versions[i].name, name))
            return (int)i;
    return -1;
}

int repo_wanted(const struct repo_model *m, const struct model_config *cfg, bool *wanted, struct error *err)
{
    size_t latest = cfg->latest_versions ? cfg->latest_versions : 1;
    for (size_t i = 0; i < m->n_versions; i++)
        wanted[i] = cfg->version_policy == VERSION_POLICY_ALL ||
                    (cfg->version_policy == VERSION_POLICY_LATEST && i + latest >= m->n_versions);
    for (size_t i = 0; cfg->version_policy == VERSION_POLICY_SPECIFIC && i < cfg->n_specific_versions; i++) {
        int at = find_version(m, cfg->specific_versions[i]);
        if (at < 0)
            return error_set(err, STATUS_INVALID, "version_policy names version %.*s, which is not there",
                             STR_ARG(cfg->specific_versions[i]));
        wanted[at] = true;
    }
    for (size_t i = 0; i < cfg->n_labels; i++) {
        int at = find_version(m, cfg->labels[i].value);
        if (at < 0)
            return error_set(err, STATUS_INVALID, "label \"%.*s\" stands for version %.*s, which is not there",
                             STR_ARG(cfg->labels[i].key), STR_ARG(cfg->labels[i].value));
        wanted[at] = true; /* a label that addresses nothing would be a 404 in waiting */
    }
    return 0;
}

uint64_t repo_fingerprint(const struct repo_model *m, uint64_t *newest_ns)
{
    uint64_t h = m->fingerprint ^ (m->problem != NULL);
    *newest_ns = m->newest_ns;
    for (size_t i = 0; i < m->n_versions; i++) {
        const struct repo_version *v = &m->versions[i];
        h = hash_bytes(v->name.p, v->name.n, h);
        h = hash_bytes(&v->fingerprint, sizeof v->fingerprint, h);
        *newest_ns = MAX_OF(*newest_ns, v->newest_ns);
    }
    return h ? h : 1;
}

/* 0: the root has it; NOT_FOUND; or why that can't be told. */
static int root_has(const struct repo_root *root, struct str name, struct error *err)
{
    char dir[256];
    int fd = -1;
    if (root->kind != ROOT_REPOSITORY)
        return str_eq(root->name, name) ? 0 : STATUS_NOT_FOUND;
    if (name.n >= sizeof dir)
        return STATUS_NOT_FOUND;
    memcpy(dir, name.p, name.n);
    dir[name.n] = 0;
    /* a link that leads out is found here and refused, with its reason, when it is scanned */
    int rc = layout_open(root, dir, OS_FILE_DIRECTORY, true, &fd, NULL);
    os_close(fd);
    return is_shortage(rc) ? shortage_error(rc, err) : rc ? STATUS_NOT_FOUND : 0;
}

static int not_found(struct str name, struct error *err)
{
    return error_set(err, STATUS_NOT_FOUND, "there is no model \"%.*s\" in the repository", STR_ARG(name));
}

int repo_has(const struct repo *r, struct str name, struct error *err)
{
    int rc = STATUS_NOT_FOUND;
    for (size_t i = 0; i < r->n && rc == STATUS_NOT_FOUND; i++)
        rc = root_has(&r->roots[i], name, err);
    return rc == STATUS_NOT_FOUND ? not_found(name, err) : rc;
}

int repo_find(const struct repo *r, struct str name, struct arena *a, struct repo_model *out, struct error *err)
{
    bool found = false;
    const char *dir = arena_strdup(a, name);
    if (!dir)
        return error_set(err, STATUS_NOMEM, "no memory to look for a model");
    for (size_t i = 0; i < r->n; i++) {
        const struct repo_root *root = &r->roots[i];
        int rc = root_has(root, name, err);
        if (rc == STATUS_NOT_FOUND)
            continue;
        if (rc)
            return rc;
        if (!found)
            *out = (struct repo_model){.name = str_of(dir), .root = root, .dir = root->kind == ROOT_REPOSITORY ? dir : "."};
        else
            out->problem = LAYOUT_TWICE;
        found = true;
    }
    if (!found)
        return not_found(name, err);
    return out->problem ? 0 : layout_scan_model(r, out, a, err);
}
