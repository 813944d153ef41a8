/* dns.c: a resolver state for each question, since the state belongs to one thread. */
#include "os/dns.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/size.h"
#include "base/status.h"

#define ANSWER_BYTES 16384
#define TRY_S        1
#define TRIES        2

static int set_server(struct __res_state *s, const char *server, struct error *err)
{
    struct os_addr a;
    struct error ignored;
    if (!server[0])
        return 0;
    if (strspn(server, "0123456789.:") != strlen(server) || os_addr_parse(server, &a, &ignored) < 0 ||
        a.len != sizeof s->nsaddr_list[0])
        return error_set(err, STATUS_INVALID, "'%s' is no address of a DNS server: write IPv4:port, like 127.0.0.1:53", server);
    memcpy(&s->nsaddr_list[0], a.bytes, sizeof s->nsaddr_list[0]);
    s->nscount = 1;
    return 0;
}

struct records {
    void (*each)(struct records *r, const ns_msg *m, const ns_rr *rr);
    void *out;
    size_t max, n;
    uint16_t port;
    bool silent; /* no answer came in time, or none that could be used */
};

static void take_all(struct records *r, int type, const unsigned char *answer, int length)
{
    ns_msg m;
    ns_rr rr;
    if (ns_initparse(answer, length, &m) < 0)
        return;
    for (int i = 0; i < ns_msg_count(m, ns_s_an); i++) {
        if (ns_parserr(&m, ns_s_an, i, &rr) < 0)
            return; /* what has been read so far is whole */
        if (ns_rr_type(rr) == (ns_type)type && ns_rr_class(rr) == ns_c_in && r->n < r->max)
            r->each(r, &m, &rr);
    }
}

/* Records of one type; none is no error here. */
static int ask(const char *server, const char *name, int type, struct records *r, struct error *err)
{
    struct __res_state s = {0};
    unsigned char answer[ANSWER_BYTES];
    if (res_ninit(&s) < 0)
        return error_set(err, STATUS_NOT_FOUND, "the resolver can't be set up");
    s.retrans = TRY_S;
    s.retry = TRIES;
    int rc = set_server(&s, server, err);
    if (!rc) {
        int length = res_nquery(&s, name, ns_c_in, type, answer, sizeof answer);
        r->silent = length < 0 && s.res_h_errno == TRY_AGAIN;
        if (length > 0)
            take_all(r, type, answer, MIN_OF(length, ANSWER_BYTES));
    }
    res_nclose(&s);
    return rc;
}

static void take_srv(struct records *r, const ns_msg *m, const ns_rr *rr)
{
    const unsigned char *d = ns_rr_rdata(*rr);
    struct os_dns_srv *s = (struct os_dns_srv *)r->out + r->n;
    if (ns_rr_rdlen(*rr) < 7 || ns_name_uncompress(ns_msg_base(*m), ns_msg_end(*m), d + 6, s->target, sizeof s->target) < 0 ||
        !s->target[0])
        return; /* "." : the service is decidedly not there */
    s->priority = (uint16_t)ns_get16(d);
    s->weight = (uint16_t)ns_get16(d + 2);
    s->port = (uint16_t)ns_get16(d + 4);
    r->n++;
}

static void take_address(struct records *r, const ns_msg *m, const ns_rr *rr)
{
    struct os_addr *a = (struct os_addr *)r->out + r->n;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(r->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(r->port)};
    (void)m;
    if (ns_rr_type(*rr) == ns_t_a && ns_rr_rdlen(*rr) == sizeof v4.sin_addr) {
        memcpy(&v4.sin_addr, ns_rr_rdata(*rr), sizeof v4.sin_addr);
        a->len = sizeof v4;
        memcpy(a->bytes, &v4, sizeof v4);
        r->n++;
    } else if (ns_rr_type(*rr) == ns_t_aaaa && ns_rr_rdlen(*rr) == sizeof v6.sin6_addr) {
        memcpy(&v6.sin6_addr, ns_rr_rdata(*rr), sizeof v6.sin6_addr);
        a->len = sizeof v6;
        memcpy(a->bytes, &v6, sizeof v6);
        r->n++;
    }
}

int os_dns_srv(const char *server, const char *name, struct os_dns_srv *out, size_t max, size_t *n, struct error *err)
{
    struct records r = {.each = take_srv, .out = out, .max = max};
    int rc = ask(server, name, ns_t_srv, &r, err);
    *n = r.n;
    if (!rc && !r.n)
        rc = error_set(err, STATUS_NOT_FOUND, "no SRV record of '%s' can be had", name);
    return rc;
}

int os_dns_addresses(const char *server, const char *name, uint16_t port, struct os_addr *out, size_t max, size_t *n,
                     struct error *err)
{
    struct records r = {.each = take_address, .out = out, .max = max, .port = port};
    int rc = ask(server, name, ns_t_a, &r, err);
    if (!rc && !r.silent) /* else the same would be waited for again */
        rc = ask(server, name, ns_t_aaaa, &r, err);
    *n = r.n;
    if (!rc && !r.n)
        rc = error_set(err, STATUS_NOT_FOUND, "no address of '%s' can be had", name);
    return rc;
}
