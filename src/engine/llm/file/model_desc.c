/* model_desc.c: opening, releasing, and the pages; the content comes from desc_gguf.c or hf_folder.c. */
#include "engine/llm/file/model_desc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/desc_priv.h"
#include "os/dir.h"

int desc__map_file(int dir_fd, const char *name, struct desc_maps *maps, struct os_map *out, struct error *err)
{
    int fd = -1;
    enum engine_file kind = ENGINE_FILE_PLAIN;
    int rc = 0;
    if (maps->n == DESC_MAPS_MAX)
        return error_set(err, STATUS_INVALID, "model: more than %d files", DESC_MAPS_MAX);
    if (maps->files)
        rc = maps->files->read(maps->files, dir_fd, name, true, UINT64_MAX, &maps->blobs[maps->n], &kind, err);
    if (rc == 0 && kind != ENGINE_FILE_PLAIN) {
        *out = (struct os_map){maps->blobs[maps->n].p, maps->blobs[maps->n].n};
        maps->v[maps->n++] = *out;
        return 0;
    }
    if (rc == 0)
        rc = os_open_beneath(dir_fd, name, OS_FILE_REGULAR, true, &fd, err);
    if (rc < 0)
        return rc;
    rc = os_map_open(fd, out, err);
    os_close(fd);
    if (rc == 0)
        maps->v[maps->n++] = *out;
    return rc;
}

void desc__maps_release(struct desc_maps *maps)
{
    for (size_t i = 0; maps && i < maps->n; i++) {
        if (maps->blobs[i].p)
            os_blob_release(&maps->blobs[i]);
        else
            os_map_release(&maps->v[i]);
    }
    free(maps);
}

int model_desc_open(int dir_fd, const char *file, struct model_desc **out, struct error *err)
{
    return model_desc_open_files(NULL, dir_fd, file, out, err);
}

int model_desc_open_files(const struct engine_files *files, int dir_fd, const char *file, struct model_desc **out,
                          struct error *err)
{
    struct model_desc *d = calloc(1, sizeof *d);
    struct desc_maps *maps = calloc(1, sizeof *maps);
    struct os_map map;
    int rc = 0;
    *out = NULL;
    if (!d || !maps) {
        free(d);
        free(maps);
        return error_set(err, STATUS_NOMEM, "out of memory while opening a model");
    }
    d->maps = maps;
    maps->files = files;
    d->temperature = d->top_p = d->min_p = d->repetition_penalty = NAN;
    arena_init(&d->arena, 1 << 16, 0);
    if (strcmp(file, ".") == 0) {
        rc = desc__read_folder(dir_fd, d, err);
    } else {
        rc = desc__map_file(dir_fd, file, maps, &map, err);
        if (rc == 0)
            rc = desc__read_gguf(&map, d, err);
    }
    if (rc < 0) {
        model_desc_release(d);
        return rc;
    }
    maps->files = NULL;
    *out = d;
    return 0;
}

void model_desc_release(struct model_desc *d)
{
    if (!d)
        return;
    desc__maps_release(d->maps);
    arena_release(&d->arena);
    free(d);
}

uint64_t model_desc_held_bytes(const struct model_desc *d)
{
    const struct desc_maps *maps = d->maps;
    uint64_t sum = 0;
    for (size_t i = 0; i < maps->n; i++)
        sum += maps->blobs[i].n;
    return sum;
}

/* A matrix of a file that lies in memory: it can't be read again, so only what nobody asks for any more goes. */
static void drop_matrix(const struct desc_maps *maps, const struct llm_weight *w)
{
    for (size_t i = 0; w->data && i < maps->n; i++)
        if (maps->blobs[i].p && w->data >= maps->blobs[i].p && w->data < maps->blobs[i].p + maps->blobs[i].n)
            os_blob_drop(&maps->blobs[i], w->data, w->bytes);
}

void model_desc_drop_pages(struct model_desc *d)
{
    const struct desc_maps *maps = d->maps;
    for (size_t i = 0; i < maps->n; i++)
        if (!maps->blobs[i].p)
            os_map_drop(&maps->v[i]);
    for (uint32_t i = 0; i < d->h.n_layer; i++) {
        const struct llm_layer_desc *l = &d->layers[i];
        const struct llm_weight *packed[] = {&l->wqkv, &l->wq, &l->wk, &l->wv, &l->wo, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < COUNT_OF(packed); k++)
            drop_matrix(maps, packed[k]);
    }
    if (d->h.tied_output ||
        d->output.data != d->token_embd.data) /* tied: the embedding's rows come from the packed matrix, too */
        drop_matrix(maps, &d->output);
}
