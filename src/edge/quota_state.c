/* quota_state.c: see quota_state.h. */
#include "edge/quota_state.h"

#include "base/sha256.h"
#include "base/status.h"

#define HEAD       "inferd-quota "
#define VERSION    "1"
#define TAIL       "sha256 "
#define HEX_DIGITS 64
#define TAIL_BYTES (sizeof TAIL - 1 + HEX_DIGITS + 1)

static void digest_of(struct str text, char hex[HEX_DIGITS + 1])
{
    static const char digits[] = "0123456789abcdef";
    struct sha256 s;
    uint8_t out[32];
    sha256_init(&s);
    sha256_add(&s, text.p, text.n);
    sha256_finish(&s, out);
    for (size_t i = 0; i < sizeof out; i++) {
        hex[2 * i] = digits[out[i] >> 4];
        hex[2 * i + 1] = digits[out[i] & 15];
    }
    hex[HEX_DIGITS] = 0;
}

void quota_state_begin(struct buf *out)
{
    buf_append_z(out, HEAD VERSION "\n");
}

void quota_state_end(struct buf *out)
{
    char hex[HEX_DIGITS + 1];
    digest_of(buf_str(out), hex);
    buf_append_z(out, TAIL);
    buf_append_z(out, hex);
    buf_append_c(out, '\n');
}

int quota_state_open(struct str file, struct str *lines, struct error *err)
{
    struct str rest = file, head;
    char hex[HEX_DIGITS + 1];
    if (!str_cut(&rest, '\n', &head) || !str_starts(head, STR(HEAD)))
        return error_set(err, STATUS_INVALID, "it does not begin with \"" HEAD VERSION "\"");
    if (!str_eqz(head, HEAD VERSION))
        return error_set(err, STATUS_INVALID, "it begins with \"%.*s\"; this inferd reads version " VERSION, STR_ARG(head));
    size_t n = file.n - head.n - 1;
    if (n < TAIL_BYTES || file.p[file.n - 1] != '\n')
        return error_set(err, STATUS_INVALID, "it ends before its checksum");
    struct str body = {file.p, file.n - TAIL_BYTES}, tail = {file.p + body.n, TAIL_BYTES - 1};
    digest_of(body, hex);
    if (!str_starts(tail, STR(TAIL)) || !str_eqz((struct str){tail.p + sizeof TAIL - 1, HEX_DIGITS}, hex))
        return error_set(err, STATUS_INVALID, "its checksum does not fit");
    *lines = (struct str){file.p + head.n + 1, n - TAIL_BYTES};
    return 0;
}
