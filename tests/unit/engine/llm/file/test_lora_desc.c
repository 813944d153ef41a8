/* test_lora_desc.c: adapters in both formats, written by Python (make_llm.py), against base models of both formats: the same adapter
 * must come out the same for a given base, whatever the file's rope layout; and what doesn't fit the base is refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "engine/llm/file/lora_desc.h"
#include "os/dir.h"

static struct error err;

static int open_dir(const char *name)
{
    char path[512];
    int fd = -1;
    snprintf(path, sizeof path, "%s/llm/%s", TEST_DATA, name);
    assert_int_equal(os_dir_open(path, &fd, &err), 0);
    return fd;
}

static struct model_desc *base(const char *folder, const char *file)
{
    struct model_desc *d = NULL;
    int fd = open_dir(folder);
    assert_int_equal(model_desc_open(fd, file, &d, &err), 0);
    os_close(fd);
    return d;
}

static struct lora_desc *adapter(const char *folder, const char *file, const struct model_desc *b)
{
    struct lora_desc *d = NULL;
    int fd = open_dir(folder);
    err = (struct error){0};
    int rc = lora_desc_open(fd, file, b, &d, &err);
    assert_int_equal(rc, err.code);
    assert_true((rc == 0) == (d != NULL));
    os_close(fd);
    return d;
}

static void same_pair(const struct lora_pair *x, const struct lora_pair *y)
{
    assert_int_equal(x->a.rows, y->a.rows);
    assert_int_equal(x->a.cols, y->a.cols);
    assert_int_equal(x->b.rows, y->b.rows);
    assert_int_equal(x->a.bytes, y->a.bytes);
    assert_int_equal(x->b.bytes, y->b.bytes);
    assert_true((x->a.data != NULL) == (y->a.data != NULL));
    if (!x->a.data)
        return;
    assert_float_equal(x->scale, 1.5, 0); /* alpha 6 over rank 4 */
    assert_float_equal(y->scale, 1.5, 0);
    assert_memory_equal(x->a.data, y->a.data, x->a.bytes);
    assert_memory_equal(x->b.data, y->b.data, x->b.bytes);
}

static void same_adapter(const struct model_desc *b, const char *arch)
{
    char name[64];
    snprintf(name, sizeof name, "%s-lora.gguf", arch);
    struct lora_desc *g = adapter("", name, b);
    if (!g)
        fail_msg("%s: %s", name, err.text);
    snprintf(name, sizeof name, "%s-lora", arch);
    struct lora_desc *p = adapter(name, ".", b);
    if (!p)
        fail_msg("%s: %s", name, err.text);
    assert_int_equal(g->max_rank, 4);
    assert_int_equal(g->n_layer, b->h.n_layer);
    assert_int_equal(g->weight_bytes, p->weight_bytes);
    for (uint32_t i = 0; i < g->n_layer; i++) {
        const struct lora_layer_desc *x = &g->layers[i], *y = &p->layers[i];
        same_pair(&x->q, &y->q), same_pair(&x->k, &y->k), same_pair(&x->v, &y->v), same_pair(&x->o, &y->o);
        same_pair(&x->gate, &y->gate), same_pair(&x->up, &y->up), same_pair(&x->down, &y->down);
        assert_non_null(x->q.a.data);
        assert_null(x->o.a.data);
    }
    lora_desc_release(g);
    lora_desc_release(p);
}

static void both_formats_agree(void **state)
{
    (void)state;
    struct model_desc *d = base("", "llama.gguf");
    same_adapter(d, "llama");
    model_desc_release(d);
    d = base("llama", ".");
    same_adapter(d, "llama");
    model_desc_release(d);
    d = base("", "phi3.gguf");
    same_adapter(d, "phi3");
    model_desc_release(d);
}

static void rows_follow_the_base(void **state)
{
    (void)state;
    struct model_desc *g = base("", "llama.gguf"), *f = base("llama", ".");
    struct lora_desc *on_g = adapter("llama-lora", ".", g), *on_f = adapter("llama-lora", ".", f);
    const struct llm_weight *x = &on_g->layers[1].q.b, *y = &on_f->layers[1].q.b;
    for (uint32_t head = 0; head < 4; head++)
        for (uint32_t i = 0; i < 4;
             i++) { /* heads of 8: pair i is rows 2i and 2i + 1 here, i and i + 4 there; rows of 4 floats */
            assert_memory_equal(x->data + (head * 8 + 2 * i) * 16, y->data + (head * 8 + i) * 16, 16);
            assert_memory_equal(x->data + (head * 8 + 2 * i + 1) * 16, y->data + (head * 8 + i + 4) * 16, 16);
        }
    assert_memory_equal(on_g->layers[1].v.b.data, on_f->layers[1].v.b.data, on_g->layers[1].v.b.bytes);
    lora_desc_release(on_g);
    lora_desc_release(on_f);
    lora_desc_release(NULL);
    model_desc_release(g);
    model_desc_release(f);
}

static void fused_parts_share_a(void **state)
{
    (void)state;
    struct model_desc *b = base("", "phi3.gguf");
    struct lora_desc *d = adapter("", "phi3-lora.gguf", b);
    const struct lora_layer_desc *l = &d->layers[0];
    assert_ptr_equal(l->q.a.data, l->k.a.data);
    assert_ptr_equal(l->q.a.data, l->v.a.data);
    assert_int_equal(l->q.b.rows, 32);
    assert_ptr_equal(l->k.b.data, l->q.b.data + 32 * 16);
    assert_ptr_equal(l->v.b.data, l->k.b.data + 32 * 16);
    assert_ptr_equal(l->gate.a.data, l->up.a.data);
    assert_ptr_equal(l->up.b.data, l->gate.b.data + 64 * 16);
    lora_desc_release(d);
    model_desc_release(b);
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    struct model_desc *qwen = base("", "qwen2.gguf"), *phi = base("", "phi3.gguf"), *bert = base("", "bert.gguf"),
                      *llama = base("", "llama.gguf"), *gemma = base("", "gemma3.gguf");
    assert_null(adapter("", "llama-lora.gguf", qwen));
    assert_non_null(strstr(err.text, "for the architecture \"llama\", the base model is qwen2"));
    assert_null(adapter("", "llama.gguf", llama));
    assert_non_null(strstr(err.text, "\"general.type\" is not \"adapter\""));
    assert_null(adapter("llama-lora", ".", phi)); /* no fused matrices in the adapter, wrong shapes in the base */
    assert_non_null(strstr(err.text, "adapter: \"base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight\""));
    assert_null(adapter("llama-lora", ".", gemma));
    assert_non_null(strstr(err.text, "the base model needs 32 inputs and 64 outputs"));
    assert_null(adapter("llama-lora", ".", bert));
    assert_int_equal(err.code, STATUS_UNIMPLEMENTED);
    assert_null(adapter("llama", ".", llama));
    assert_int_equal(err.code, STATUS_NOT_FOUND);
    model_desc_release(qwen), model_desc_release(phi), model_desc_release(bert), model_desc_release(llama),
        model_desc_release(gemma);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_formats_agree), cmocka_unit_test(rows_follow_the_base),
                                       cmocka_unit_test(fused_parts_share_a), cmocka_unit_test(refuses_what_does_not_fit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
