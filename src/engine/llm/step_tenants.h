/* step_tenants.h: for step.c only: how much each tenant has been served, in a table of fixed size.
 *
 * The counter of a tenant that had nothing queued is lifted to the smallest active one when it returns, so idling saves up nothing.
 * One thread. */
#ifndef INFERD_ENGINE_LLM_STEP_TENANTS_H
#define INFERD_ENGINE_LLM_STEP_TENANTS_H

#include <stdbool.h>
#include <stdint.h>

struct step_tenants;

struct step_tenants *step_tenants_create(uint32_t cap); /* NULL: out of memory */
void step_tenants_destroy(struct step_tenants *t);
/* One more sequence of `tenant` is in the system. Returns the slot that the other calls take; it is stable until as many leaves. */
uint32_t step_tenants_enter(struct step_tenants *t, uint64_t tenant);
/* One sequence fewer. */
void step_tenants_leave(struct step_tenants *t, uint32_t slot);
/* `tokens` were computed for it. */
void step_tenants_charge(struct step_tenants *t, uint32_t slot, uint64_t tokens);
/* Tokens computed so far, lifted as said above. */
uint64_t step_tenants_served(const struct step_tenants *t, uint32_t slot);

#endif
