/* peers.h: how many connections each client address has, and how fast it opens them, over all threads of a server.
 *
 * An IPv6 client counts as its /64: who has one address of it has them all. One lock, held for a lookup in a hash table of what is
 * connected now; nothing when neither limit is set. Any thread; the clock is passed in. */
#ifndef INFERD_NET_PEERS_H
#define INFERD_NET_PEERS_H

#include "net/address.h"

struct peers;

struct peers_limits {
    uint32_t max_connections; /* of an address at once; 0: none */
    uint32_t max_rate;        /* new ones a second, as many at once; 0: none */
};

enum peers_verdict { PEERS_OK, PEERS_TOO_MANY, PEERS_TOO_FAST };

/* NULL when out of memory. */
struct peers *peers_create(uint64_t seed);
void peers_destroy(struct peers *p); /* NULL is accepted */

/* OK counts the connection until peers_leave. Out of memory: let in, and counted nowhere: *counted is false. */
enum peers_verdict peers_enter(struct peers *p, const struct address *a, const struct peers_limits *l, uint64_t now_ns,
                               bool *counted);
void peers_leave(struct peers *p, const struct address *a);
/* Addresses known now. */
size_t peers_count(struct peers *p);

#endif
