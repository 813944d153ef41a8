/* pbtxt.h: protobuf text format into the configuration tree, without a schema.
 *
 * Grammar: protobuf's "Text Format Language Specification": `name: value`, `name { ... }`, `name < ... >`, lists in [ ],
 * separators , and ; and # comments, adjacent strings joined, every escape of the specification, decimal, octal and hex
 * integers, floats. Without a schema a field given several times becomes one list (flag `repeated`); the reader that knows the
 * schema refuses it for singular fields. Integers are handed on in decimal, floats without their 'f'. Extension names and
 * Any ([...]) are refused. Bounds: conf/node.h. */
#ifndef INFERD_CONF_PBTXT_H
#define INFERD_CONF_PBTXT_H

#include "conf/node.h"

/* *root is a map, perhaps empty. Lives in `a`. STATUS_INVALID: "where:line: what"; STATUS_NOMEM. */
int pbtxt_parse(struct str text, const char *where, struct arena *a, struct node **root, struct error *err) MUST_CHECK;

#endif
