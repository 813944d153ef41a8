/* suggest.c: nearest name by Damerau-Levenshtein distance (base/str.h). */
#include "conf/suggest.h"

#include <stdio.h>

void suggest_init(struct suggest *s, struct str got)
{
    *s = (struct suggest){.got = got, .distance = 255};
}

void suggest_offer(struct suggest *s, const char *name)
{
    unsigned d = str_distance(s->got, str_of(name));
    if (d < s->distance) {
        s->distance = d;
        s->best = name;
    }
}

const char *suggest_text(const struct suggest *s, char *text, size_t cap)
{
    size_t near = s->got.n / 3 + 1;
    near = near > 4 ? 4 : near;
    if (s->best && s->distance <= near)
        snprintf(text, cap, "; did you mean '%s'?", s->best);
    else
        snprintf(text, cap, "%s", "");
    return text;
}
