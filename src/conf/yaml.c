/* yaml.c: libyaml's event stream into a tree.
 *
 * The stack holds the open containers; a scalar that arrives while the innermost one is a map and no key is pending is the
 * next key. libyaml's own document API is not used: it resolves aliases and has no bounds. */
#include "conf/yaml.h"

#include <yaml.h>

#include "base/status.h"

struct builder {
    struct node_source src;
    struct node *open[NODE_DEPTH_MAX]; /* innermost last */
    size_t depth;
    struct str key; /* pending key of the innermost map */
    int key_line;
    bool have_key;
    struct node *root;
    int documents;
};

static int fail(struct builder *b, int line, const char *what)
{
    return node_error(b->src.err, b->src.where, line, STATUS_INVALID, "%s", what);
}

/* Hang `n` into the innermost container, or make it the root. */
static int attach(struct builder *b, struct node *n)
{
    if (b->depth == 0) {
        b->root = n;
        return 0;
    }
    struct node *parent = b->open[b->depth - 1];
    if (parent->kind == NODE_MAP) {
        if (!b->have_key)
            return fail(b, n->line, "a key must be plain text, not a list or a map");
        n->key = b->key;
        n->line = n->kind == NODE_SCALAR ? n->line : b->key_line; /* a block begins below its key */
        b->have_key = false;
    }
    node_append(parent, n);
    return 0;
}

static int on_scalar(struct builder *b, const yaml_event_t *e, int line)
{
    struct node *parent = b->depth ? b->open[b->depth - 1] : NULL;
    struct node *n = node_new(&b->src, NODE_SCALAR, line);
    if (!n || !node_set_text(&b->src, n, (const char *)e->data.scalar.value, e->data.scalar.length))
        return b->src.err->code;
    n->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (parent && parent->kind == NODE_MAP && !b->have_key) {
        if (!n->text.n)
            return fail(b, line, "a key is empty");
        b->key = n->text;
        b->key_line = line;
        b->have_key = true;
        return 0;
    }
    return attach(b, n);
}

static int on_open(struct builder *b, enum node_kind kind, int line)
{
    if (b->depth == NODE_DEPTH_MAX)
        return node_error(b->src.err, b->src.where, line, STATUS_INVALID, "nested deeper than %d levels", NODE_DEPTH_MAX);
    struct node *n = node_new(&b->src, kind, line);
    if (!n)
        return b->src.err->code;
    int rc = attach(b, n);
    if (rc == 0)
        b->open[b->depth++] = n;
    return rc;
}

static int on_event(struct builder *b, const yaml_event_t *e)
{
    int line = (int)e->start_mark.line + 1;
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return fail(b, line, "aliases (*name) are not accepted; write the value out");
    case YAML_DOCUMENT_START_EVENT:
        return b->documents++ ? fail(b, line, "a second document (---) is not accepted") : 0;
    case YAML_SCALAR_EVENT:
        anchor = e->data.scalar.anchor, tag = e->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = e->data.sequence_start.anchor, tag = e->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = e->data.mapping_start.anchor, tag = e->data.mapping_start.tag;
        break;
    case YAML_MAPPING_END_EVENT:
        return node_check_duplicates(&b->src, b->open[--b->depth]);
    case YAML_SEQUENCE_END_EVENT:
        b->depth--;
        return 0;
    default:
        return 0;
    }
    if (anchor)
        return fail(b, line, "anchors (&name) are not accepted; write the value out");
    if (tag)
        return fail(b, line, "tags (!name) are not accepted");
    if (e->type == YAML_SCALAR_EVENT)
        return on_scalar(b, e, line);
    return on_open(b, e->type == YAML_MAPPING_START_EVENT ? NODE_MAP : NODE_LIST, line);
}

static int syntax_error(struct builder *b, const yaml_parser_t *p)
{
    if (p->error == YAML_MEMORY_ERROR)
        return node_error(b->src.err, b->src.where, 0, STATUS_NOMEM, "not enough memory to read the file");
    const char *what = p->problem ? p->problem : "not YAML";
    if (p->error == YAML_READER_ERROR)
        return node_error(b->src.err, b->src.where, 0, STATUS_INVALID, "not YAML at byte %zu: %s", p->problem_offset, what);
    return node_error(b->src.err, b->src.where, (int)p->problem_mark.line + 1, STATUS_INVALID, "not YAML: %s%s%s",
                      p->context ? p->context : "", p->context ? ", " : "", what);
}

static int pump(struct builder *b, yaml_parser_t *parser)
{
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return syntax_error(b, parser);
        int rc = on_event(b, &event);
        bool end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (rc < 0 || end)
            return rc;
    }
}

int yaml_parse(struct str text, const char *where, struct arena *a, struct node **root, struct error *err)
{
    struct error local = {0};
    struct builder b = {.src = {.where = where, .arena = a, .err = err ? err : &local}};
    yaml_parser_t parser;
    if (text.n > NODE_TEXT_MAX)
        return node_error(err, where, 0, STATUS_INVALID, "the file is larger than %u bytes", NODE_TEXT_MAX);
    if (!yaml_parser_initialize(&parser))
        return node_error(err, where, 0, STATUS_NOMEM, "not enough memory to read the file");
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)(text.n ? text.p : ""), text.n);
    int rc = pump(&b, &parser);
    yaml_parser_delete(&parser);
    if (rc == 0 && (!b.root || node_is_null(b.root)) && !(b.root = node_new(&b.src, NODE_MAP, 1)))
        rc = STATUS_NOMEM;
    *root = b.root;
    return rc;
}
