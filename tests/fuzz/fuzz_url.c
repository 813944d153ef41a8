/* Request targets: no input may crash, and what is accepted keeps the promises of wire/url.h. */
#include <stdint.h>
#include <stdlib.h>

#include "base/status.h"
#include "wire/url.h"

static void check(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = {(const char *)data, size}, segs[16], v;
    struct url_target t;
    struct error err;
    struct arena a;
    size_t n;
    arena_init(&a, 512, 1 << 20);
    if (url_parse_target(in, &t, &err) == 0) {
        check(t.path.n > 0 && (t.path.p[0] == '/' || str_eqz(t.path, "*")));
        check(!t.authority.p || url_is_authority(t.authority));
        if (url_split_path(&a, t.path, segs, 16, &n, &err) == 0)
            for (size_t i = 0; i < n; i++)
                check(!(segs[i].n && memchr(segs[i].p, 0, segs[i].n)) && !str_eqz(segs[i], ".."));
        if (url_query_get(&a, t.query, "a", &v, &err) == 0)
            check(v.n <= t.query.n);
    }
    if (url_decode(&a, in, true, &v, &err) == 0)
        check(v.n <= in.n);
    arena_release(&a);
    return 0;
}
