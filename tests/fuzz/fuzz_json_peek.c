/* Bodies as a router reads them: no input may crash, any cut gives the same as the whole, and what is pointed at lies in the body. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "wire/json_peek.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static int feed(struct json_peek *p, const char *text, size_t n, size_t cut)
{
    struct error err;
    json_peek_init(p);
    int rc = json_peek_feed(p, text, cut, &err);
    return rc ? rc : json_peek_feed(p, text + cut, n - cut, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_peek whole, parts;
    if (size < 1 || size > 4096)
        return 0;
    const char *text = (const char *)data + 1;
    size_t n = size - 1, cut = n ? data[0] % (n + 1) : 0;
    int a = feed(&whole, text, n, n), b = feed(&parts, text, n, cut);
    check(a == b);
    if (a)
        return 0;
    check(whole.done == parts.done && whole.has_model == parts.has_model && strcmp(whole.model, parts.model) == 0 &&
          whole.max_tokens == parts.max_tokens && whole.prompt_at == parts.prompt_at && whole.prompt_n == parts.prompt_n);
    check(whole.prompt_at + whole.prompt_n <= n && whole.model_at + whole.model_raw_n <= n);
    if (whole.has_model)
        check(text[whole.model_at] == '"' && text[whole.model_at + whole.model_raw_n - 1] == '"');
    return 0;
}
