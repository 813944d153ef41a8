/* JSON reading: no input may crash; whatever parses is not deeper than the limit. */
#include <stdint.h>
#include <stdlib.h>

#include "wire/json.h"

static uint32_t depth(yyjson_val *v, uint32_t at)
{
    uint32_t deepest = at + (yyjson_is_ctn(v) ? 1 : 0), d;
    size_t i, n;
    yyjson_val *k, *e;
    if (yyjson_is_arr(v)) {
        yyjson_arr_foreach(v, i, n, e) if ((d = depth(e, at + 1)) > deepest) deepest = d;
    } else {
        yyjson_obj_foreach(v, i, n, k, e) if ((d = depth(e, at + 1)) > deepest) deepest = d;
    }
    return deepest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json j;
    struct error err;
    struct json_limits limits = {.max_depth = 20};
    struct str text = {(const char *)data, size}, s;
    uint64_t u;
    int64_t i;
    double f;
    bool b;
    yyjson_val *v;
    if (json_parse(&j, text, &limits, &err) != 0)
        return 0;
    if (depth(j.root, 0) > 20 || depth(j.root, 0) != json_scan_depth(text, 1000))
        abort();
    int rc = json_get_str(j.root, "a", JSON_REQUIRED, &s, NULL, &err);
    rc |= json_get_u64(j.root, "a", JSON_OPTIONAL, 1, 100, &u, NULL, &err);
    rc |= json_get_i64(j.root, "a", JSON_OPTIONAL, -5, 5, &i, NULL, &err);
    rc |= json_get_f64(j.root, "a", JSON_OPTIONAL, 0, 1, &f, NULL, &err);
    rc |= json_get_bool(j.root, "a", JSON_OPTIONAL, &b, NULL, &err);
    rc |= json_get_obj(j.root, "a", JSON_OPTIONAL, &v, NULL, &err);
    (void)rc;
    json_release(&j);
    return 0;
}
