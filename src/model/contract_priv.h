/* contract_priv.h: for siblings in model/ only: what one version takes and gives once file and config are merged.
 *
 * The model file is the truth about names, dtypes and ranks; the config may narrow it (fix a dynamic dim, make an input
 * optional, lower the batch) and add what a file cannot say (padding, masks, labels). Where the two disagree the load fails with
 * a sentence that names the tensor, what the file has and what the config asks for. Immutable after contract_merge; everything
 * lives in the version's arena. */
#ifndef INFERD_MODEL_CONTRACT_PRIV_H
#define INFERD_MODEL_CONTRACT_PRIV_H

#include "base/arena.h"
#include "base/error.h"
#include "conf/model_config.h"
#include "engine/engine.h"
#include "model/infer.h"
#include "sched/batcher.h"
#include "tensor/pad.h"

#define CONTRACT_PAD_MAX           4
#define CONTRACT_DEFAULT_MAX_BATCH 32 /* where neither file nor config says a number */

/* One padded axis of an input. */
struct pad_rule {
    int axis;      /* in the full shape */
    int n_buckets; /* 0: powers of two */
    int64_t buckets[MODEL_CONFIG_LIST_MAX];
};

struct input_rule {
    struct pad_rule pad[CONTRACT_PAD_MAX];
    int n_pad;
    struct pad_fill fill;
    int mask_of; /* this input is the mask of that one (index), -1: it is not a mask; made by us when the client sends none */
};

/* Output axis `axis` is cut to the length that input `input` had on its axis `input_axis`. */
struct cut_rule {
    int axis, input, input_axis;
};

struct output_rule {
    struct cut_rule cut[CONTRACT_PAD_MAX];
    int n_cut;
    const struct str *labels;
    size_t n_labels;
};

struct contract {
    struct engine_contract c; /* as clients see it */
    uint32_t max_batch;       /* 0: dim 0 is not a batch axis of ours */
    bool max_batch_declared;  /* by the config, not by us */
    bool pads;
    uint64_t bucket_mask;    /* ANDed onto shape classes: all ones; tests make classes collide by 0 */
    bool uniform;            /* every request has the same shape class: no optional input, no dynamic dim behind the batch */
    struct input_rule *in;   /* [c.n_inputs] */
    struct output_rule *out; /* [c.n_outputs] */
};

/* Merge. `out` borrows strings from `file` and `cfg`, which must live as long. INVALID: names the tensor, both sides and the
 * repair. Loader thread. */
int contract_merge(const struct engine_contract *file, const struct model_config *cfg, struct arena *a, struct contract *out,
                   struct error *err) MUST_CHECK;

/* Write back into `cfg` what the merge came to, so that it says all that is in force (GET .../config). `cfg` was the one given to
 * contract_merge; strings come from `c`, the arena and constants. `backend`: the engine's name. NOMEM only. */
int contract_effective(const struct contract *c, struct str model, const char *backend, struct arena *a,
                       struct model_config *cfg, struct error *err) MUST_CHECK;

/* The batcher's policy for this contract and config. */
void contract_policy(const struct contract *c, const struct model_config *cfg, struct batch_policy *out);

/* Index of the input or output named `name`; -1 when there is none. */
int contract_find(const struct engine_io *io, size_t n, struct str name);

/* "[batch,3,224,-1]": the shape as messages show it, `batch` for a batch axis of ours. Returns `text`. */
const char *contract_shape(const struct contract *c, const struct engine_io *io, char *text, size_t cap);

/* The length that axis rule `r` pads `length` to; `length` itself past the last declared bucket. */
int64_t pad_rule_length(const struct pad_rule *r, int64_t length);

/* Put the request's inputs into contract order and check them: names, dtypes, ranks, dims, batch rule, bytes. Sets
 * item.rows, item.bytes, item.bucket and inf->rows. INVALID: a client-facing sentence. Any thread, no lock. */
int contract_check(const struct contract *c, struct infer *inf, struct error *err) MUST_CHECK;

/* The shape class of a request with these inputs (contract order). */
uint64_t contract_bucket(const struct contract *c, const struct tensor *inputs);

/* The full padded shape of input `i` of a request; the shape as given when nothing pads. Batch dim as given. */
void contract_padded(const struct contract *c, size_t i, const struct shape *given, struct shape *out);

/* Of a mask input `i` that may be left out: the length that it has in a request, from the input that it masks. */
int64_t contract_mask_length(const struct contract *c, size_t i, const struct tensor *inputs);

#endif
