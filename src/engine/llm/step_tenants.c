/* step_tenants.c: open addressing over tenant ids; when full, the idle tenant with the smallest counter makes room (its counter is
 * lifted on return anyway). With every entry active, a newcomer shares one overflow entry: still bounded, only less fair. */
#include "engine/llm/step_tenants.h"

#include <stdlib.h>

#include "base/check.h"

struct tenant {
    uint64_t id, served;
    uint32_t active; /* sequences in the system */
};

struct step_tenants {
    struct tenant *v; /* [cap + 1]; the last one is the overflow entry */
    uint32_t cap, n;
};

struct step_tenants *step_tenants_create(uint32_t cap)
{
    struct step_tenants *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->cap = cap ? cap : 1;
    t->v = calloc((size_t)t->cap + 1, sizeof *t->v);
    if (!t->v) {
        free(t);
        return NULL;
    }
    return t;
}

void step_tenants_destroy(struct step_tenants *t)
{
    if (!t)
        return;
    free(t->v);
    free(t);
}

/* Entries are few (hundreds) and looked up once an admission, so a scan is enough. */
static struct tenant *find(const struct step_tenants *t, uint64_t id)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (t->v[i].id == id)
            return &t->v[i];
    return NULL;
}

static struct tenant *make_room(struct step_tenants *t)
{
    if (t->n < t->cap)
        return &t->v[t->n++];
    struct tenant *victim = NULL;
    for (uint32_t i = 0; i < t->n; i++)
        if (!t->v[i].active && (!victim || t->v[i].served < victim->served))
            victim = &t->v[i];
    return victim;
}

static uint64_t smallest_active(const struct step_tenants *t)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < t->n; i++)
        if (t->v[i].active && t->v[i].served < least)
            least = t->v[i].served;
    return least == UINT64_MAX ? 0 : least;
}

uint32_t step_tenants_enter(struct step_tenants *t, uint64_t tenant)
{
    struct tenant *e = find(t, tenant);
    uint64_t floor = smallest_active(t);
    if (!e) {
        e = make_room(t);
        if (e)
            *e = (struct tenant){.id = tenant, .served = floor};
        else
            e = &t->v[t->cap];
    } else if (!e->active && e->served < floor) {
        e->served = floor;
    }
    e->active++;
    return (uint32_t)(e - t->v);
}

void step_tenants_leave(struct step_tenants *t, uint32_t slot)
{
    ASSERT(slot <= t->cap && t->v[slot].active > 0);
    t->v[slot].active--;
}

void step_tenants_charge(struct step_tenants *t, uint32_t slot, uint64_t tokens)
{
    t->v[slot].served += tokens;
}

uint64_t step_tenants_served(const struct step_tenants *t, uint32_t slot)
{
    return t->v[slot].served;
}
