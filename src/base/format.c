/* format.c: one pass over the format: what lies between conversions and numbers go through snprintf, text through the escapes. */
#include "base/format.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/str.h"

#define SPEC_BYTES  32   /* "%-20.10llu" */
#define WHOLE_BELOW 1e15 /* smaller numbers are shown without an exponent */

/* `n` counts on when `out` is full; from the first piece that has no room nothing more is written. */
struct writer {
    char *out;
    size_t cap, n;
    bool full;
};

static void put(struct writer *w, const char *p, size_t n)
{
    w->full = w->full || n >= w->cap - w->n;
    if (!w->full)
        memcpy(w->out + w->n, p, n);
    w->n += n;
    if (!w->full)
        w->out[w->n] = 0;
}

/* One character of `s`, or its escape; returns the bytes of `s` that it is. */
static size_t character(struct str s, size_t at, char shown[8], size_t *n)
{
    unsigned char c = (unsigned char)s.p[at];
    size_t len = str_utf8_at(s, at);
    bool control = c < 0x20 || c == 0x7f || (len == 2 && c == 0xc2 && (unsigned char)s.p[at + 1] < 0xa0);
    if (len && !control) {
        memcpy(shown, s.p + at, len);
        *n = len;
        return len;
    }
    const char *known = c ? strchr("\nn\rr\tt", c) : NULL;
    if (known)
        *n = (size_t)snprintf(shown, 8, "\\%c", known[1]);
    else if (len == 2) /* a C1 control character */
        *n = (size_t)snprintf(shown, 8, "\\x%02x", (unsigned char)s.p[at + 1]);
    else
        *n = (size_t)snprintf(shown, 8, "\\x%02x", c);
    return len ? len : 1;
}

static void put_text(struct writer *w, struct str s, size_t echo_max)
{
    size_t shown_bytes = 0;
    for (size_t at = 0; at < s.n;) {
        char shown[8];
        size_t n, took = character(s, at, shown, &n);
        if (n > echo_max - MIN_OF(shown_bytes, echo_max)) {
            put(w, "...", 3);
            return;
        }
        put(w, shown, n);
        shown_bytes += n;
        at += took;
    }
}

const char *format_number(double v, char out[FORMAT_NUMBER_BYTES])
{
    bool narrow = isfinite(v) && fabs(v) <= (double)FLT_MAX && (double)(float)v == v;
    int digits = 0;
    do
        snprintf(out, FORMAT_NUMBER_BYTES, "%.*g", ++digits, v);
    while (isfinite(v) && digits < 17 && !(narrow ? strtof(out, NULL) == (float)v : strtod(out, NULL) == v));
    if (isfinite(v) && fabs(v) >= 10 && fabs(v) < WHOLE_BELOW) /* 100, not 1e+02 */
        snprintf(out, FORMAT_NUMBER_BYTES, "%.*g", MAX_OF(digits, (int)log10(fabs(v)) + 1), v);
    return out;
}

/* A conversion, read: spec is it without its '*', which have been filled in. */
struct spec {
    char text[SPEC_BYTES];
    int precision; /* -1: none */
    bool starred;  /* precision was an argument */
    char length;   /* 'l', 'q' (ll), 'z', 'j', 't', 'h' (also hh), 0 */
    char conversion;
};

static const char *read_number(const char *at, va_list *ap, int *out, bool *starred)
{
    if (*at == '*') {
        *out = va_arg(*ap, int);
        *starred = true;
        return at + 1;
    }
    for (*out = 0; *at >= '0' && *at <= '9'; at++)
        *out = *out < 1000 ? *out * 10 + (*at - '0') : *out;
    return at;
}

/* `at` is behind the '%'; returns what is behind the conversion. */
static const char *read_spec(const char *at, va_list *ap, struct spec *s)
{
    char flags[6];
    int width = 0, n_flags = (int)strspn(at, "-+ #0");
    bool ignored = false;
    *s = (struct spec){.precision = -1};
    snprintf(flags, sizeof flags, "%.*s", n_flags, at);
    at = read_number(at + n_flags, ap, &width, &ignored);
    if (*at == '.')
        at = read_number(at + 1, ap, &s->precision, &s->starred);
    const char *length = at;
    at += strspn(at, "hlzjtqL");
    s->length = at == length ? 0 : at - length == 2 && *length == 'l' ? 'q' : *length;
    s->conversion = *at;
    int n = snprintf(s->text, sizeof s->text, "%%%s", flags);
    if (width)
        n += snprintf(s->text + n, sizeof s->text - (size_t)n, "%d", width);
    if (s->precision >= 0)
        n += snprintf(s->text + n, sizeof s->text - (size_t)n, ".%d", s->precision);
    snprintf(s->text + n, sizeof s->text - (size_t)n, "%.*s%c", (int)(at - length), length, *at);
    return *at ? at + 1 : at;
}

/* Exception: these two formats are made above, from one that the compiler has checked. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"

static int print_whole(char *out, size_t cap, const struct spec *s, va_list *ap)
{
    switch (s->length) {
    case 'q':
        return snprintf(out, cap, s->text, va_arg(*ap, long long));
    case 'l':
        return snprintf(out, cap, s->text, va_arg(*ap, long));
    case 'z':
    case 't':
        return snprintf(out, cap, s->text, va_arg(*ap, size_t));
    case 'j':
        return snprintf(out, cap, s->text, va_arg(*ap, intmax_t));
    default:
        return snprintf(out, cap, s->text, va_arg(*ap, int));
    }
}

static void put_number(struct writer *w, const struct spec *s, va_list *ap)
{
    char shown[512]; /* of a %f, 309 digits before the point */
    int n = 0;
    if (strchr("diuxXoc", s->conversion))
        n = print_whole(shown, sizeof shown, s, ap);
    else if (s->conversion == 'p')
        n = snprintf(shown, sizeof shown, s->text, va_arg(*ap, void *));
    else if (strcmp(s->text, "%g") == 0)
        n = (int)strlen(format_number(va_arg(*ap, double), shown));
    else
        n = snprintf(shown, sizeof shown, s->text, va_arg(*ap, double));
    put_text(w, (struct str){shown, MIN_OF((size_t)MAX_OF(n, 0), sizeof shown - 1)},
             SIZE_MAX); /* a %c may be a control character */
}

#pragma GCC diagnostic pop

size_t format_text(char *out, size_t cap, size_t echo_max, const char *fmt, va_list given)
{
    struct writer w = {.out = out, .cap = cap};
    va_list ap; /* a copy: a va_list that is a parameter may be an array, whose address is no va_list * */
    va_copy(ap, given);
    out[0] = 0;
    while (*fmt) {
        size_t plain = strcspn(fmt, "%");
        put_text(&w, (struct str){fmt, plain}, SIZE_MAX);
        fmt += plain;
        if (!*fmt)
            break;
        struct spec s;
        fmt = read_spec(fmt + 1, &ap, &s);
        if (s.conversion == '%') {
            put(&w, "%", 1);
        } else if (s.conversion == 's') {
            const char *text = va_arg(ap, const char *);
            size_t n = s.starred          ? (size_t)MAX_OF(s.precision, 0)
                       : s.precision >= 0 ? strnlen(text, (size_t)s.precision)
                                          : strlen(text);
            put_text(&w, (struct str){text, n}, s.starred ? echo_max : SIZE_MAX);
        } else {
            put_number(&w, &s, &ap);
        }
    }
    va_end(ap);
    return w.n;
}
