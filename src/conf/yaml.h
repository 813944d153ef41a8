/* yaml.h: YAML 1.1 by libyaml into the configuration tree.
 *
 * A subset on purpose: one document, string keys, no anchors, aliases, merge keys or tags (a configuration needs none of
 * them, and without aliases nothing can multiply), a key twice in a map is an error. Bounds: conf/node.h. */
#ifndef INFERD_CONF_YAML_H
#define INFERD_CONF_YAML_H

#include "conf/node.h"

/* *root is a map, a list or a scalar; an empty map for an empty document. Lives in `a`. STATUS_INVALID: "where:line: what";
 * STATUS_NOMEM. */
int yaml_parse(struct str text, const char *where, struct arena *a, struct node **root, struct error *err) MUST_CHECK;

#endif
