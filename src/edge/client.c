/* client.c: see client.h. */
#include "edge/client.h"

#include <string.h>

/* The last comma-separated item of *rest, which is cut off. */
static bool cut_last(struct str *rest, struct str *item)
{
    if (!rest->p)
        return false;
    size_t at = rest->n;
    while (at > 0 && rest->p[at - 1] != ',')
        at--;
    *item = str_trim((struct str){rest->p + at, rest->n - at});
    *rest = at > 0 ? (struct str){rest->p, at - 1} : (struct str){0};
    return true;
}

bool client_address(const struct network *trusted, size_t n_trusted, const struct address *peer, const struct str *values,
                    size_t n_values, struct address *out)
{
    bool any = false;
    if (!networks_have(trusted, n_trusted, peer))
        return false;
    for (size_t i = n_values; i > 0; i--) {
        struct str rest = values[i - 1], item;
        while (cut_last(&rest, &item)) {
            struct address a;
            if (!address_parse_port(item, &a))
                return any; /* "unknown", or made up: the nearest proxy that we could name */
            *out = a;
            any = true;
            if (!networks_have(trusted, n_trusted, &a))
                return true;
        }
    }
    return any;
}

static bool entry_allows(struct str entry, struct str origin)
{
    const char *star = memchr(entry.p, '*', entry.n);
    if (str_eq(entry, STR("*")))
        return true;
    if (!star)
        return str_eq(entry, origin);
    struct str front = {entry.p, (size_t)(star - entry.p)}, back = {star + 1, entry.n - (size_t)(star - entry.p) - 1};
    if (origin.n <= front.n + back.n || !str_starts(origin, front) || !str_ends(origin, back))
        return false;
    struct str name = {origin.p + front.n, origin.n - front.n - back.n};
    for (size_t i = 0; i < name.n; i++) /* labels of a name, nothing that could end it */
        if (!((name.p[i] >= 'a' && name.p[i] <= 'z') || (name.p[i] >= '0' && name.p[i] <= '9') || name.p[i] == '-' ||
              name.p[i] == '.'))
            return false;
    return true;
}

bool cors_allows(const char *const *origins, size_t n, struct str origin)
{
    for (size_t i = 0; i < n; i++)
        if (entry_allows(str_of(origins[i]), origin))
            return true;
    return false;
}

bool cors_origin_valid(struct str e)
{
    if (str_eq(e, STR("*")))
        return true;
    size_t front = str_starts(e, STR("https://")) ? 8 : str_starts(e, STR("http://")) ? 7 : 0;
    if (!front || e.n == front || e.n > 300)
        return false;
    size_t stars = 0;
    for (size_t i = front; i < e.n; i++) {
        char c = e.p[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == ':' || c == '[' || c == ']';
        if (c == '*') {
            stars++;
            ok = i == front && i + 1 < e.n && e.p[i + 1] == '.';
        }
        if (!ok)
            return false;
    }
    return stars <= 1;
}
