/* log.h: structured log records.
 *
 * A record is a level, an event (a constant lower_snake word) and typed fields. Code is handed a `struct logger *` and
 * never knows where records go: obs/log_sink.h renders them as text or JSON. A NULL logger discards.
 *
 *     LOG(lg, LOG_INFO, "model_ready", LOG_S("model", name), LOG_U("load_ms", ms));
 *
 * LOG evaluates its fields only when the level is on. The sink must be callable from any thread and must not block on
 * anything slower than a write(2); values are borrowed for the call. Values are escaped by the sink, so nothing that a
 * client sends can forge a line. */
#ifndef INFERD_BASE_LOG_H
#define INFERD_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_OFF };

enum log_kind { LOG_KIND_END, LOG_KIND_STR, LOG_KIND_I64, LOG_KIND_U64, LOG_KIND_F64, LOG_KIND_BOOL };

struct log_field {
    const char *key;
    enum log_kind kind;
    union {
        struct str s;
        int64_t i;
        uint64_t u;
        double f;
        bool b;
    };
};

struct logger {
    _Atomic int level; /* records below it are not made; may be changed at run time */
    void (*write)(struct logger *lg, enum log_level level, const char *event, const struct log_field *fields);
};

#define LOG_S(k, z)                                                                                                            \
    {                                                                                                                          \
        .key = (k), .kind = LOG_KIND_STR, .s = str_of(z)                                                                       \
    }
#define LOG_STR(k, v)                                                                                                          \
    {                                                                                                                          \
        .key = (k), .kind = LOG_KIND_STR, .s = (v)                                                                             \
    }
#define LOG_I(k, v)                                                                                                            \
    {                                                                                                                          \
        .key = (k), .kind = LOG_KIND_I64, .i = (int64_t)(v)                                                                    \
    }
#define LOG_U(k, v)                                                                                                            \
    {                                                                                                                          \
        .key = (k), .kind = LOG_KIND_U64, .u = (uint64_t)(v)                                                                   \
    }
#define LOG_F(k, v)                                                                                                            \
    {                                                                                                                          \
        .key = (k), .kind = LOG_KIND_F64, .f = (double)(v)                                                                     \
    }
#define LOG_B(k, v)                                                                                                            \
    {                                                                                                                          \
        .key = (k), .kind = LOG_KIND_BOOL, .b = (v)                                                                            \
    }

static inline bool log_on(struct logger *lg, enum log_level level)
{
    return lg && (int)level >= lg->level;
}

#define LOG(lg, lvl, event, ...)                                                                                               \
    do {                                                                                                                       \
        struct logger *lg_ = (lg);                                                                                             \
        if (log_on(lg_, (lvl)))                                                                                                \
            lg_->write(lg_, (lvl), (event), (const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){.key = NULL}});              \
    } while (0)

/* "debug", "info", "warn", "error", "off". */
const char *log_level_name(enum log_level level);
/* Parses a name above; false when unknown. */
bool log_level_parse(struct str name, enum log_level *out);

#endif
