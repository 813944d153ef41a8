/* table.c: rows are kept until printed, since the width of a column is known only then. */
#include "cli/table.h"

#include <string.h>

#include "cli/cli.h"

void table_init(struct table *t, const char *const *titles)
{
    *t = (struct table){0};
    arena_init(&t->arena, 4096, 0);
    while (titles[t->n_columns] && t->n_columns < TABLE_COLUMNS_MAX) {
        t->titles[t->n_columns] = titles[t->n_columns];
        t->n_columns++;
    }
    t->filled = t->n_columns;
}

void table_release(struct table *t)
{
    arena_release(&t->arena);
}

static bool add_row(struct table *t)
{
    struct table_row *r = ARENA_NEW(&t->arena, struct table_row);
    if (!r)
        return false;
    if (t->last)
        t->last->next = r;
    else
        t->first = r;
    t->last = r;
    t->filled = 0;
    return true;
}

void table_cell(struct table *t, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    if (t->filled == t->n_columns && !add_row(t)) {
        t->failed = true;
        return;
    }
    const char *copy = arena_strdup(&t->arena, str_of(text));
    t->failed = t->failed || !copy;
    t->last->cells[t->filled++] = copy ? copy : "";
}

/* Columns that UTF-8 text takes: continuation bytes take none. */
static int width(const char *z)
{
    int n = 0;
    for (; z && *z; z++)
        n += ((unsigned char)*z & 0xc0) != 0x80;
    return n;
}

static const char *title(const struct table *t, size_t i)
{
    return t->titles[i] + (t->titles[i][0] == '>');
}

static void print_cell(const struct table *t, size_t i, const char *z, int wide, FILE *f)
{
    bool last = i + 1 == t->n_columns, right = t->titles[i][0] == '>';
    z = z ? z : "";
    int pad = wide - width(z);
    fprintf(f, "%*s%s%*s", right ? pad : 0, "", z, right || last ? 0 : pad, "");
    fputs(last ? "\n" : "  ", f);
}

size_t table_print(const struct table *t, FILE *f)
{
    struct cli_style style = cli_style(f);
    int wide[TABLE_COLUMNS_MAX];
    size_t rows = 0;
    for (size_t i = 0; i < t->n_columns; i++) {
        wide[i] = width(title(t, i));
        for (const struct table_row *r = t->first; r; r = r->next)
            wide[i] = width(r->cells[i]) > wide[i] ? width(r->cells[i]) : wide[i];
    }
    fputs(style.bold, f);
    for (size_t i = 0; i < t->n_columns; i++)
        print_cell(t, i, title(t, i), wide[i], f);
    fputs(style.off, f);
    for (const struct table_row *r = t->first; r; r = r->next, rows++)
        for (size_t i = 0; i < t->n_columns; i++)
            print_cell(t, i, r->cells[i], wide[i], f);
    return rows;
}

static const char *scaled(double v, const char *const *units, size_t n, double step, char *text, size_t cap)
{
    size_t i = 0;
    while (i + 1 < n && v >= step)
        v /= step, i++;
    snprintf(text, cap, "%.*f %s", i == 0 || v >= 100 ? 0 : v >= 10 ? 1 : 2, v, units[i]);
    return text;
}

const char *table_time(double ns, char *text, size_t cap)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return scaled(ns, units, 4, 1000, text, cap);
}

const char *table_bytes(double bytes, char *text, size_t cap)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return scaled(bytes, units, 5, 1024, text, cap);
}
