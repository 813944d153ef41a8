/* protobuf text format: no input may crash; every node of an accepted text has a line inside it. */
#include <stdint.h>
#include <stdlib.h>

#include "conf/pbtxt.h"

static void walk(const struct node *n, int lines, size_t depth)
{
    size_t children = 0;
    if (n->line < 1 || n->line > lines || depth > NODE_DEPTH_MAX + 1)
        abort();
    for (const struct node *c = n->first; c; c = c->next, children++)
        walk(c, lines, depth + 1);
    if (children != n->n || (n->kind == NODE_SCALAR && children))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct node *root;
    struct error err;
    int lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    arena_init(&a, 4096, 8 << 20);
    if (pbtxt_parse((struct str){(const char *)data, size}, "f", &a, &root, &err) == 0)
        walk(root, lines, 0);
    arena_release(&a);
    return 0;
}
