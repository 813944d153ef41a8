/* table.h: text tables for terminals: columns as wide as their widest cell, numbers to the right. Main thread. */
#ifndef INFERD_CLI_TABLE_H
#define INFERD_CLI_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/str.h"

#define TABLE_COLUMNS_MAX 16

struct table {
    const char *titles[TABLE_COLUMNS_MAX]; /* a title that begins with '>' is of a column of numbers */
    size_t n_columns;
    struct table_row {
        const char *cells[TABLE_COLUMNS_MAX];
        struct table_row *next;
    } * first, *last;
    size_t filled; /* cells of the last row */
    struct arena arena;
    bool failed;
};

/* `titles`: NULL-terminated, constants. */
void table_init(struct table *t, const char *const *titles);
void table_release(struct table *t);
/* The next cell; a row ends when it is full. Control characters become '?', so that a server can't steer the terminal. */
void table_cell(struct table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Print with the titles in bold where that works. The number of rows. */
size_t table_print(const struct table *t, FILE *f);

/* "1.23 ms", "456 us", "12.3 s" of nanoseconds; "1.20 MiB" of bytes. Return text. */
const char *table_time(double ns, char *text, size_t cap);
const char *table_bytes(double bytes, char *text, size_t cap);

#endif
