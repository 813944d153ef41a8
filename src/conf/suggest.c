/* suggest.c: nearest name by Damerau-Levenshtein distance (base/str.h). */
#include "conf/suggest.h"

#include <stdio.h>

void suggest_init(struct suggest *s, struct str got)
{
    *s = (struct suggest){.got = got, .distance = 255};
}

void suggest_offer(struct suggest *s, const char *name)
{
    struct str full = str_of(name);
    unsigned d = str_distance(s->got, full);
    size_t longer = full.n > s->got.n ? full.n - s->got.n : s->got.n - full.n;
    bool prefix = s->got.n >= 4 && (str_starts(full, s->got) || str_starts(s->got, full));
    if (prefix && 1 + longer / 4 < d)
        d = (unsigned)(1 + longer / 4); /* a word that was cut short or ran on */
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
