/* control.h: for api's own files: loading and unloading models, whichever protocol asks. */
#ifndef INFERD_API_CONTROL_H
#define INFERD_API_CONTROL_H

#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

struct api;
struct http_request;

/* Begin to load (with `config`, JSON text, unless empty) or unload. `outcome` (NULL: nobody waits) answers the request when the work is done
 * or has failed: on the request's loop, once, also when the client has left. Negative: nothing began and `outcome` won't be called;
 * errors as registry_load's. Names are copied. I/O thread. */
int api__control(struct api *a, struct http_request *r, bool load, struct str model, struct str config,
                 void (*outcome)(struct http_request *r, int status, const char *text), struct error *err) MUST_CHECK;
/* Is `name` a parameter of these requests? INVALID says why not. */
int api__control_param(struct str name, struct error *err) MUST_CHECK;

#endif
