/* endpoint_slice.h: the servers of a pool from a file of their own, which others write: a list as under `servers:`, or Kubernetes'
 * EndpointSlice (discovery.k8s.io/v1), alone or in a List, as `kubectl get endpointslices -o yaml` prints them. Pure. */
#ifndef INFERD_CONF_ENDPOINT_SLICE_H
#define INFERD_CONF_ENDPOINT_SLICE_H

#include "conf/gateway_config.h"

/* YAML or JSON. `port`: the name of the slices' port to take; "": their first. Endpoints that are not ready are left out. Lives in `arena`; the
 * list may be empty. INVALID names file, line and what is accepted; NOMEM. */
int endpoint_file_read(struct str text, const char *where, const char *port, struct arena *arena, struct gateway_server **out,
                       size_t *n, struct error *err) MUST_CHECK;

#endif
