/* PROXY headers: no input may crash, the reader is never told to read past the header's end, and what is taken is an address. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "net/proxy_header.h"

static void check(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proxy_header h;
    size_t have = 0, want = 12;
    int rc = STATUS_AGAIN;
    while (rc == STATUS_AGAIN && have + want <= size) {
        have += want;
        check(have <= PROXY_HEADER_MAX);
        rc = proxy_header_parse((const char *)data, have, &want, &h);
        check(rc == 0 || rc == STATUS_INVALID || (rc == STATUS_AGAIN && want > 0));
    }
    if (rc == 0 && have > 12 && data[0] == 'P')
        check(memcmp(data + have - 2, "\r\n", 2) == 0); /* not a byte further */
    struct address a, b;
    char text[ADDRESS_TEXT_BYTES];
    if (address_parse((struct str){(const char *)data, size}, &a)) /* what is read is written so that it reads the same */
        check(address_parse(str_of(address_text(&a, text)), &b) && memcmp(&a, &b, sizeof a) == 0);
    return 0;
}
