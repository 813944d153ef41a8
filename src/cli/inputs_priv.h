/* inputs_priv.h: for cli/inputs*.c only. */
#ifndef INFERD_CLI_INPUTS_PRIV_H
#define INFERD_CLI_INPUTS_PRIV_H

#include <yyjson.h>

#include "cli/inputs.h"
#include "conf/suggest.h"

/* Is there a tensor of this name already? */
bool inputs__has(const struct inputs *in, struct str name);
/* NULL with NOT_FOUND and the nearest name. */
const struct kserve_io *inputs__find(const struct kserve_model *m, struct str name, struct error *err);
/* Take `t` over under the name of `io`; on error (a second one) it is released. */
int inputs__put(struct inputs *in, const struct kserve_io *io, struct tensor *t, struct error *err) MUST_CHECK;
void inputs__add_batch_axis(const struct kserve_io *io, struct shape *s);
int inputs__put_json(struct inputs *in, const struct kserve_io *io, yyjson_val *v, struct error *err) MUST_CHECK;

/* What a file holds, told by its first bytes; names decide only for .json. */
enum inputs_kind { INPUTS_RAW, INPUTS_NPY, INPUTS_IMAGE, INPUTS_SOUND, INPUTS_JSON };
enum inputs_kind inputs__kind(const char *path, struct str bytes);
/* `t` as `to`, element by element, in a new slab; numbers are rounded toward zero into whole ones and saturate. INVALID for BYTES. */
int inputs__cast(struct tensor *t, enum dtype to, struct error *err) MUST_CHECK;

#endif
