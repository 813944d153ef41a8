/* status.c: the one table from status codes to the outside world. */
#include "base/status.h"

static const struct {
    int http;
    int grpc;
    const char *name;
} table[STATUS_COUNT] = {
    [-STATUS_OK] = {200, 0, "ok"},
    [-STATUS_AGAIN] = {500, 13, "again"},
    [-STATUS_INVALID] = {400, 3, "invalid"},
    [-STATUS_UNAUTHENTICATED] = {401, 16, "unauthenticated"},
    [-STATUS_FORBIDDEN] = {403, 7, "forbidden"},
    [-STATUS_NOT_FOUND] = {404, 5, "not_found"},
    [-STATUS_METHOD] = {405, 12, "method_not_allowed"},
    [-STATUS_TIMEOUT] = {408, 1, "timeout"},
    [-STATUS_CONFLICT] = {409, 9, "conflict"},
    [-STATUS_TOO_LARGE] = {413, 8, "too_large"},
    [-STATUS_URI_TOO_LONG] = {414, 3, "uri_too_long"},
    [-STATUS_MEDIA_TYPE] = {415, 3, "media_type"},
    [-STATUS_EXPECTATION] = {417, 3, "expectation"},
    [-STATUS_EXHAUSTED] = {429, 8, "exhausted"},
    [-STATUS_HEADERS_TOO_LARGE] = {431, 8, "headers_too_large"},
    [-STATUS_CANCELLED] = {499, 1, "cancelled"},
    [-STATUS_INTERNAL] = {500, 13, "internal"},
    [-STATUS_UNIMPLEMENTED] = {501, 12, "unimplemented"},
    [-STATUS_UNAVAILABLE] = {503, 14, "unavailable"},
    [-STATUS_DEADLINE] = {504, 4, "deadline"},
    [-STATUS_NOMEM] = {503, 8, "out_of_memory"},
    [-STATUS_IO] = {500, 13, "io"},
    [-STATUS_UPSTREAM] = {502, 14, "upstream"},
    [-STATUS_LOOP] = {508, 13, "loop"},
    [-STATUS_MISDIRECTED] = {421, 9, "misdirected"},
};

static int index_of(int status)
{
    return status <= 0 && status > -STATUS_COUNT ? -status : -STATUS_INTERNAL;
}

int status_http(int status)
{
    return table[index_of(status)].http;
}
int status_from_http(int http)
{
    for (int i = 0; i < STATUS_COUNT; i++)
        if (table[i].http == http && i != -STATUS_AGAIN)
            return -i;
    return STATUS_INTERNAL;
}
int status_grpc(int status)
{
    return table[index_of(status)].grpc;
}
const char *status_name(int status)
{
    return table[index_of(status)].name;
}
