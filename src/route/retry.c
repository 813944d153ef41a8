/* retry.c: the retry budget. */
#include "route/retry.h"

#include "base/check.h"
#include "base/size.h"

void retry_budget_init(struct retry_budget *b, double share, uint32_t least)
{
    *b = (struct retry_budget){.share = share > 0 ? share : 0.2, .least = least ? least : 3};
}

void retry_request_begin(struct retry_budget *b)
{
    b->active++;
}

void retry_request_end(struct retry_budget *b)
{
    ASSERT(b->active);
    b->active--;
}

bool retry_begin(struct retry_budget *b)
{
    if (b->running >= MAX_OF((double)b->least, b->share * b->active)) {
        b->refused++;
        return false;
    }
    b->running++;
    return true;
}

void retry_end(struct retry_budget *b)
{
    ASSERT(b->running);
    b->running--;
}
