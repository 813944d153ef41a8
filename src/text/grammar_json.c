/* grammar_json.c: the parts of JSON text that every schema uses, and "any JSON" itself. Numbers have bounded digits and exponents, so that a model
 * can't write digits for ever and a reader doesn't get infinity. */
#include "base/size.h"
#include "base/status.h"
#include "text/grammar_priv.h"

#define WS_SPACES_MAX 20
#define WS_TABS_MAX   8

static uint32_t digit(struct gbuild *b, uint32_t from, char lo)
{
    uint32_t to = gb_node(b);
    gb_byte(b, from, (uint8_t)lo, '9', to);
    return to;
}

/* Up to n digits; returns the node behind them. */
static uint32_t digits(struct gbuild *b, uint32_t from, unsigned n)
{
    uint32_t end = gb_node(b);
    for (unsigned i = 0; i < n; i++) {
        gb_eps(b, from, end);
        from = digit(b, from, '0');
    }
    gb_eps(b, from, end);
    return end;
}

static void draw_ws(struct gbuild *b, uint32_t from, uint32_t to)
{
    gb_eps(b, from, to);
    gb_byte(b, from, ' ', ' ', to);
    uint32_t line = gb_node(b), at = line;
    gb_byte(b, from, '\n', '\n', line);
    gb_eps(b, line, to);
    for (int i = 0; i < WS_SPACES_MAX + WS_TABS_MAX; i++) {
        uint32_t next = gb_node(b);
        char c = i < WS_SPACES_MAX ? ' ' : '\t';
        gb_byte(b, i == WS_SPACES_MAX ? line : at, (uint8_t)c, (uint8_t)c, next);
        gb_eps(b, next, to);
        at = next;
    }
}

static uint32_t hex(struct gbuild *b, uint32_t from, const char *ranges, uint32_t to)
{
    for (const char *p = ranges; *p; p += 2)
        gb_byte(b, from, (uint8_t)p[0], (uint8_t)p[1], to);
    return to;
}

/* \uXXXX of a character, or of a pair of surrogates. */
static void draw_unicode_escape(struct gbuild *b, uint32_t from, uint32_t to)
{
    static const char all[] = "09AFaf", not_d[] = "09ACEFacef";
    uint32_t two = gb_node(b), d = gb_node(b), three = gb_node(b), four = gb_node(b);
    hex(b, from, not_d, two);
    hex(b, two, all, three);
    hex(b, three, all, four);
    hex(b, four, all, to);
    hex(b, from, "DDdd", d);
    hex(b, d, "07", three);
    uint32_t at = hex(b, d, "89ABab", gb_node(b)), low = gb_node(b);
    at = hex(b, hex(b, at, all, gb_node(b)), all, gb_node(b));
    at = gb_z(b, at, "\\u");
    at = hex(b, at, "DDdd", gb_node(b));
    hex(b, at, "CFcf", low);
    at = hex(b, low, all, gb_node(b));
    hex(b, at, all, to);
}

static void draw_char(struct gbuild *b, uint32_t from, uint32_t to)
{
    struct grange plain[] = {{0x20, '!'}, {'#', '['}, {']', G_CODE_MAX}};
    struct gset set = {plain, COUNT_OF(plain), COUNT_OF(plain)};
    bool json = b->json;
    uint32_t escape = gb_node(b), unicode = gb_node(b);
    b->json = false;
    gb_set(b, from, &set, to);
    b->json = json;
    gb_byte(b, from, '\\', '\\', escape);
    for (const char *p = "\"\\/bfnrt"; *p; p++)
        gb_byte(b, escape, (uint8_t)*p, (uint8_t)*p, to);
    gb_byte(b, escape, 'u', 'u', unicode);
    draw_unicode_escape(b, unicode, to);
}

static void draw_string(struct gjson *j, uint32_t from, uint32_t to)
{
    uint32_t in = gb_node(j->b);
    gb_byte(j->b, from, '"', '"', in);
    draw_char(j->b, in, in);
    gb_byte(j->b, in, '"', '"', to);
}

static uint32_t put_integer(struct gbuild *b, uint32_t from)
{
    uint32_t sign = gb_node(b), end = gb_node(b);
    gb_byte(b, from, '-', '-', sign);
    gb_eps(b, from, sign);
    gb_byte(b, sign, '0', '0', end);
    gb_eps(b, digits(b, digit(b, sign, '1'), 17), end);
    return end;
}

static void draw_number(struct gbuild *b, uint32_t from, uint32_t to)
{
    uint32_t whole = put_integer(b, from), e = gb_node(b), sign = gb_node(b);
    uint32_t point = gb_z(b, whole, ".");
    uint32_t fraction = digits(b, digit(b, point, '0'), 19);
    gb_eps(b, whole, to);
    gb_eps(b, fraction, to);
    hex(b, whole, "eeEE", e);
    hex(b, fraction, "eeEE", e);
    hex(b, e, "++--", sign);
    gb_eps(b, e, sign);
    gb_eps(b, digits(b, digit(b, sign, '0'), 1), to);
}

void gjson_list(struct gjson *j, uint32_t from, uint32_t item, uint32_t min, uint32_t max, uint32_t to)
{
    struct gbuild *b = j->b;
    uint32_t open = gb_z(b, from, "["), inside = gjson_put(j, open, GJSON_WS), last = gb_node(b), behind = gb_node(b);
    if (min == 0)
        gb_eps(b, inside, behind);
    if (max > 0) {
        uint32_t more = gb_rule(b, (struct str){0});
        uint32_t comma = b->rc == 0 ? gjson_put(j, gb_z(b, b->rules[more].start, ","), GJSON_WS) : 0;
        if (b->rc == 0)
            gb_call(b, comma, item, b->rules[more].end);
        uint32_t first = gb_node(b);
        gb_call(b, inside, item, first);
        gb_repeat(b, first, more, min > 1 ? min - 1 : 0, max == G_UNBOUNDED ? G_UNBOUNDED : max - 1, last);
        gb_eps(b, gjson_put(j, last, GJSON_WS), behind);
    }
    gb_byte(b, behind, ']', ']', to);
}

static void draw_object(struct gjson *j, uint32_t from, uint32_t to)
{
    struct gbuild *b = j->b;
    uint32_t open = gjson_put(j, gb_z(b, from, "{"), GJSON_WS), member = gb_node(b), behind = gb_node(b), end = gb_node(b);
    gb_eps(b, open, end);
    gb_eps(b, open, member);
    uint32_t colon = gjson_put(j, gb_z(b, gjson_put(j, member, GJSON_STRING), ":"), GJSON_WS);
    gb_call(b, colon, gjson_rule(j, GJSON_VALUE), behind);
    gb_eps(b, gjson_put(j, gb_z(b, behind, ","), GJSON_WS), member);
    gb_eps(b, gjson_put(j, behind, GJSON_WS), end);
    gb_byte(b, end, '}', '}', to);
}

static void draw_value(struct gjson *j, uint32_t from, uint32_t to)
{
    static const enum gjson_part parts[] = {GJSON_STRING, GJSON_NUMBER, GJSON_LITERAL_BOOL, GJSON_OBJECT, GJSON_ARRAY};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        gb_call(j->b, from, gjson_rule(j, parts[i]), to);
    gb_eps(j->b, gb_z(j->b, from, "null"), to);
}

static void draw_part(struct gjson *j, enum gjson_part part, uint32_t from, uint32_t to)
{
    struct gbuild *b = j->b;
    switch (part) {
    case GJSON_WS:
        draw_ws(b, from, to);
        break;
    case GJSON_CHAR:
        draw_char(b, from, to);
        break;
    case GJSON_STRING:
        draw_string(j, from, to);
        break;
    case GJSON_INTEGER:
        gb_eps(b, put_integer(b, from), to);
        break;
    case GJSON_NUMBER:
        draw_number(b, from, to);
        break;
    case GJSON_LITERAL_BOOL:
        gb_eps(b, gb_z(b, from, "true"), to);
        gb_eps(b, gb_z(b, from, "false"), to);
        break;
    case GJSON_VALUE:
        draw_value(j, from, to);
        break;
    case GJSON_OBJECT:
        draw_object(j, from, to);
        break;
    default:
        gjson_list(j, from, gjson_rule(j, GJSON_VALUE), 0, G_UNBOUNDED, to);
    }
}

uint32_t gjson_rule(struct gjson *j, enum gjson_part part)
{
    if (!j->made[part]) {
        j->made[part] = true; /* before it is drawn: values hold objects hold values */
        j->rule[part] = gb_rule(j->b, (struct str){0});
        struct grule r = j->b->rc == 0 ? j->b->rules[j->rule[part]] : (struct grule){0};
        draw_part(j, part, r.start, r.end);
    }
    return j->rule[part];
}

uint32_t gjson_put(struct gjson *j, uint32_t from, enum gjson_part part)
{
    uint32_t to = gb_node(j->b);
    gb_call(j->b, from, gjson_rule(j, part), to);
    return to;
}

uint32_t gjson_put_str(struct gjson *j, uint32_t from, struct str s)
{
    struct gbuild *b = j->b;
    struct gread r = {s, 0};
    uint32_t code;
    bool json = b->json;
    from = gb_z(b, from, "\"");
    b->json = true;
    while (b->rc == 0 && gr_code(&r, &code))
        from = gb_code(b, from, code);
    b->json = json;
    return gb_z(b, from, "\"");
}

uint32_t grammar__json(struct gbuild *b, struct str source)
{
    struct gjson j = {.b = b};
    if (source.n == 0 || str_eqz(source, "object"))
        return gjson_rule(&j, GJSON_OBJECT);
    if (str_eqz(source, "value"))
        return gjson_rule(&j, GJSON_VALUE);
    gb_fail(b, STATUS_INVALID, "the JSON grammar is '%.*s'; accepted: object (the default) or value", STR_ARG(source));
    return 0;
}
