/* node.h: the tree that every configuration text becomes: YAML, protobuf text format and JSON alike.
 *
 * A node is a scalar, a list or a map. Scalars keep their text: what "8" or "true" means is for the table that reads it to
 * say. Nodes and their texts live in the arena of the parser and are immutable afterwards. Each knows its line, so that
 * every complaint can name it. The bounds below hold for all three parsers: a configuration is written by people, and a file
 * past them is a mistake or an attack. One thread. */
#ifndef INFERD_CONF_NODE_H
#define INFERD_CONF_NODE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

#define NODE_DEPTH_MAX 32
#define NODE_COUNT_MAX 20000
#define NODE_TEXT_MAX  (4u << 20) /* bytes of one file */

enum node_kind { NODE_SCALAR, NODE_LIST, NODE_MAP };

struct node {
    enum node_kind kind;
    int line;                         /* 1-based; 0: unknown (JSON) */
    bool quoted;                      /* scalar: written in quotes, so it is a string whatever it looks like */
    bool repeated;                    /* list: made from a pbtxt field that was given several times */
    struct str key;                   /* in a map: its name; else empty */
    struct str text;                  /* scalar: after unescaping; NUL-terminated */
    struct node *first, *last, *next; /* children; sibling */
    size_t n;                         /* children */
};

/* What the three parsers share. `count` bounds the nodes of one text. */
struct node_source {
    const char *where; /* file in messages */
    struct arena *arena;
    struct error *err;
    size_t count;
};

/* A new node, zeroed but for these; NULL after NODE_COUNT_MAX nodes or without memory (err set). */
struct node *node_new(struct node_source *s, enum node_kind kind, int line);
/* Copy `n` bytes as the scalar's text; false without memory (err set). */
bool node_set_text(struct node_source *s, struct node *scalar, const char *p, size_t n);
void node_append(struct node *parent, struct node *child);

/* The child called `key`, or NULL. `map` may be NULL or no map (then NULL). */
struct node *node_get(const struct node *map, const char *key);
/* An unquoted empty scalar, "~" or "null". */
bool node_is_null(const struct node *n);
/* Two children of the same name are an error that names both lines. */
int node_check_duplicates(struct node_source *s, const struct node *map) MUST_CHECK;

/* error_set with "where:line: " in front ("where: " when line is 0). */
int node_error(struct error *err, const char *where, int line, int code, const char *fmt, ...) PRINTF_LIKE(5, 6);

/* JSON (RFC 8259) into the same tree, by yyjson; numbers keep their text. STATUS_INVALID names the byte offset. */
int json_tree_parse(struct str text, const char *where, struct arena *a, struct node **root, struct error *err) MUST_CHECK;

#endif
