/* normal_charsmap.c: SentencePiece's precompiled normaliser.
 *
 *   u32 LE bytes of the trie | trie: u32 LE units | texts, each ended by a zero byte
 *
 * The trie is a Darts double array (Aoe 1989; darts-clone): a unit holds an offset (bits 10 up, times 256 where bit 9 is set), a label (bits 0-7
 * and 31), and whether a leaf follows (bit 8); a leaf holds the place of the replacement in the texts. The longest key that the text begins with is
 * replaced. The file is not trusted: every index is checked where it is used, so that nothing needs to be walked at load. */
#include <string.h>

#include "base/status.h"
#include "text/normal_priv.h"
#include "text/unicode.h"

#define KEY_MAX  256  /* bytes that are looked at; the longest keys in use have about 20 */
#define TEXT_MAX 1024 /* of a replacement; the longest in use has 33 */

struct charsmap {
    const unsigned char *units;
    size_t n_units;
    struct str texts;
};

static uint32_t load_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static bool open_map(struct str map, struct charsmap *m)
{
    if (map.n < 4)
        return false;
    size_t bytes = load_u32((const unsigned char *)map.p);
    if (bytes % 4 || bytes > map.n - 4)
        return false;
    *m = (struct charsmap){(const unsigned char *)map.p + 4, bytes / 4, {map.p + 4 + bytes, map.n - 4 - bytes}};
    return true;
}

int normal__charsmap_check(struct str map, struct error *err)
{
    struct charsmap m;
    if (!open_map(map, &m) || m.n_units == 0)
        return error_set(err, STATUS_INVALID, "tokenizer: precompiled_charsmap: the trie's length does not fit the %zu bytes",
                         map.n);
    if (!m.texts.n || m.texts.p[m.texts.n - 1] != 0)
        return error_set(err, STATUS_INVALID, "tokenizer: precompiled_charsmap: the texts do not end with a zero byte");
    for (size_t i = 0, n; i < m.texts.n; i += n + 1) {
        n = strlen(m.texts.p + i);
        if (n > TEXT_MAX)
            return error_set(err, STATUS_INVALID, "tokenizer: precompiled_charsmap: a text has %zu bytes; accepted: up to %d",
                             n, TEXT_MAX);
    }
    return 0;
}

static bool unit_at(const struct charsmap *m, size_t i, uint32_t *out)
{
    if (i >= m->n_units)
        return false;
    *out = load_u32(m->units + 4 * i);
    return true;
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* Length of the longest key that `text` begins with, 0 for none; *value: its replacement's place. */
static size_t longest_key(const struct charsmap *m, struct str text, uint32_t *value)
{
    uint32_t unit, leaf;
    size_t at = 0, longest = 0;
    if (!unit_at(m, 0, &unit))
        return 0;
    at ^= offset_of(unit);
    for (size_t i = 0; i < text.n && i < KEY_MAX; i++) {
        unsigned char c = (unsigned char)text.p[i];
        at ^= c;
        if (!unit_at(m, at, &unit) || (unit & (1u << 31 | 0xff)) != c)
            break;
        at ^= offset_of(unit);
        if (!(unit & 1u << 8))
            continue;
        if (!unit_at(m, at, &leaf))
            break;
        *value = leaf & 0x7fffffff;
        longest = i + 1;
    }
    return longest;
}

void normal__charsmap(struct str map, struct str text, struct buf *out)
{
    struct charsmap m;
    if (!open_map(map, &m))
        return;
    for (size_t i = 0; i < text.n;) {
        uint32_t value = 0;
        int32_t cp;
        struct str rest = {text.p + i, text.n - i};
        size_t n = longest_key(&m, rest, &value);
        if (n && value < m.texts.n) {
            buf_append_z(out, m.texts.p + value); /* the last byte is zero */
            i += n;
            continue;
        }
        n = unicode_next(rest.p, rest.n, &cp);
        if (cp < 0)
            buf_append_z(out, "\xef\xbf\xbd");
        else
            buf_append(out, rest.p, n);
        i += n;
    }
}
