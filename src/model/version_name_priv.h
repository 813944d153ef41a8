/* version_name_priv.h: for siblings in model/ only: names of versions and their order.
 *
 * A version is an integer without leading zeros (Triton) or a semantic version MAJOR.MINOR.PATCH[-pre][+build] (semver.org 2.0.0).
 * Integers order as N.0.0. Pure; any thread. */
#ifndef INFERD_MODEL_VERSION_NAME_PRIV_H
#define INFERD_MODEL_VERSION_NAME_PRIV_H

#include <stdbool.h>

#include "base/str.h"

/* Is `s` one of the two forms, of at most 64 characters. */
bool version_name_valid(struct str s);
/* < 0, 0, > 0 by precedence; names of equal precedence (build metadata) order by their bytes. Both must be valid. */
int version_name_compare(struct str a, struct str b);

#endif
