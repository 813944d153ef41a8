/* onnx_rig.h: load a model of tests/data/models (or another folder) through the engine's table and run it. Header only, so that each
 * test stays one program. */
#ifndef INFERD_TESTS_ENGINE_ONNX_RIG_H
#define INFERD_TESTS_ENGINE_ONNX_RIG_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"
#include "engine/onnx/onnx.h"

struct rig {
    struct engine *e;
    struct engine_model *m;
    struct engine_instance *i;
    struct error err;
    struct tensor in[16], out[16];
    struct engine_run run;
};

static inline int rig_load_at(struct rig *r, struct engine *e, const char *folder, const struct engine_option *o, size_t n)
{
    *r = (struct rig){.e = e};
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    struct engine_load spec = {
        .name = "m", .dir_fd = fd, .dir_path = folder, .file = "model.onnx", .n_instances = 1, .options = o, .n_options = n};
    int rc = engine_onnx.load(e, &spec, &r->m, &r->err);
    if (!rc)
        rc = engine_onnx.instance_create(r->m, 0, &r->i, &r->err);
    close(fd);
    if (!rc) {
        const struct engine_contract *c = engine_onnx.contract(r->m);
        assert_true(c->n_inputs <= 16 && c->n_outputs <= 16);
        r->run = (struct engine_run){r->in, c->n_inputs, NULL, r->out};
    }
    return rc;
}

static inline int rig_load(struct rig *r, struct engine *e, const char *name, const struct engine_option *o, size_t n)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/models/%s", TEST_DATA, name);
    return rig_load_at(r, e, folder, o, n);
}

static inline void rig_must_load(struct rig *r, struct engine *e, const char *name)
{
    if (rig_load(r, e, name, NULL, 0))
        fail_msg("%s: %s", name, r->err.text);
}

/* Input k: dims as a zero-terminated list is ambiguous, so rank is given. */
static inline void rig_set(struct rig *r, size_t k, enum dtype t, const void *p, size_t bytes, int rank, ...)
{
    struct shape s = {.rank = (uint8_t)rank};
    va_list ap;
    va_start(ap, rank);
    for (int d = 0; d < rank; d++)
        s.dim[d] = va_arg(ap, int);
    va_end(ap);
    r->in[k] = (struct tensor){engine_onnx.contract(r->m)->inputs[k].name, t, s, slice_borrow(p, bytes)};
}

static inline int rig_run(struct rig *r)
{
    return engine_onnx.run(r->i, &r->run, &r->err);
}

static inline void rig_must_run(struct rig *r)
{
    if (rig_run(r))
        fail_msg("%s", r->err.text);
}

static inline void rig_drop_outputs(struct rig *r)
{
    for (size_t k = 0; k < 16; k++)
        tensor_release(&r->out[k]);
}

static inline void rig_end(struct rig *r)
{
    rig_drop_outputs(r);
    engine_onnx.instance_destroy(r->i);
    if (r->m)
        engine_onnx.unload(r->m);
}

/* The runtime isn't built with ThreadSanitizer, which takes its condition variables for misuse: nothing can be learned there. What is
 * ours to test for races (batching, cancelling, draining) runs on the fake engine. */
static inline bool rig_must_skip(void)
{
#ifdef __SANITIZE_THREAD__
    print_message("skipped under ThreadSanitizer: ONNX Runtime isn't built with it\n");
    return true;
#else
    return false;
#endif
}

/* The engine for a whole test program. */
static inline struct engine *rig_engine(const struct engine_option *o, size_t n)
{
    struct engine *e = NULL;
    struct error err;
    assert_int_equal(engine_onnx.open(o, n, NULL, &e, &err), 0);
    return e;
}

#endif
