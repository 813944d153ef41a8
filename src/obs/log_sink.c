/* log_sink.c: limits and the one write behind log_sink.h. Rendering happens before the lock is taken; under it only the rate table is
 * looked at and the line written. */
#include "obs/log_sink.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/size.h"
#include "base/status.h"
#include "obs/log_sink_priv.h"
#include "os/clock.h"
#include "os/sink.h"
#include "os/thread.h"

#define PATIENCE_NS 20000000u
#define RATE_SLOTS  64

/* How often one event came in the current second. Events are constants, so their address names them; two events that share a slot
 * reset each other's count, which only lets more through. */
struct rate {
    const char *event;
    uint64_t second;
    uint64_t seen;
};

struct log_sink {
    struct logger logger;
    struct os_mutex lock; /* RANK_LOG: everything below but `dropped` */
    struct os_sink out;
    enum log_format format;
    bool colour;
    bool stalled; /* the last write found no room: don't wait again */
    uint32_t max_per_second;
    struct rate rates[RATE_SLOTS];
    uint64_t told; /* drops already reported by log_dropped */
    _Atomic uint64_t dropped;
};

static void drop(struct log_sink *s)
{
    atomic_fetch_add_explicit(&s->dropped, 1, memory_order_relaxed);
}

uint64_t log_sink_dropped(const struct log_sink *s)
{
    return atomic_load_explicit(&s->dropped, memory_order_relaxed);
}

static void render(const struct log_sink *s, struct buf *line, uint64_t now, enum log_level level, const char *event,
                   const struct log_field *fields)
{
    if (s->format == LOG_FORMAT_JSON)
        log__render_json(line, now, level, event, fields);
    else
        log__render_text(line, now, s->colour, level, event, fields);
}

/* Lock held. */
static bool emit(struct log_sink *s, struct buf *line)
{
    uint64_t until = s->stalled ? 0 : os_monotonic_ns() + PATIENCE_NS;
    int rc = line->failed ? STATUS_NOMEM : os_sink_write(&s->out, line->p, line->n, until);
    s->stalled = rc == STATUS_AGAIN;
    return rc == 0;
}

/* A record about the log itself. Lock held. */
static bool emit_own(struct log_sink *s, uint64_t now, const char *event, const struct log_field *fields)
{
    struct buf line = {0};
    render(s, &line, now, LOG_WARN, event, fields);
    bool ok = emit(s, &line);
    buf_release(&line);
    return ok;
}

/* Whether the event is within its rate; tells about what the last second held back. Lock held. */
static bool within_rate(struct log_sink *s, uint64_t now, const char *event)
{
    struct rate *r = &s->rates[((uintptr_t)event >> 3) % RATE_SLOTS];
    uint64_t second = now / 1000000000u;
    if (!s->max_per_second)
        return true;
    if (r->event != event || r->second != second) {
        uint64_t held = r->seen > s->max_per_second ? r->seen - s->max_per_second : 0;
        const char *last = r->event;
        *r = (struct rate){event, second, 0};
        if (held)
            emit_own(s, now, "log_suppressed",
                     (const struct log_field[]){LOG_S("of", last), LOG_U("records", held), {.key = NULL}});
    }
    return ++r->seen <= s->max_per_second;
}

static void write_record(struct logger *lg, enum log_level level, const char *event, const struct log_field *fields)
{
    struct log_sink *s = CONTAINER_OF(lg, struct log_sink, logger);
    struct buf line = {0};
    uint64_t now = os_wall_ns();
    if (level >= LOG_OFF)
        return;
    render(s, &line, now, level, event, fields);
    os_mutex_lock(&s->lock);
    if (within_rate(s, now, event)) {
        uint64_t lost = log_sink_dropped(s);
        if (lost != s->told &&
            emit_own(s, now, "log_dropped", (const struct log_field[]){LOG_U("records", lost - s->told), {.key = NULL}}))
            s->told = lost;
        if (!emit(s, &line))
            drop(s);
    }
    os_mutex_unlock(&s->lock);
    buf_release(&line);
}

int log_sink_create(const struct log_sink_options *o, struct log_sink **out, struct error *err)
{
    struct log_sink *s = calloc(1, sizeof *s);
    if (!s)
        return error_set(err, STATUS_NOMEM, "no memory for the log");
    int rc = os_sink_open(o->path ? o->path : "stderr", &s->out, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    os_mutex_init(&s->lock, RANK_LOG);
    s->format = o->format;
    s->max_per_second = o->max_per_second;
    const char *no_colour = getenv("NO_COLOR");
    bool automatic = s->out.terminal && !(no_colour && *no_colour);
    s->colour = o->colour == LOG_COLOUR_ALWAYS || (o->colour == LOG_COLOUR_AUTO && automatic);
    s->logger.level = (int)o->level;
    s->logger.write = write_record;
    *out = s;
    return 0;
}

void log_sink_destroy(struct log_sink *s)
{
    if (!s)
        return;
    os_sink_close(&s->out);
    os_mutex_release(&s->lock);
    free(s);
}

struct logger *log_sink_logger(struct log_sink *s)
{
    return &s->logger;
}
int log_sink_reopen(struct log_sink *s, struct error *err)
{
    return os_sink_reopen(&s->out, err);
}
