/* server_sandbox.c: which files a server needs, from its configuration: sandbox.files (os/sandbox.h).
 *
 * A file that the configuration names is replaced by renaming another over it, so its folder is allowed, and the folder that it leads to when
 * it is a link. A repository that is a link may be turned to another target beside it: the link's folder is allowed, too. The root folder
 * never is. Paths that stand in other files (guard references, quota policies name none) are for sandbox.read and sandbox.write. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/size.h"
#include "base/status.h"
#include "cli/server_priv.h"
#include "os/dir.h"
#include "os/file.h"
#include "os/sandbox.h"

#define PATHS_MAX 1024u

struct list {
    struct arena arena;
    struct os_sandbox_path *v;
    size_t n;
    bool failed;
};

static void add(struct list *l, const char *path, bool write)
{
    char *copy = path && path[0] ? arena_strdup(&l->arena, str_of(path)) : NULL;
    if (!path || !path[0])
        return;
    l->failed |= !copy || l->n == PATHS_MAX;
    if (!l->failed)
        l->v[l->n++] = (struct os_sandbox_path){copy, write};
}

/* The folder that holds `path`; of a file in the root folder, that file alone. */
static void add_folder_of(struct list *l, const char *path, bool write)
{
    const char *slash = strrchr(path, '/');
    if (slash == path)
        add(l, path, write);
    else if (slash)
        add(l, arena_strdup(&l->arena, (struct str){path, (size_t)(slash - path)}), write);
    else
        add(l, ".", write);
}

static void add_file(struct list *l, const char *path, bool write)
{
    if (!path || !path[0] || strcmp(path, "-") == 0 || strcmp(path, "off") == 0 || strstr(path, "://"))
        return;
    add_folder_of(l, path, write);
    char *real = realpath(path, NULL);
    if (real)
        add_folder_of(l, real, write);
    free(real);
}

static void add_files(struct list *l, const struct config_list *files, bool write)
{
    for (size_t i = 0; i < files->n; i++)
        add_file(l, files->v[i], write);
}

/* Folders that are written to are made here: what isn't there can't be allowed. */
static void add_made(struct list *l, const char *path)
{
    if (path && path[0] && strcmp(path, "-") != 0) {
        (void)!os_dir_make(path, 0700, NULL);
        add(l, path, true);
    }
}

/* Does the last part of `path` (without a slash at its end) name a link? Then its folder's real path and that part are not where it leads. */
static bool is_link(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct buf folder;
    buf_init(&folder);
    buf_append(&folder, slash ? path : ".", !slash ? 1 : slash == path ? 1 : (size_t)(slash - path));
    char *parent = realpath(buf_z(&folder), NULL), *real = realpath(path, NULL);
    size_t n = parent ? strlen(parent) : 0;
    bool same = parent && real && strncmp(real, parent, n) == 0 && strcmp(real + n + (real[n] == '/'), name) == 0;
    bool named = strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    buf_release(&folder);
    free(parent);
    free(real);
    return named && !same;
}

static void add_repositories(struct list *l, const struct config_list *paths)
{
    for (size_t i = 0; i < paths->n; i++) {
        struct os_file_info info;
        size_t n = strlen(paths->v[i]);
        while (n > 1 && paths->v[i][n - 1] == '/')
            n--;
        const char *path = arena_strdup(&l->arena, (struct str){paths->v[i], n});
        add(l, path, false);
        if (path && os_file_info(path, &info, NULL) == 0 && info.kind == OS_FILE_REGULAR)
            add_file(l, path, false);
        else if (path && is_link(path))
            add_folder_of(l, path, false);
    }
}

/* Where the runtime's library may lie beside the binary: an installation's and a checkout's (engine/onnx/runtime.c). */
static void add_libraries(struct list *l, const struct config *c)
{
    struct buf exe;
    buf_init(&exe);
    add_file(l, c->onnxruntime.library, false);
    if (os_exe_path(&exe, NULL) == 0) {
        char *path = arena_strdup(&l->arena, buf_str(&exe));
        for (int up = 0; path && up < 6; up++) {
            char *slash = strrchr(path, '/');
            if (!slash || slash == path)
                break;
            *slash = 0;
            add(l, arena_printf(&l->arena, "%s/lib/inferd", path), false);
            add(l, arena_printf(&l->arena, "%s/.deps/onnxruntime/lib", path), false);
        }
    }
    buf_release(&exe);
}

static void add_sockets(struct list *l, const struct config_list *listen)
{
    for (size_t i = 0; i < listen->n; i++)
        if (strncmp(listen->v[i], "unix:", 5) == 0)
            add_folder_of(l, listen->v[i] + 5, true);
}

static void add_gateway(struct list *l, const struct gateway_config *g)
{
    for (size_t i = 0; i < g->n_pools; i++) {
        add_file(l, strcmp(g->pools[i].tls.ca, "system") == 0 ? NULL : g->pools[i].tls.ca, false);
        add_file(l, g->pools[i].tls.certificate, false);
        add_file(l, g->pools[i].tls.key, false);
    }
}

/* /dev itself is only read; written are what has no content, shared memory, and what accelerators are. */
static void add_devices(struct list *l)
{
    static const char *const written[] = {"/dev/null", "/dev/zero", "/dev/shm", "/dev/dri", "/dev/kfd"};
    struct os_dir_list entries = {0};
    int fd = -1;
    add(l, "/dev", false);
    for (size_t i = 0; i < COUNT_OF(written); i++)
        add(l, written[i], true);
    if (os_dir_open("/dev", &fd, NULL) == 0 && os_dir_list(fd, 10000, &entries, NULL) == 0)
        for (size_t i = 0; i < entries.n; i++)
            if (strncmp(entries.entries[i].name, "nvidia", 6) == 0)
                add(l, arena_printf(&l->arena, "/dev/%s", entries.entries[i].name), true);
    os_dir_list_release(&entries);
    os_close(fd);
}

static void add_configured(struct list *l, const struct config *c)
{
    const char *const read[] = {c->auth.keys_file,      c->jwt.keys,      c->jwt.ca,  c->quota.file,
                                c->guard.file,          c->overload.file, c->tls.crl, c->tls.client_ca,
                                c->redis.password_file, c->redis.ca,      c->where};
    const char *const written[] = {c->log.file, c->access_log.file, c->audit.file};
    for (size_t i = 0; i < COUNT_OF(read); i++)
        add_file(l, read[i], false);
    for (size_t i = 0; i < COUNT_OF(written); i++)
        add_file(l, written[i], true);
    add_repositories(l, &c->repository.paths);
    add_files(l, &c->tls.certificates, false);
    add_files(l, &c->tls.keys, false);
    add_files(l, &c->models.seal_keys, false);
    add_files(l, &c->models.signature_keys, false);
    add(l, c->llm.adapter_path, false);
    add_made(l, c->onnxruntime.cache_dir);
    add_sockets(l, &c->http.listen);
    add_sockets(l, &c->grpc.listen);
    add_sockets(l, &c->metrics.listen);
    add_sockets(l, &c->admin.listen);
    add_sockets(l, &c->agent.listen);
    add_gateway(l, &c->gateway);
    for (size_t i = 0; i < c->sandbox.read.n; i++)
        add(l, c->sandbox.read.v[i], false);
    for (size_t i = 0; i < c->sandbox.write.n; i++)
        add(l, c->sandbox.write.v[i], true);
}

int server__enter_sandbox(struct server *s, struct error *err)
{
    static const char *const system[] = {"/usr", "/lib", "/lib64", "/lib32", "/opt", "/etc", "/proc", "/sys", "/run"};
    const struct config *c = s->config;
    if (c->sandbox.files == CONFIG_SANDBOX_OFF)
        return 0;
    struct list l = {.v = calloc(PATHS_MAX, sizeof *l.v)};
    struct buf state;
    buf_init(&state);
    arena_init(&l.arena, 4096, 4 << 20);
    l.failed = !l.v;
    for (size_t i = 0; i < COUNT_OF(system); i++)
        add(&l, system[i], false);
    add_devices(&l);
    add_libraries(&l, c);
    add_configured(&l, c);
    server__state_folder(s, &state);
    add_made(&l, buf_z(&state));
    int rc = l.failed ? error_set(err, STATUS_NOMEM, "more than %u paths for the sandbox, or no memory", PATHS_MAX)
                      : os_sandbox_files(l.v, l.n, err);
    if (rc == 0)
        LOG(s->log, LOG_INFO, "files_sandboxed", LOG_U("paths", l.n));
    else if (c->sandbox.files == CONFIG_SANDBOX_TRY && rc == STATUS_UNIMPLEMENTED) {
        LOG(s->log, LOG_WARN, "sandbox_unavailable", LOG_S("reason", err->text),
            LOG_S("effect", "all files can be reached as permissions allow"));
        *err = (struct error){0};
        rc = 0;
    }
    buf_release(&state);
    arena_release(&l.arena);
    free(l.v);
    return rc ? error_prefix(err, "sandbox.files") : 0;
}
