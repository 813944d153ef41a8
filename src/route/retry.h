/* retry.h: how many retries and hedges may run at once, so that failing upstreams are not beaten to death: Envoy's retry budget, a share
 * of the requests that are active, at least a few. Hedges count in the same budget. Embedded in its owner and guarded by the owner's lock. */
#ifndef INFERD_ROUTE_RETRY_H
#define INFERD_ROUTE_RETRY_H

#include <stdbool.h>
#include <stdint.h>

struct retry_budget {
    double share;   /* of active requests [0.2] */
    uint32_t least; /* at once, whatever is active [3] */
    uint32_t active, running;
    uint64_t refused; /* retries that were not made for want of budget */
};

void retry_budget_init(struct retry_budget *b, double share, uint32_t least);
/* A request, with all its tries, begins and ends. */
void retry_request_begin(struct retry_budget *b);
void retry_request_end(struct retry_budget *b);
/* May a try beside or after the first begin? True: it counts until retry_end. */
bool retry_begin(struct retry_budget *b);
void retry_end(struct retry_budget *b);

#endif
