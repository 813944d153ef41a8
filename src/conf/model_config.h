/* model_config.h: one model's configuration, from model.yaml or Triton's config.pbtxt, both into the same struct.
 *
 * Key names are Triton's, in both files (YAML spells the same tree). A field that Triton knows and inferd does not serve is
 * reported in `warnings` by name; a key that nobody knows is an error with file, line and the nearest known key. Everything is
 * allocated from the arena given to the parser and immutable afterwards. Values not given keep the "unset" value below, and
 * model/ fills them from the model file. Pure: text in, struct out. */
#ifndef INFERD_CONF_MODEL_CONFIG_H
#define INFERD_CONF_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#define MODEL_CONFIG_RANK_MAX 16
#define MODEL_CONFIG_LIST_MAX 16

struct config_io {
    struct str name;
    struct str data_type;                /* Triton's spelling, "TYPE_FP32"; empty: unset */
    int64_t dims[MODEL_CONFIG_RANK_MAX]; /* without the batch axis when max_batch_size > 0, as in Triton */
    int n_dims;                          /* -1: unset */
    bool optional;
    struct str label_filename; /* outputs */
    /* inferd: padding of dynamic axes of an input (model.yaml `padding`, pbtxt parameters "padding.<input>.<key>") */
    struct config_padding {
        int axis;                               /* in the full shape, 1.. ; -1: every dynamic axis behind the batch */
        int64_t buckets[MODEL_CONFIG_LIST_MAX]; /* ascending lengths that a batch is padded to; empty: powers of two */
        int n_buckets;
        double value;          /* fill */
        struct str mask_input; /* input of shape [batch, length] that gets 1 for real, 0 for padded positions */
    } padding[4];
    int n_padding;
    int cut_axis[4]; /* outputs: axis that is cut back to the request's own length of `cut_from` axis; -1 ends */
    struct str cut_input[4];
};

struct config_queue_policy {
    bool delay; /* timeout_action DELAY */
    uint64_t default_timeout_us;
    bool allow_timeout_override;
    uint32_t max_queue_size;
};

struct config_warmup {
    struct str name;
    uint32_t batch_size, count; /* batch_size 0: not given: every size that the batcher is likely to form */
    struct config_warmup_input {
        struct str name, data_type;
        int64_t dims[MODEL_CONFIG_RANK_MAX];
        int n_dims;
        enum { WARMUP_ZERO, WARMUP_RANDOM, WARMUP_FILE } kind;
        struct str file; /* below <model>/warmup/ */
    } * inputs;
    size_t n_inputs;
};

struct config_pair {
    struct str key, value;
};

struct model_config {
    struct str name, platform, backend, default_model_filename;
    int64_t max_batch_size; /* -1: unset */
    struct config_io *inputs, *outputs;
    size_t n_inputs, n_outputs;

    enum { CONFIG_BATCHING_UNSET, CONFIG_BATCHING_NONE, CONFIG_BATCHING_FIXED, CONFIG_BATCHING_DEADLINE } batching;
    uint32_t preferred_batch_size[MODEL_CONFIG_LIST_MAX];
    uint32_t n_preferred;
    uint64_t max_queue_delay_us; /* UINT64_MAX: unset */
    bool preserve_ordering;
    uint32_t priority_levels, default_priority_level;
    struct config_queue_policy default_queue_policy;
    struct config_queue_policy priority_queue_policy[17]; /* by level */
    bool has_priority_queue_policy[17];

    uint32_t instances_min, instances_max; /* 0: unset. instance_group count sets both */
    enum { VERSION_POLICY_LATEST, VERSION_POLICY_ALL, VERSION_POLICY_SPECIFIC } version_policy;
    uint32_t latest_versions;
    struct str *specific_versions;
    size_t n_specific_versions;
    struct config_pair *labels; /* label -> version */
    size_t n_labels;

    struct config_warmup *warmup;
    size_t n_warmup;
    uint64_t default_deadline_ms; /* 0: unset */
    uint32_t max_queue_rows;      /* 0: unset */
    uint64_t max_queue_bytes;
    uint64_t response_cache_bytes; /* 0: off; response_cache { enable: true } gives 64 MiB */

    struct config_pair *parameters; /* engine options and everything else under `parameters` */
    size_t n_parameters;

    struct str *warnings; /* whole sentences */
    size_t n_warnings;
};

void model_config_init(struct model_config *c);

/* `where` names the file in messages ("resnet/model.yaml"). STATUS_INVALID: file, line, field, value and what is accepted. */
int model_config_from_yaml(struct str text, const char *where, struct arena *a, struct model_config *c,
                           struct error *err) MUST_CHECK;
/* Protobuf text format of Triton's ModelConfig, own parser over a table of its fields. */
int model_config_from_pbtxt(struct str text, const char *where, struct arena *a, struct model_config *c,
                            struct error *err) MUST_CHECK;
/* Triton's ModelConfig as JSON (load requests with an inline config). */
int model_config_from_json(struct str text, const char *where, struct arena *a, struct model_config *c,
                           struct error *err) MUST_CHECK;

/* Rules over several fields (the three readers have applied them already; for a config that model/ completed or merged): names
 * unique and present, preferred and warm-up sizes within max_batch_size, priority levels, padding. INVALID names the field. */
int model_config_validate(const struct model_config *c, const char *where, struct error *err) MUST_CHECK;

/* Append Triton's JSON form of ModelConfig, the answer of GET /v2/models/{m}/config. model_config_from_json reads it back (one
 * padded axis an input, one cut axis an output). `decoupled`: the model, as it turned out, may answer a request several times. out->failed when
 * memory ran out. */
void model_config_render_json(const struct model_config *c, bool decoupled, struct buf *out);

#endif
