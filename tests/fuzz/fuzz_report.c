/* What servers say of themselves, and files of servers: no input may crash or be read past its end, and what comes out is in range. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "conf/endpoint_slice.h"
#include "route/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_report(const struct upstream_report *r)
{
    check(r->kv_use >= 0 && r->kv_use <= 1);
    check(r->n_adapters <= REPORT_ADAPTERS_MAX);
    check(r->says <= UPSTREAM_DOWN && upstream_says_name(r->says));
}

static void read_file(struct str text)
{
    struct arena arena;
    struct gateway_server *list = NULL;
    struct error err = {0};
    size_t n = 0;
    arena_init(&arena, 4096, 64 << 20);
    if (endpoint_file_read(text, "fuzz", "", &arena, &list, &n, &err) == 0)
        for (size_t i = 0; i < n; i++)
            check(list[i].address[0] && strlen(list[i].address) < 300 && list[i].zone);
    else
        check(err.text[0] != 0);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct upstream_report r;
    struct error err = {0};
    int rc;
    if (size < 1 || size > 65536)
        return 0;
    char *exact = malloc(size - 1 ? size - 1 : 1); /* so that a read past the end is one past an allocation */
    if (!exact)
        return 0;
    memcpy(exact, data + 1, size - 1);
    struct str text = {exact, size - 1};
    switch (data[0] % 4) {
    case 0:
        rc = report_read_header(text, &r, &err);
        break;
    case 1:
        rc = report_read_metrics(text, &r, &err);
        break;
    case 2:
        rc = report_read_agent(text, &r, &err);
        break;
    default:
        read_file(text);
        free(exact);
        return 0;
    }
    check(rc == 0 || (rc < 0 && err.text[0]));
    check_report(&r);
    free(exact);
    return 0;
}
