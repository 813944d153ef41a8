/* file.h: for the tests of tensor/: a data file as one exactly sized block, so that a sanitizer sees reads past its end. */
#ifndef TEST_TENSOR_FILE_H
#define TEST_TENSOR_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

static inline struct slice test_file(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, TEST_DATA "/tensor/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is missing", path);
    fseek(f, 0, SEEK_END);
    size_t n = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = malloc(n ? n : 1);
    if (fread(p, 1, n, f) != n)
        fail_msg("%s can't be read", path);
    fclose(f);
    return slice_borrow(p, n);
}

static inline void test_file_free(struct slice s)
{
    free((void *)s.p);
}

#endif
