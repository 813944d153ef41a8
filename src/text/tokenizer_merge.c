/* tokenizer_merge.c: the merger of tokenizer_merge.h, on a binary heap of fixed room: every merge removes one entry and adds at most two,
 * so 3n entries are enough. */
#include "text/tokenizer_merge.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"

int merger_init(struct merger *m, const struct tokenizer *t, struct str text, uint32_t n, struct error *err)
{
    size_t sym, heap;
    *m = (struct merger){.t = t, .text = text};
    if (size_mul(n ? n : 1, sizeof *m->sym, &sym) && size_mul((size_t)n * 3 + 1, sizeof *m->heap, &heap)) {
        m->sym = malloc(sym);
        m->heap = malloc(heap);
    }
    if (m->sym && m->heap)
        return 0;
    merger_release(m);
    return error_set(err, STATUS_NOMEM, "out of memory while tokenising");
}

void merger_release(struct merger *m)
{
    free(m->sym);
    free(m->heap);
    m->sym = NULL;
    m->heap = NULL;
}

static bool better(const struct candidate *a, const struct candidate *b)
{
    return a->key != b->key ? a->key < b->key : a->left < b->left;
}

static void push(struct merger *m, struct candidate c)
{
    size_t i = m->n_heap++;
    for (; i > 0 && better(&c, &m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = c;
}

static struct candidate pop(struct merger *m)
{
    struct candidate top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t kid; (kid = 2 * i + 1) < m->n_heap; i = kid) {
        if (kid + 1 < m->n_heap && better(&m->heap[kid + 1], &m->heap[kid]))
            kid++;
        if (!better(&m->heap[kid], &last))
            break;
        m->heap[i] = m->heap[kid];
    }
    m->heap[i] = last;
    return top;
}

static void consider(struct merger *m, uint32_t left)
{
    if (left == UINT32_MAX || m->sym[left].next == UINT32_MAX)
        return;
    const struct symbol *l = &m->sym[left], *r = &m->sym[l->next];
    struct candidate c = {.left = left, .n = l->n + r->n};
    if (m->pair(m, l, r, &c.key, &c.id))
        push(m, c);
}

void merger_run(struct merger *m)
{
    for (uint32_t i = 0; i + 1 < m->n_sym; i++)
        consider(m, i);
    while (m->n_heap) {
        struct candidate c = pop(m);
        struct symbol *l = &m->sym[c.left];
        if (!l->n || l->next == UINT32_MAX || l->n + m->sym[l->next].n != c.n)
            continue; /* stale: one of the two has grown or died */
        struct symbol *r = &m->sym[l->next];
        l->id = c.id;
        l->n = c.n;
        l->next = r->next;
        if (r->next != UINT32_MAX)
            m->sym[r->next].prev = c.left;
        r->n = 0;
        consider(m, l->prev);
        consider(m, c.left);
    }
}
