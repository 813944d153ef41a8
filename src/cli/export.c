/* export.c: `inferd export`: our configuration in the words of a front that users already run. */
#include <string.h>

#include "base/size.h"
#include "cli/commands.h"
#include "cli/config_args.h"
#include "conf/export.h"

static const char *const kinds[] = {[EXPORT_NGINX] = "nginx", [EXPORT_ENVOY] = "envoy", [EXPORT_HAPROXY] = "haproxy"};

static int kind_named(const char *name, enum export_kind *out)
{
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (strcmp(name, kinds[i]) == 0) {
            *out = (enum export_kind)i;
            return 0;
        }
    return -1;
}

static int write_out(const struct config *c, const struct export_options *o)
{
    struct buf text, notes;
    struct error err = {0};
    buf_init(&text);
    buf_init(&notes);
    int code = CLI_OK;
    if (export_front(c, o, &text, &notes, &err) < 0) {
        code = cli_refuse("%s", err.text);
    } else {
        struct str rest = buf_str(&notes), line;
        while (rest.n && str_cut(&rest, '\n', &line))
            if (line.n)
                fprintf(stderr, "inferd: not said: %.*s\n", STR_ARG(line));
        if (fwrite(text.p, 1, text.n, stdout) != text.n || fflush(stdout) != 0)
            code = cli_fail("the output could not be written");
    }
    buf_release(&text);
    buf_release(&notes);
    return code;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct cli_config args = {0};
    struct cli_list arguments;
    struct config c;
    struct error err = {0};
    struct export_options o = {.listen = "", .grpc_listen = ""};
    const struct cli_flag flags[] = {
        {.name = "listen",
         .type = CLI_STRING,
         .out = &o.listen,
         .value = "ADDRESS",
         .help = "Where the front listens: HOST:PORT, [IPV6]:PORT or *:PORT. Default: *:443 with tls.certificates, else *:80."},
        {.name = "grpc-listen",
         .type = CLI_STRING,
         .out = &o.grpc_listen,
         .value = "ADDRESS",
         .help = "A further address for gRPC and HTTP/2. nginx needs one where there is no TLS."},
    };
    const struct cli_spec spec = {.command = self,
                                  .flags = flags,
                                  .n_flags = COUNT_OF(flags),
                                  .config = &args,
                                  .min_arguments = 1,
                                  .max_arguments = CLI_LIST_MAX};
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    if (kind_named(arguments.v[0], &o.kind) < 0)
        return cli_usage_error(self, "there is no front '%s'; nginx, envoy and haproxy can be written", arguments.v[0]);
    for (size_t i = 1; i < arguments.n; i++)
        if (!config_listen_valid(str_of(arguments.v[i])))
            return cli_usage_error(self, "the server '%s' is not HOST:PORT, [IPV6]:PORT or unix:/PATH", arguments.v[i]);
    o.servers = arguments.v + 1;
    o.n_servers = arguments.n - 1;
    if (cli_config_load(&args, NULL, &c, &err) < 0)
        return cli_refuse("%s", err.text);
    code = write_out(&c, &o);
    config_release(&c);
    return code;
}

const struct cli_command command_export = {
    .name = "export",
    .arguments = "nginx|envoy|haproxy [SERVER]...",
    .summary = "Write a configuration of nginx, Envoy or HAProxy that does in front of inferd what inferd's own says.",
    .details = "Pools and routes of --config, TLS, limits and timeouts in the front's own words. SERVERs (HOST:PORT) are the "
               "replicas\n"
               "that answer what no route takes; without them it is http.listen. What the front has no words for is named on\n"
               "stderr and at the head of the file.",
    .run = run,
};
