/* suggest.h: "did you mean": the nearest of a set of names, fed one at a time. Pure. */
#ifndef INFERD_CONF_SUGGEST_H
#define INFERD_CONF_SUGGEST_H

#include "base/str.h"

struct suggest {
    struct str got;
    const char *best;
    unsigned distance;
};

void suggest_init(struct suggest *s, struct str got);
/* Names must outlive `s`. */
void suggest_offer(struct suggest *s, const char *name);
/* "; did you mean 'x'?" into `text`, or "" when nothing offered is near (a third of the length, at most 4 edits). Returns
 * text. */
const char *suggest_text(const struct suggest *s, char *text, size_t cap);

#endif
