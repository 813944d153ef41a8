/* explain.c: what a client is told of a server that failed. Enough to know whose fault it is and what to look for, nothing that shows what is behind
 * this gateway: no address, no name, no text of a library. The operator's log has the rest (`upstream_failed`, `upstream_tls_failed`). */
#include "gateway/gateway_priv.h"

enum exchange_fault exchange__connect_fault(const struct dial *d)
{
    if (d->refused)
        return EXCHANGE_REFUSED;
    if (!d->tls_failed)
        return EXCHANGE_UNREACHABLE;
    switch (d->tls_fault) {
    case TLS_FAULT_NAME:
        return EXCHANGE_TLS_NAME;
    case TLS_FAULT_EXPIRED:
        return EXCHANGE_TLS_EXPIRED;
    case TLS_FAULT_UNTRUSTED:
        return EXCHANGE_TLS_UNTRUSTED;
    case TLS_FAULT_OTHER:
        break;
    }
    return EXCHANGE_TLS_FAILED;
}

const char *exchange__explain(enum exchange_fault fault)
{
    switch (fault) {
    case EXCHANGE_UNREACHABLE:
        return "the server for this request can't be reached";
    case EXCHANGE_REFUSED:
        return "the server for this request can't be reached: it refuses connections";
    case EXCHANGE_SLOW_CONNECT:
        return "the server for this request can't be reached: it did not take the connection in time";
    case EXCHANGE_TLS_NAME:
        return "a secure connection to the server for this request can't be made: its certificate is for another name";
    case EXCHANGE_TLS_EXPIRED:
        return "a secure connection to the server for this request can't be made: its certificate is not valid at this time";
    case EXCHANGE_TLS_UNTRUSTED:
        return "a secure connection to the server for this request can't be made: its certificate is not from "
               "an authority that is believed";
    case EXCHANGE_TLS_FAILED:
        return "a secure connection to the server for this request can't be made";
    case EXCHANGE_GARBAGE:
        return "the server for this request answered with something that is not proper HTTP";
    case EXCHANGE_HEAD_TOO_LARGE:
        return "the server for this request answered with a larger header section than is accepted";
    case EXCHANGE_SHORT:
        return "the server for this request broke off: its answer is shorter than it had announced";
    case EXCHANGE_CUT:
        return "the server for this request broke off in the middle of its answer";
    case EXCHANGE_UNBEGUN:
        return "the server for this request did not begin on it";
    case EXCHANGE_CLOSED:
        break;
    }
    return "the server for this request broke off before it answered";
}
