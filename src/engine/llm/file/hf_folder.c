/* hf_folder.c: a model folder in Hugging Face's layout: config.json, the safetensors (one file, or many behind an index), the
 * tokenizer's files, generation_config.json and chat_template.jinja where they are. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "engine/llm/file/hf_priv.h"
#include "engine/llm/file/safetensors.h"
#include "os/dir.h"

#define JSON_MAX_BYTES ((size_t)256 << 20)

struct folder {
    int fd;
    struct model_desc *d;
    struct desc_tensors tensors;
    size_t cap;
    struct error *err;
};

/* Append the file `name`, at most `limit` bytes, to `text` (whoever else fails, the caller releases it). `maps`: as it is opened with; NULL:
 * all files are plain. */
static int hf__read_text(const struct desc_maps *maps, int dir_fd, const char *name, size_t limit, struct buf *text,
                         struct error *err)
{
    enum engine_file kind = ENGINE_FILE_PLAIN;
    struct os_blob blob = {0};
    int fd = -1, rc = 0;
    if (maps && maps->files)
        rc = maps->files->read(maps->files, dir_fd, name, true, limit, &blob, &kind, err);
    if (rc < 0)
        return rc;
    if (kind != ENGINE_FILE_PLAIN) {
        buf_append(text, blob.p, blob.n);
        os_blob_release(&blob);
        return text->failed ? error_set(err, STATUS_NOMEM, "out of memory while reading a model") : 0;
    }
    rc = os_open_beneath(dir_fd, name, OS_FILE_REGULAR, true, &fd, err);
    if (rc == 0)
        rc = os_file_read_fd(fd, name, limit, text, err);
    os_close(fd);
    return rc;
}

/* 0 for a file that isn't there and needn't be. */
static int absent(struct error *err)
{
    if (err)
        *err = (struct error){0};
    return 0;
}

int hf__read_json(const struct desc_maps *maps, int dir_fd, const char *name, enum json_need need, struct json *j,
                  struct error *err)
{
    const struct json_limits limits = {.max_bytes = JSON_MAX_BYTES};
    struct buf text;
    *j = (struct json){0};
    buf_init(&text);
    int rc = hf__read_text(maps, dir_fd, name, JSON_MAX_BYTES, &text, err);
    if (rc == STATUS_NOT_FOUND) {
        buf_release(&text);
        return need == JSON_OPTIONAL ? absent(err) : rc;
    }
    if (rc == 0)
        rc = json_parse(j, buf_str(&text), &limits, err);
    buf_release(&text);
    return rc < 0 ? error_prefix(err, "%s", name) : 0;
}

/* ---- tensors ---- */

static bool dtype_of(struct str name, enum weight_type *out)
{
    if (str_eqz(name, "F32"))
        *out = WEIGHT_F32;
    else if (str_eqz(name, "F16"))
        *out = WEIGHT_F16;
    else if (str_eqz(name, "BF16"))
        *out = WEIGHT_BF16;
    else
        return false;
    return true;
}

/* What checkpoints carry and no forward pass reads: buffers that follow from the configuration, and heads of pre-training. */
static bool is_baggage(struct str name)
{
    static const char *const ends[] = {"rotary_emb.inv_freq", "embeddings.position_ids"};
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (str_ends(name, str_of(ends[i])))
            return true;
    return str_starts(name, STR("cls.predictions.")) || str_starts(name, STR("cls.seq_relationship."));
}

/* A decoder that was saved without its head, as embedding models are, lacks the prefix of the whole model. */
static int name_as_whole(struct desc_tensor *t, struct arena *a, struct error *err)
{
    if (!str_starts(t->name, STR("layers.")) && !str_eqz(t->name, "embed_tokens.weight") && !str_eqz(t->name, "norm.weight"))
        return 0;
    char *p = arena_printf(a, "model.%.*s", STR_ARG(t->name));
    if (!p)
        return error_set(err, STATUS_NOMEM, "out of memory while listing a model's tensors");
    t->name = str_of(p);
    return 0;
}

static int add_tensor(const struct safetensors_tensor *x, struct desc_tensors *list, struct arena *a, struct error *err)
{
    struct desc_tensor t = {.name = x->name, .data = x->data, .bytes = x->bytes, .n_dims = x->n_dims, .dims = {1, 1, 1, 1}};
    if (is_baggage(x->name))
        return 0;
    if (!dtype_of(x->dtype, &t.type))
        return error_set(err, STATUS_UNIMPLEMENTED, "the tensor \"%.*s\" has dtype %.*s; supported: F32, F16, BF16",
                         STR_ARG(x->name), STR_ARG(x->dtype));
    if (x->n_dims < 1 || x->n_dims > GGUF_DIMS_MAX)
        return error_set(err, STATUS_INVALID, "the tensor \"%.*s\" has %u dims; accepted: 1 to %d", STR_ARG(x->name), x->n_dims,
                         GGUF_DIMS_MAX);
    for (uint32_t i = 0; i < x->n_dims; i++)
        t.dims[i] = x->shape[x->n_dims - 1 - i];
    if (str_starts(t.name, STR("bert."))) /* a checkpoint with a head over the encoder */
        t.name.p += 5, t.name.n -= 5;
    int rc = name_as_whole(&t, a, err);
    list->v[list->n++] = t;
    return rc;
}

int hf__list_safetensors(const struct os_map *map, struct arena *a, struct desc_tensors *t, size_t *cap, struct error *err)
{
    struct safetensors st;
    int rc = safetensors_parse(map->p, map->n, a, &st, err);
    if (rc < 0)
        return rc;
    if (t->n + st.n > *cap) {
        size_t more = 2 * (t->n + st.n);
        struct desc_tensor *v = arena_array(a, more, sizeof *v);
        if (!v)
            return error_set(err, STATUS_NOMEM, "out of memory while listing a model's tensors");
        if (t->n)
            memcpy(v, t->v, t->n * sizeof *v);
        t->v = v;
        *cap = more;
    }
    for (size_t i = 0; rc == 0 && i < st.n; i++)
        rc = add_tensor(&st.v[i], t, a, err);
    return rc;
}

static int add_file(struct folder *f, const char *name)
{
    struct os_map map;
    int rc = desc__map_file(f->fd, name, f->d->maps, &map, f->err);
    if (rc < 0)
        return rc;
    rc = hf__list_safetensors(&map, &f->d->arena, &f->tensors, &f->cap, f->err);
    return rc < 0 ? error_prefix(f->err, "%s", name) : 0;
}

/* {"weight_map": {"tensor": "model-00001-of-00002.safetensors", ...}}: each file once, in the map's order. */
static int add_shards(struct folder *f, yyjson_val *root)
{
    yyjson_val *weights = NULL, *key, *val;
    struct map seen;
    size_t i, n;
    int rc = json_get_obj(root, "weight_map", JSON_REQUIRED, &weights, NULL, f->err);
    if (rc < 0)
        return error_prefix(f->err, "model.safetensors.index.json");
    map_init(&seen, 0x73686172);
    yyjson_obj_foreach(weights, i, n, key, val)
    {
        struct str name = json_str(val);
        if (!name.n || name.n > 255 || memchr(name.p, '/', name.n))
            rc = error_set(f->err, STATUS_INVALID,
                           "model.safetensors.index.json: the file of \"%.*s\" must be a name in the folder",
                           STR_ARG(json_str(key)));
        else if (!map_get(&seen, name))
            rc = map_put(&seen, name, val) < 0 ? error_set(f->err, STATUS_NOMEM, "out of memory while listing a model's files")
                                               : add_file(f, name.p);
        if (rc < 0)
            break;
    }
    map_release(&seen);
    return rc;
}

static int read_weights(struct folder *f)
{
    struct json index;
    int rc = hf__read_json(f->d->maps, f->fd, "model.safetensors.index.json", JSON_OPTIONAL, &index, f->err);
    if (rc < 0)
        return rc;
    f->tensors.naming = DESC_NAMES_HF;
    rc = index.doc ? add_shards(f, index.root) : add_file(f, "model.safetensors");
    json_release(&index);
    return rc < 0 ? rc : desc__tensors_index(&f->tensors, f->err);
}

/* ---- text ---- */

static int read_jinja(struct folder *f)
{
    struct buf text;
    buf_init(&text);
    int rc = hf__read_text(f->d->maps, f->fd, "chat_template.jinja", 1 << 20, &text, f->err);
    if (rc == STATUS_NOT_FOUND) {
        rc = absent(f->err);
    } else if (rc == 0) {
        char *p = arena_strdup(&f->d->arena, buf_str(&text));
        if (p)
            f->d->chat_template = (struct str){p, text.n};
        else
            rc = error_set(f->err, STATUS_NOMEM, "out of memory while reading chat_template.jinja");
    }
    buf_release(&text);
    return rc;
}

static int read_text(struct folder *f, yyjson_val *config)
{
    struct json tok = {0}, tok_config = {0}, generation = {0};
    int rc = hf__read_json(f->d->maps, f->fd, "tokenizer.json", JSON_REQUIRED, &tok, f->err);
    if (rc == 0)
        rc = hf__read_json(f->d->maps, f->fd, "tokenizer_config.json", JSON_OPTIONAL, &tok_config, f->err);
    if (rc == 0)
        rc = hf__read_json(f->d->maps, f->fd, "generation_config.json", JSON_OPTIONAL, &generation, f->err);
    if (rc == 0)
        rc = hf__read_tokenizer(tok.root, tok_config.root, f->d, f->err);
    if (rc == 0 && f->d->h.causal)
        rc = hf__read_eos(config, f->d, f->err);
    if (rc == 0 && generation.doc)
        rc = hf__read_generation(generation.root, f->d, f->err);
    json_release(&tok);
    json_release(&tok_config);
    json_release(&generation);
    return rc < 0 ? rc : read_jinja(f);
}

/* A stored output matrix is not used where the configuration says that the embedding is. */
static void apply_tie(struct folder *f, const struct hf_config *c)
{
    if (!c->tied)
        return;
    struct desc_tensor *head = desc__tensor(&f->tensors, "lm_head.weight");
    if (head)
        map_remove(&f->tensors.by_name, head->name);
}

int desc__read_folder(int dir_fd, struct model_desc *d, struct error *err)
{
    struct folder f = {.fd = dir_fd, .d = d, .err = err};
    struct hf_config c = {0};
    struct json config;
    int rc = hf__read_json(d->maps, f.fd, "config.json", JSON_REQUIRED, &config, err);
    if (rc < 0)
        return rc;
    rc = hf__read_config(config.root, &c, d, err);
    if (rc < 0)
        rc = error_prefix(err, "config.json");
    if (rc == 0)
        rc = hf__read_pooling(f.fd, d, err);
    if (rc == 0)
        rc = read_text(&f, config.root);
    if (rc == 0)
        rc = read_weights(&f);
    if (rc == 0) {
        apply_tie(&f, &c);
        rc = desc__bind(c.arch, d, &f.tensors, err);
    }
    if (rc == 0 && d->h.causal && d->h.pooling == LLM_POOL_NONE && !c.tied && d->h.tied_output)
        rc = error_set(err, STATUS_INVALID, "the tensor \"lm_head.weight\" is missing and \"tie_word_embeddings\" is not true");
    json_release(&config);
    desc__tensors_release(&f.tensors);
    return rc;
}
