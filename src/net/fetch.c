/* fetch.c: libcurl behind six functions, looked up by name at the first use. */
#include "net/fetch.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/size.h"
#include "base/status.h"
#include "os/dynlib.h"

#define ERROR_BODY_MAX 4096
#define NS_PER_S       1000000000ull

/* Signatures are checked against curl's header by the casts below. */
struct curl_table {
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
    CURLcode (*easy_perform)(CURL *);
    CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
    void (*easy_cleanup)(CURL *);
    void (*easy_reset)(CURL *);
    const char *(*easy_strerror)(CURLcode);
    struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
    void (*slist_free_all)(struct curl_slist *);
};

struct fetch {
    struct curl_table t;
    CURL *curl;
    char reason[CURL_ERROR_SIZE], range[24];
    struct buf error;
    /* of the transfer under way */
    const struct fetch_request *request;
    struct fetch_answer *answer;
    int rc; /* of on_body */
};

/* ---- the library ---- */

static bool look_up(void *library, struct curl_table *t)
{
    static const char *const names[] = {"curl_easy_init",     "curl_easy_setopt",  "curl_easy_perform",
                                        "curl_easy_getinfo",  "curl_easy_cleanup", "curl_easy_reset",
                                        "curl_easy_strerror", "curl_slist_append", "curl_slist_free_all"};
    void **slots = (void **)(void *)t; /* a table of as many function pointers, in this order */
    _Static_assert(sizeof *t == COUNT_OF(names) * sizeof(void *), "one name a function");
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if ((slots[i] = os_dynlib_symbol(library, names[i])) == NULL)
            return false;
    return true;
}

int fetch_create(struct fetch **out, struct error *err)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    struct fetch *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(err, STATUS_NOMEM, "not enough memory");
    for (size_t i = 0; !library && i < COUNT_OF(names); i++)
        if (os_dynlib_open(names[i], &library, NULL) < 0)
            library = NULL;
    if (!library || !look_up(library, &f->t)) {
        free(f);
        return error_set(err, STATUS_UNAVAILABLE, "libcurl (libcurl.so.4) is not installed; install the package libcurl4");
    }
    f->curl = f->t.easy_init();
    buf_init(&f->error);
    if (!f->curl) {
        free(f);
        return error_set(err, STATUS_NOMEM, "libcurl could not be initialised");
    }
    *out = f;
    return 0;
}

void fetch_destroy(struct fetch *f)
{
    if (!f)
        return;
    f->t.easy_cleanup(f->curl);
    buf_release(&f->error);
    free(f);
}

/* ---- a transfer ---- */

static size_t on_write(char *p, size_t size, size_t n, void *ctx)
{
    struct fetch *f = ctx;
    long status = 0;
    size_t bytes = size * n;
    f->t.easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status / 100 != 2) {
        buf_append(&f->error, p, MIN_OF(bytes, ERROR_BODY_MAX - MIN_OF(f->error.n, (size_t)ERROR_BODY_MAX)));
        return bytes;
    }
    f->answer->length += bytes;
    f->rc = f->request->on_body ? f->request->on_body(f->request->ctx, (int)status, (struct str){p, bytes}) : 0;
    return f->rc < 0 ? 0 : bytes;
}

static struct curl_slist *headers_of(struct fetch *f, const struct fetch_request *r)
{
    struct buf line;
    if (!r->token || !r->token[0])
        return NULL;
    buf_init(&line);
    buf_printf(&line, "Authorization: Bearer %s", r->token);
    struct curl_slist *l = f->t.slist_append(NULL, buf_z(&line)); /* curl doesn't send it to another host after a redirect */
    buf_release(&line);
    return l;
}

static void set_options(struct fetch *f, const struct fetch_request *r, struct curl_slist *headers)
{
    CURLcode (*set)(CURL *, CURLoption, ...) = f->t.easy_setopt;
    set(f->curl, CURLOPT_URL, r->url);
    set(f->curl, CURLOPT_FOLLOWLOCATION, 1L);
    set(f->curl, CURLOPT_MAXREDIRS, 10L);
    set(f->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    set(f->curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(f->curl, CURLOPT_NOSIGNAL, 1L);
    set(f->curl, CURLOPT_CONNECTTIMEOUT, 30L);
    set(f->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(f->curl, CURLOPT_LOW_SPEED_TIME, (long)(r->stall_ns ? r->stall_ns / NS_PER_S + 1 : 60));
    set(f->curl, CURLOPT_USERAGENT, "inferd/" INFERD_VERSION);
    set(f->curl, CURLOPT_ERRORBUFFER, f->reason);
    set(f->curl, CURLOPT_WRITEFUNCTION, on_write);
    set(f->curl, CURLOPT_WRITEDATA, f);
    if (r->from) { /* CURLOPT_RESUME_FROM would fail where a server sends everything again */
        snprintf(f->range, sizeof f->range, "%llu-", (unsigned long long)r->from);
        set(f->curl, CURLOPT_RANGE, f->range);
    }
    if (headers)
        set(f->curl, CURLOPT_HTTPHEADER, headers);
}

static int status_of(CURLcode code)
{
    switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return STATUS_INVALID;
    case CURLE_OPERATION_TIMEDOUT:
        return STATUS_TIMEOUT;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
        return STATUS_UNAVAILABLE;
    default:
        return STATUS_IO;
    }
}

int fetch_get(struct fetch *f, const struct fetch_request *r, struct fetch_answer *out, struct error *err)
{
    struct curl_slist *headers = headers_of(f, r);
    long status = 0;
    *out = (struct fetch_answer){0};
    buf_clear(&f->error);
    f->reason[0] = 0;
    f->request = r;
    f->answer = out;
    f->rc = 0;
    f->t.easy_reset(f->curl);
    set_options(f, r, headers);
    CURLcode code = f->t.easy_perform(f->curl);
    f->t.easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
    f->t.slist_free_all(headers);
    out->status = (int)status;
    out->error = buf_str(&f->error);
    if (f->rc < 0)
        return f->rc;
    if (code == CURLE_OK)
        return 0;
    return error_set(err, status_of(code), "%s", f->reason[0] ? f->reason : f->t.easy_strerror(code));
}
