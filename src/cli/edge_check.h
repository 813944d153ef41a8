/* edge_check.h: the edge's part of the configuration: its options for net and edge, and `inferd check`'s look at its files. Main thread. */
#ifndef INFERD_CLI_EDGE_CHECK_H
#define INFERD_CLI_EDGE_CHECK_H

#include "base/log.h"
#include "conf/config.h"
#include "net/address.h"

#define CLI_PROXIES_MAX 64 /* as the option's row says */

struct tls_options;

/* Everything but metrics and log, which are left NULL. Strings are borrowed from `c`. */
void cli_tls_options(const struct config *c, struct tls_options *out);
/* Networks of proxy.trusted into proxies[proxy.trusted.n]; checks cors.origins. INVALID names option and value. */
int cli_client_rules(const struct config *c, struct network *proxies, struct error *err) MUST_CHECK;
/* Read every file that the edge is configured with. Blocks on the disk. */
int cli_edge_check(const struct config *c, struct logger *log, struct error *err) MUST_CHECK;

#endif
