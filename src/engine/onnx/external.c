/* external.c: tensors that an ONNX file keeps in other files.
 *
 * A model's `location` is an input from outside: it is opened beneath the model's folder or not at all, and read by us, so that the
 * runtime never opens a path that a model chose. The runtime also knows a pseudo location for addresses in its own memory; from a
 * file it would be a wild pointer, so it is refused by name. */
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/onnx/onnx_priv.h"
#include "os/dir.h"

static const char *location_name(struct str location, struct arena *a, struct error *err)
{
    if (location.n == 0 || memchr(location.p, 0, location.n)) {
        error_set(err, STATUS_INVALID, "an external data entry of the model has an unusable location");
        return NULL;
    }
    if (location.p[0] == '*') {
        error_set(err, STATUS_FORBIDDEN, "the model's external data '%.*s' is not a file", STR_ARG(location));
        return NULL;
    }
    const char *name = arena_strdup(a, location);
    if (!name)
        error_set(err, STATUS_NOMEM, "no memory for the model's external data");
    return name;
}

static int name_failed(const struct error *err)
{
    return err ? err->code : STATUS_INVALID;
}

static int blame(struct error *err, int rc)
{
    return error_prefix(err, "external data of the model"), rc;
}

int onnx__external_read(const struct engine_load *spec, const struct onnx_scan *scan, struct arena *a,
                        struct onnx_external *out, struct error *err)
{
    *out = (struct onnx_external){0};
    if (scan->n_external == 0)
        return STATUS_OK;
    out->names = arena_array(a, scan->n_external, sizeof out->names[0]);
    out->files = arena_array(a, scan->n_external, sizeof out->files[0]);
    if (!out->names || !out->files)
        return error_set(err, STATUS_NOMEM, "no memory for the model's external data");
    for (const struct onnx_pair *p = scan->external; p; p = p->next) {
        const char *name = location_name(p->value, a, err);
        enum engine_file kind = ENGINE_FILE_PLAIN;
        int rc = name ? onnx__file_read(spec, name, UINT64_MAX, &out->files[out->n], &kind, err) : name_failed(err);
        if (!rc && kind != ENGINE_FILE_PLAIN && scan->external_inside.n) {
            os_blob_release(&out->files[out->n]);
            rc = error_set(
                err, STATUS_UNIMPLEMENTED,
                "%s is sealed or signed, and a tensor inside a branch or a node names the file %.*s, which ONNX Runtime would "
                "read by itself: export the model with that tensor in the main graph or in the model file",
                name, STR_ARG(scan->external_inside));
        }
        out->kind = MAX_OF(out->kind, kind);
        if (rc) {
            onnx__external_release(out);
            return blame(err, rc);
        }
        out->names[out->n++] = name;
    }
    return STATUS_OK;
}

void onnx__external_release(struct onnx_external *x)
{
    for (size_t i = 0; i < x->n; i++)
        os_blob_release(&x->files[i]);
    x->n = 0;
}

int onnx__external_bytes(const struct engine_load *spec, const struct onnx_scan *scan, uint64_t *bytes, struct error *err)
{
    struct arena a;
    arena_init(&a, 4096, 16 << 20);
    int rc = STATUS_OK;
    *bytes = 0;
    for (const struct onnx_pair *p = scan->external; p && !rc; p = p->next) {
        int fd = -1;
        struct os_file_info info;
        const char *name = location_name(p->value, &a, err);
        rc = name ? os_open_beneath(spec->dir_fd, name, OS_FILE_REGULAR, spec->follow_symlinks, &fd, err) : name_failed(err);
        if (rc)
            break;
        rc = os_file_info_fd(fd, &info, err);
        os_close(fd);
        if (!rc && __builtin_add_overflow(*bytes, info.size_bytes, bytes))
            rc = error_set(err, STATUS_INVALID, "the model's external data is larger than can be counted");
    }
    arena_release(&a);
    return rc ? blame(err, rc) : STATUS_OK;
}
