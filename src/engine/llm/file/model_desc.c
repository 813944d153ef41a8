/* model_desc.c: opening, releasing, and the pages; the content comes from desc_gguf.c or hf_folder.c. */
#include "engine/llm/file/model_desc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "engine/llm/file/desc_priv.h"
#include "os/dir.h"

int desc__map_file(int dir_fd, const char *name, struct desc_maps *maps, struct os_map *out, struct error *err)
{
    int fd = -1;
    if (maps->n == DESC_MAPS_MAX)
        return error_set(err, STATUS_INVALID, "model: more than %d files", DESC_MAPS_MAX);
    int rc = os_open_beneath(dir_fd, name, OS_FILE_REGULAR, true, &fd, err);
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
    for (size_t i = 0; maps && i < maps->n; i++)
        os_map_release(&maps->v[i]);
    free(maps);
}

int model_desc_open(int dir_fd, const char *file, struct model_desc **out, struct error *err)
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

void model_desc_drop_pages(struct model_desc *d)
{
    struct desc_maps *maps = d->maps;
    for (size_t i = 0; i < maps->n; i++)
        os_map_drop(&maps->v[i]);
}
