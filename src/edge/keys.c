/* keys.c: see keys.h. */
#include "edge/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/sha256.h"
#include "base/size.h"
#include "base/status.h"
#include "wire/json.h"

#define PREFIX      "inferd_"
#define SECRET_AT   (sizeof PREFIX - 1 + KEY_ID_BYTES + 1)
#define KEY_CHARS   (KEY_TEXT_BYTES - 1)
#define DAY_SECONDS 86400u

static_assert(SECRET_AT + 64 == KEY_CHARS, "the key's text");

/* --- times --- */

/* Days since 1970-01-01 of a date in the proleptic Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date
 * algorithms"): years begin in March, so that the leap day is the last one. */
static int64_t days_of(int64_t y, int64_t m, int64_t d)
{
    y -= m <= 2;
    int64_t era = y / 400, yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static bool digits(const char *p, size_t n, int64_t *out)
{
    uint64_t v;
    if (!str_to_u64((struct str){p, n}, &v))
        return false;
    *out = (int64_t)v;
    return true;
}

static int64_t days_in_month(int64_t y, int64_t m)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    return days[m - 1] + (leap && m == 2);
}

bool key_time_parse(struct str t, uint64_t *seconds)
{
    int64_t y, mo, d, h = 0, mi = 0, s = 0;
    if (t.n != 10 && t.n != 20)
        return false;
    if (!digits(t.p, 4, &y) || !digits(t.p + 5, 2, &mo) || !digits(t.p + 8, 2, &d) || t.p[4] != '-' || t.p[7] != '-')
        return false;
    if (t.n == 20 && (!digits(t.p + 11, 2, &h) || !digits(t.p + 14, 2, &mi) || !digits(t.p + 17, 2, &s) || t.p[10] != 'T' ||
                      t.p[13] != ':' || t.p[16] != ':' || t.p[19] != 'Z'))
        return false;
    if (y < 1970 || mo < 1 || mo > 12 || d < 1 || d > days_in_month(y, mo) || h > 23 || mi > 59 || s > 59)
        return false;
    *seconds = (uint64_t)(days_of(y, mo, d) * DAY_SECONDS + h * 3600 + mi * 60 + s);
    return true;
}

void key_time_render(uint64_t seconds, char out[24])
{
    uint64_t days = MIN_OF(seconds / DAY_SECONDS, (uint64_t)2932896), rest = seconds % DAY_SECONDS; /* 9999-12-31 */
    uint64_t z = days + 719468, era = z / 146097, doe = z - era * 146097;
    uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    uint64_t mp = (5 * doy + 2) / 153, d = doy - (153 * mp + 2) / 5 + 1, m = mp < 10 ? mp + 3 : mp - 9;
    snprintf(out, 24, "%04u-%02u-%02uT%02u:%02u:%02uZ", (unsigned)(yoe + era * 400 + (m <= 2)) % 10000, (unsigned)m % 100,
             (unsigned)d % 100, (unsigned)(rest / 3600), (unsigned)(rest / 60 % 60), (unsigned)(rest % 60));
}

/* --- hex and hash --- */

static void to_hex(const uint8_t *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = "0123456789abcdef"[p[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[p[i] & 15];
    }
    out[2 * n] = 0;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool from_hex(struct str s, uint8_t *out, size_t n)
{
    if (s.n != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        int hi = hex_digit(s.p[2 * i]), lo = hex_digit(s.p[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}

static void hash_key(const uint8_t salt[16], struct str key, uint8_t out[32])
{
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, salt, 16);
    sha256_add(&h, key.p, key.n);
    sha256_finish(&h, out);
}

/* Takes the same time wherever the two differ. */
static bool same_hash(const uint8_t a[32], const uint8_t b[32])
{
    volatile uint64_t diff = 0; /* each word is folded in, whatever the ones before it came to */
    for (size_t i = 0; i < 32; i += 8) {
        uint64_t x, y;
        memcpy(&x, a + i, 8);
        memcpy(&y, b + i, 8);
        diff |= x ^ y;
    }
    return diff == 0;
}

/* --- reading the file --- */

struct reader {
    struct key_table *t;
    const char *where;
    size_t line, certificate_bytes;
    struct error *err;
};

static int bad(struct reader *r, const char *field, struct str value, const char *accepted)
{
    return error_set(r->err, STATUS_INVALID, "%s:%zu: %s: \"%.*s\" is not accepted; give %s", r->where, r->line, field,
                     STR_ARG(value), accepted);
}

static bool certificate_valid(struct str c)
{
    bool known = str_starts(c, STR("DNS:")) || str_starts(c, STR("URI:")) || str_starts(c, STR("email:"));
    for (size_t i = 0; i < c.n; i++)
        if (c.p[i] <= ' ' || c.p[i] > '~')
            return false;
    return known && c.n <= 512;
}

/* The fields that a spec shares with a line. */
static int check_spec(struct reader *r, const struct key_spec *s)
{
    if (!edge_label_valid(s->who.name))
        return bad(r, "name", s->who.name, "1 to 64 characters of A-Z a-z 0-9 . _ - @ : /");
    if (s->who.tenant.n && !edge_label_valid(s->who.tenant))
        return bad(r, "tenant", s->who.tenant, "1 to 64 characters of A-Z a-z 0-9 . _ - @ : /");
    if (s->who.quota.n && !edge_label_valid(s->who.quota))
        return bad(r, "class", s->who.quota, "1 to 64 characters of A-Z a-z 0-9 . _ - @ : /");
    if (s->who.models.n && !edge_pattern_valid(s->who.models))
        return bad(r, "models", s->who.models, "model names with * and ?, separated by commas");
    if (s->certificate.n && !certificate_valid(s->certificate))
        return bad(r, "certificate", s->certificate, "DNS:name, URI:name or email:name of a subject alternative name");
    return 0;
}

static int read_time(struct reader *r, yyjson_val *o, const char *field, uint64_t *out)
{
    struct str text = {0};
    int rc = json_get_str(o, field, JSON_OPTIONAL, &text, NULL, r->err);
    if (rc == 0 && text.n && !key_time_parse(text, out))
        return bad(r, field, text, "a time as 2027-01-31T12:00:00Z");
    return rc;
}

static int read_fields(struct reader *r, yyjson_val *o, struct key_spec *s, struct key_entry *e)
{
    struct str scopes, salt = {0}, hash = {0};
    const struct {
        const char *key;
        struct str *out;
        enum json_need need;
    } texts[] = {{"id", &s->who.id, JSON_REQUIRED},
                 {"name", &s->who.name, JSON_REQUIRED},
                 {"tenant", &s->who.tenant, JSON_OPTIONAL},
                 {"models", &s->who.models, JSON_OPTIONAL},
                 {"class", &s->who.quota, JSON_OPTIONAL},
                 {"certificate", &s->certificate, JSON_OPTIONAL},
                 {"salt", &salt, JSON_OPTIONAL},
                 {"hash", &hash, JSON_OPTIONAL},
                 {"scopes", &scopes, JSON_REQUIRED}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < COUNT_OF(texts); i++)
        rc = json_get_str(o, texts[i].key, texts[i].need, texts[i].out, NULL, r->err);
    if (rc == 0)
        rc = edge_scopes_parse(scopes, &s->who.scopes, r->err);
    if (rc < 0)
        return error_prefix(r->err, "%s:%zu", r->where, r->line);
    rc = read_time(r, o, "expires", &s->who.expires_s);
    if (rc == 0)
        rc = read_time(r, o, "created", &s->created_s);
    if (rc < 0)
        return rc;
    uint8_t id[KEY_ID_BYTES / 2];
    if (!from_hex(s->who.id, id, sizeof id))
        return bad(r, "id", s->who.id, "16 hex digits");
    if (s->certificate.n)
        return check_spec(r, s);
    if (!from_hex(salt, e->salt, sizeof e->salt))
        return bad(r, "salt", salt, "32 hex digits");
    if (!from_hex(hash, e->hash, sizeof e->hash))
        return bad(r, "hash", hash, "64 hex digits");
    return check_spec(r, s);
}

static int no_memory(struct error *err)
{
    return error_set(err, STATUS_NOMEM, "out of memory for the API keys");
}

static int add_entry(struct reader *r, const struct key_spec *s, struct key_entry *e)
{
    struct key_table *t = r->t;
    e->line = r->line;
    e->created_s = s->created_s;
    e->identity = edge_identity_create(&s->who);
    if (!e->identity)
        return no_memory(r->err);
    struct str id = str_of(e->identity->id);
    const struct key_entry *other = map_get(&t->by_id, id);
    t->entries[t->n++] = *e;
    e = &t->entries[t->n - 1];
    if (other)
        return error_set(r->err, STATUS_INVALID,
                         "%s:%zu: id: \"%s\" is that of line %zu, too; make keys with `inferd keys make`", r->where, r->line,
                         e->identity->id, other->line);
    if (map_put(&t->by_id, id, e) < 0)
        return no_memory(r->err);
    if (!s->certificate.n)
        return 0;
    char *copy = t->certificates + r->certificate_bytes;
    memcpy(copy, s->certificate.p, s->certificate.n);
    copy[s->certificate.n] = 0;
    r->certificate_bytes += s->certificate.n + 1;
    e->certificate = copy;
    if (map_get(&t->by_certificate, str_of(copy)))
        return bad(r, "certificate", s->certificate, "each certificate once");
    return map_put(&t->by_certificate, str_of(copy), e) < 0 ? no_memory(r->err) : 0;
}

static int read_line(struct reader *r, struct str line)
{
    static const char *const known[] = {"id",   "name", "tenant", "models",  "class",  "certificate",
                                        "salt", "hash", "scopes", "expires", "created"};
    const struct json_limits limits = {.max_bytes = KEY_LINE_MAX, .max_depth = 2};
    struct key_entry e = {0};
    struct key_spec s = {.who.kind = EDGE_KEY};
    struct json j;
    int rc = json_parse(&j, line, &limits, r->err);
    if (rc < 0)
        return error_prefix(r->err, "%s:%zu", r->where, r->line);
    size_t i, n;
    yyjson_val *key, *value;
    yyjson_obj_foreach(j.root, i, n, key, value)
    {
        size_t k = 0;
        while (k < COUNT_OF(known) && !str_eqz(json_str(key), known[k]))
            k++;
        if (rc == 0 && k == COUNT_OF(known))
            rc = error_set(r->err, STATUS_INVALID, "%s:%zu: unknown field \"%.*s\"", r->where, r->line, STR_ARG(json_str(key)));
    }
    if (rc == 0)
        rc = read_fields(r, j.root, &s, &e);
    if (s.certificate.n)
        s.who.kind = EDGE_CERTIFICATE;
    if (rc == 0)
        rc = add_entry(r, &s, &e);
    json_release(&j);
    return rc;
}

int key_table_parse(struct str text, const char *where, uint64_t map_seed, struct key_table *out, struct error *err)
{
    struct reader r = {.t = out, .where = where, .err = err};
    struct str rest = text, line;
    size_t lines = 1;
    for (size_t i = 0; i < text.n; i++)
        lines += text.p[i] == '\n';
    *out = (struct key_table){.entries = calloc(lines, sizeof *out->entries), .certificates = malloc(text.n + 1)};
    map_init(&out->by_id, map_seed);
    map_init(&out->by_certificate, map_seed);
    int rc = out->entries && out->certificates ? 0 : no_memory(err);
    while (rc == 0 && str_cut(&rest, '\n', &line)) {
        r.line++;
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        line = str_trim(line);
        if (line.n && line.p[0] != '#')
            rc = read_line(&r, line);
    }
    if (rc < 0)
        key_table_release(out);
    return rc;
}

void key_table_release(struct key_table *t)
{
    for (size_t i = 0; i < t->n; i++)
        edge_identity_unref(t->entries[i].identity);
    map_release(&t->by_id);
    map_release(&t->by_certificate);
    free(t->entries);
    free(t->certificates);
    *t = (struct key_table){0};
}

/* --- looking up --- */

const struct key_entry *key_table_check(const struct key_table *t, struct str presented)
{
    static const struct key_entry nobody;
    uint8_t hash[32];
    if (presented.n != KEY_CHARS || !str_starts(presented, STR(PREFIX)) || presented.p[SECRET_AT - 1] != '_')
        return NULL;
    const struct key_entry *e = map_get(&t->by_id, (struct str){presented.p + sizeof PREFIX - 1, KEY_ID_BYTES});
    bool is_key = e && !e->certificate;
    if (!is_key)
        e = &nobody; /* as much work for an id that is not there */
    hash_key(e->salt, presented, hash);
    bool same = same_hash(hash, e->hash);
    return same && is_key ? e : NULL;
}

const struct key_entry *key_table_certificate(const struct key_table *t, struct str name)
{
    return map_get(&t->by_certificate, name);
}

/* --- making --- */

static void field(struct buf *out, const char *key, struct str value)
{
    if (!value.n)
        return;
    buf_printf(out, ",\"%s\":", key);
    buf_append_json_str(out, value);
}

int key_make(const struct key_spec *s, const uint8_t random[KEY_RANDOM_BYTES], struct buf *line, char key[KEY_TEXT_BYTES],
             char id[KEY_ID_BYTES + 1], struct error *err)
{
    struct reader r = {.where = "new key", .line = 1, .err = err};
    char salt[33], hash[65], time[24], secret[65];
    uint8_t digest[32];
    int rc = check_spec(&r, s);
    if (rc < 0)
        return rc;
    to_hex(random, KEY_ID_BYTES / 2, id);
    to_hex(random + 8, 32, secret);
    to_hex(random + 40, 16, salt);
    snprintf(key, KEY_TEXT_BYTES, PREFIX "%s_%s", id, secret);
    hash_key(random + 40, str_of(key), digest);
    to_hex(digest, 32, hash);
    buf_append_z(line, "{\"id\":");
    buf_append_json_str(line, str_of(id));
    field(line, "name", s->who.name);
    field(line, "tenant", s->who.tenant);
    buf_append_z(line, ",\"scopes\":\"");
    edge_scopes_render(s->who.scopes, line);
    buf_append_c(line, '"');
    field(line, "models", s->who.models);
    field(line, "class", s->who.quota);
    key_time_render(s->created_s, time);
    field(line, "created", str_of(time));
    key_time_render(s->who.expires_s, time);
    field(line, "expires", s->who.expires_s ? str_of(time) : STR(""));
    field(line, "certificate", s->certificate);
    field(line, "salt", s->certificate.n ? STR("") : str_of(salt));
    field(line, "hash", s->certificate.n ? STR("") : str_of(hash));
    buf_append_z(line, "}\n");
    if (s->certificate.n)
        key[0] = 0;
    return line->failed ? no_memory(err) : 0;
}
