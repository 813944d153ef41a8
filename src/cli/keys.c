/* keys.c: `inferd keys`: makes, lists and revokes API keys in the file that the server watches. Nothing is sent to a server: it reads the
 * file again within a second or two. The file is replaced whole under a lock beside it, so two people can't lose each other's keys. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "api/route.h"
#include "cli/commands.h"
#include "cli/config_args.h"
#include "cli/table.h"
#include "conf/config.h"
#include "edge/keys.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/random.h"

#define KEY_FILE_MODE 0600
#define NS_PER_S      1000000000u
#define DAY_S         86400u

struct options {
    struct cli_config config;
    const char *file, *name, *tenant, *scopes, *models, *quota, *expires, *certificate;
    bool json;
};

/* The file's content; a file that isn't there is empty. */
static int read_file(const char *path, struct buf *text, struct error *err)
{
    int rc = os_file_read(path, KEY_FILE_MAX, text, err);
    if (rc == STATUS_NOT_FOUND) {
        *err = (struct error){0};
        return 0;
    }
    return rc;
}

static int write_file(const char *path, const struct buf *text, struct error *err)
{
    return os_file_write_atomic(path, text->p ? text->p : "", text->n, KEY_FILE_MODE, err);
}

static int lock_file(const char *path, int *fd, struct error *err)
{
    char lock[4096];
    int n = snprintf(lock, sizeof lock, "%s.lock", path);
    if (n < 0 || (size_t)n >= sizeof lock)
        return error_set(err, STATUS_INVALID, "the path of the key file is too long");
    return os_file_lock(lock, fd, err);
}

/* ---- make ---- */

/* "90d", "12h" from now, or a date. Empty: never. */
static int parse_expiry(const char *text, uint64_t now_s, uint64_t *out, struct error *err)
{
    struct str t = str_of(text);
    uint64_t days, ns;
    *out = 0;
    if (!t.n || key_time_parse(t, out))
        return 0;
    if (t.p[t.n - 1] == 'd' && str_to_u64((struct str){t.p, t.n - 1}, &days) && days > 0 && days <= 36500) {
        *out = now_s + days * DAY_S;
        return 0;
    }
    if (str_to_duration_ns(t, &ns) && ns >= NS_PER_S) {
        *out = now_s + ns / NS_PER_S;
        return 0;
    }
    return error_set(err, STATUS_INVALID, "--expires is \"%s\"; give a time from now (90d, 12h) or a date (2027-01-31)", text);
}

static int fill_spec(const struct options *o, struct key_spec *s, struct error *err)
{
    s->created_s = os_wall_ns() / NS_PER_S;
    s->who.name = str_of(o->name);
    s->who.tenant = str_of(o->tenant);
    s->who.models = str_of(o->models);
    s->who.quota = str_of(o->quota);
    s->certificate = str_of(o->certificate);
    int rc = edge_scopes_parse(str_of(o->scopes), &s->who.scopes, err);
    return rc < 0 ? rc : parse_expiry(o->expires, s->created_s, &s->who.expires_s, err);
}

/* Append the line and see that the server would take the file. */
static int append(struct buf *text, const struct buf *line, const char *path, struct error *err)
{
    struct key_table t;
    if (text->n && text->p[text->n - 1] != '\n')
        buf_append_c(text, '\n');
    buf_append_str(text, buf_str(line));
    if (text->failed)
        return error_set(err, STATUS_NOMEM, "out of memory");
    int rc = key_table_parse(buf_str(text), path, os_random_u64(), &t, err);
    if (rc == 0)
        key_table_release(&t);
    return rc;
}

static int make(const struct options *o, const char *path, struct error *err)
{
    uint8_t random[KEY_RANDOM_BYTES];
    char key[KEY_TEXT_BYTES] = "", id[KEY_ID_BYTES + 1] = "";
    struct key_spec s = {0};
    struct buf line, text;
    int lock = -1;
    buf_init(&line);
    buf_init(&text);
    os_random_bytes(random, sizeof random);
    int rc = fill_spec(o, &s, err);
    if (rc == 0)
        rc = key_make(&s, random, &line, key, id, err);
    if (rc == 0)
        rc = lock_file(path, &lock, err);
    if (rc == 0)
        rc = read_file(path, &text, err);
    if (rc == 0)
        rc = append(&text, &line, path, err);
    if (rc == 0)
        rc = write_file(path, &text, err);
    os_close(lock);
    buf_release(&line);
    buf_release(&text);
    if (rc < 0)
        return rc;
    if (key[0])
        printf("%s\n", key);
    fprintf(stderr,
            key[0] ? "Key %s was added to %s. It is shown only now: keep it, nobody can read it again.\n"
                   : "Entry %s was added to %s.\n",
            id, path);
    return 0;
}

/* ---- list ---- */

static const char *when(uint64_t s, const char *none, char text[24])
{
    if (!s)
        return none;
    key_time_render(s, text);
    return text;
}

static void add_row(struct table *t, const struct key_entry *e, uint64_t now_s)
{
    const struct edge_identity *i = e->identity;
    struct buf scopes;
    char created[24], expires[24];
    buf_init(&scopes);
    edge_scopes_render(i->scopes, &scopes);
    table_cell(t, "%s", i->id);
    table_cell(t, "%s", i->name);
    table_cell(t, "%s", i->tenant);
    table_cell(t, "%s", buf_z(&scopes));
    table_cell(t, "%s", i->models);
    table_cell(t, "%s", i->quota);
    table_cell(t, "%s", when(e->created_s, "-", created));
    table_cell(t, "%s%s", when(i->expires_s, "never", expires), i->expires_s && i->expires_s <= now_s ? " (expired)" : "");
    table_cell(t, "%s", e->certificate ? e->certificate : "-");
    buf_release(&scopes);
}

static void add_json(struct buf *out, const struct key_entry *e)
{
    const struct edge_identity *i = e->identity;
    char time[24];
    const struct {
        const char *key, *value;
    } texts[] = {{"name", i->name},
                 {"tenant", i->tenant},
                 {"models", i->models},
                 {"class", i->quota},
                 {"certificate", e->certificate ? e->certificate : ""}};
    buf_printf(out, "{\"id\":\"%s\",\"scopes\":\"", i->id);
    edge_scopes_render(i->scopes, out);
    buf_append_c(out, '"');
    for (size_t k = 0; k < COUNT_OF(texts); k++) {
        if (!texts[k].value[0])
            continue;
        buf_printf(out, ",\"%s\":", texts[k].key);
        buf_append_json_str(out, str_of(texts[k].value));
    }
    if (e->created_s)
        buf_printf(out, ",\"created\":\"%s\"", when(e->created_s, "", time));
    if (i->expires_s)
        buf_printf(out, ",\"expires\":\"%s\"", when(i->expires_s, "", time));
    buf_append_z(out, "}\n");
}

static int print_keys(const struct options *o, const struct key_table *keys)
{
    static const char *const titles[] = {"ID",    "NAME",    "TENANT",  "SCOPES",      "MODELS",
                                         "CLASS", "CREATED", "EXPIRES", "CERTIFICATE", NULL};
    uint64_t now_s = os_wall_ns() / NS_PER_S;
    struct table t;
    struct buf out;
    buf_init(&out);
    table_init(&t, titles);
    for (size_t i = 0; i < keys->n; i++) {
        if (o->json)
            add_json(&out, &keys->entries[i]);
        else
            add_row(&t, &keys->entries[i], now_s);
    }
    if (o->json)
        fwrite(out.p ? out.p : "", 1, out.n, stdout);
    else
        table_print(&t, stdout);
    bool ok = !t.failed && !out.failed && fflush(stdout) == 0;
    table_release(&t);
    buf_release(&out);
    return ok ? 0 : STATUS_IO;
}

static int list(const struct options *o, const char *path, struct error *err)
{
    struct key_table keys;
    struct buf text;
    buf_init(&text);
    int rc = os_file_read(path, KEY_FILE_MAX, &text, err);
    if (rc == 0)
        rc = key_table_parse(buf_str(&text), path, os_random_u64(), &keys, err);
    buf_release(&text);
    if (rc < 0)
        return rc;
    rc = print_keys(o, &keys);
    key_table_release(&keys);
    return rc < 0 ? error_set(err, rc, "the output could not be written") : 0;
}

/* ---- revoke ---- */

/* The one entry with this id, or with this name. */
static int find(const struct key_table *keys, const char *which, const struct key_entry **out, struct error *err)
{
    const struct key_entry *named = NULL;
    size_t n = 0;
    for (size_t i = 0; i < keys->n; i++) {
        const struct key_entry *e = &keys->entries[i];
        if (strcmp(e->identity->id, which) == 0) {
            *out = e;
            return 0;
        }
        if (strcmp(e->identity->name, which) == 0) {
            named = e;
            n++;
        }
    }
    if (n > 1)
        return error_set(err, STATUS_CONFLICT, "%zu keys have the name \"%s\"; give the id of one", n, which);
    if (!named)
        return error_set(err, STATUS_NOT_FOUND, "there is no key with the id or name \"%s\"", which);
    *out = named;
    return 0;
}

static void copy_without(struct str text, size_t drop, struct buf *out)
{
    struct str line;
    for (size_t n = 1; str_cut(&text, '\n', &line); n++) {
        if (n == drop || (!text.p && !line.n))
            continue;
        buf_append_str(out, line);
        buf_append_c(out, '\n');
    }
}

static int revoke(const char *which, const char *path, struct error *err)
{
    struct key_table keys = {0};
    const struct key_entry *e = NULL;
    struct buf text, rest;
    int lock = -1;
    buf_init(&text);
    buf_init(&rest);
    int rc = lock_file(path, &lock, err);
    if (rc == 0)
        rc = os_file_read(path, KEY_FILE_MAX, &text, err);
    if (rc == 0)
        rc = key_table_parse(buf_str(&text), path, os_random_u64(), &keys, err);
    if (rc == 0)
        rc = find(&keys, which, &e, err);
    if (rc == 0) {
        copy_without(buf_str(&text), e->line, &rest);
        rc = rest.failed ? error_set(err, STATUS_NOMEM, "out of memory") : write_file(path, &rest, err);
    }
    if (rc == 0)
        printf("%s (%s) is revoked.\n", e->identity->id, e->identity->name);
    os_close(lock);
    key_table_release(&keys);
    buf_release(&text);
    buf_release(&rest);
    return rc;
}

/* ---- routes ---- */

static void add_route(struct table *t, const struct route_row *row)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "other"};
    struct edge_need need = route_need(row->id);
    struct buf scope;
    buf_init(&scope);
    edge_scopes_render(need.scope, &scope);
    table_cell(t, "%s", route_name(row->id));
    table_cell(t, "%s", methods[row->method]);
    table_cell(t, "%s", row->path);
    table_cell(t, "%s%s%s%s", row->surfaces & API_HTTP ? "http " : "", row->surfaces & API_METRICS ? "metrics " : "",
               row->surfaces & API_ADMIN ? "admin" : "", row->surfaces & API_GRPC ? "grpc" : "");
    table_cell(t, "%s", buf_z(&scope));
    table_cell(t, "%s", need.every_model ? "all" : "any");
    buf_release(&scope);
}

static int print_routes(void)
{
    static const char *const titles[] = {"ROUTE", "METHOD", "PATH", "LISTENERS", "SCOPE", "MODELS", NULL};
    struct table t;
    struct route_row row;
    table_init(&t, titles);
    for (size_t i = 0; route_row_at(i, &row); i++)
        add_route(&t, &row);
    table_print(&t, stdout);
    bool ok = !t.failed && fflush(stdout) == 0;
    table_release(&t);
    return ok ? CLI_OK : cli_fail("the output could not be written");
}

/* ---- command line ---- */

static int act(const struct cli_command *self, const struct options *o, const struct cli_list *arguments, const char *path)
{
    struct error err = {0};
    const char *verb = arguments->v[0];
    bool is_revoke = strcmp(verb, "revoke") == 0;
    int rc;
    if (arguments->n != (is_revoke ? 2u : 1u))
        return cli_usage_error(self, is_revoke ? "name the key to revoke, by id or name" : "'%s' takes no further argument",
                               verb);
    if (strcmp(verb, "make") == 0 && !o->name[0])
        return cli_usage_error(self, "a key needs a name: --name WHO");
    if (strcmp(verb, "make") == 0)
        rc = make(o, path, &err);
    else if (strcmp(verb, "list") == 0)
        rc = list(o, path, &err);
    else if (is_revoke)
        rc = revoke(arguments->v[1], path, &err);
    else
        return cli_usage_error(self, "there is no 'keys %s'; give make, list, revoke or routes", verb);
    return rc < 0 ? cli_fail("%s", err.text) : CLI_OK;
}

#define TEXT(n, l, field, v, h)                                                                                                \
    {                                                                                                                          \
        .name = n, .letter = l, .type = CLI_STRING, .out = &o.field, .value = v, .help = h                                     \
    }

static int run(const struct cli_command *self, int argc, char **argv)
{
    static struct options o; /* Exception: too large for the stack, and there is one command in a process */
    const struct cli_flag flags[] = {
        TEXT("file", 'f', file, "FILE", "The key file; else auth.keys_file of the configuration."),
        TEXT("name", 'n', name, "WHO", "make: who it is for; A-Z a-z 0-9 . _ - @ : /"),
        TEXT("tenant", 't', tenant, "TENANT", "make: whose quotas and isolation it falls under; \"default\" if not given."),
        TEXT("scopes", 's', scopes, "SCOPES", "make: infer, read, admin, with commas between; infer,read if not given."),
        TEXT("models", 'm', models, "PATTERN",
             "make: the models that exist for it, with * and ?, commas between; all if not given."),
        TEXT("class", 0, quota, "CLASS", "make: its quota class; \"default\" if not given."),
        TEXT("expires", 'e', expires, "TIME", "make: a time from now (90d, 12h) or a date (2027-01-31); never if not given."),
        TEXT("certificate", 0, certificate, "NAME",
             "make: no secret, but a name of a client certificate: DNS:host, URI:spiffe://..., email:a@b."),
        {.name = "json", .type = CLI_BOOL, .out = &o.json, .help = "list: one JSON object a line."},
    };
    const struct cli_spec spec = {.command = self,
                                  .flags = flags,
                                  .n_flags = COUNT_OF(flags),
                                  .config = &o.config,
                                  .min_arguments = 1,
                                  .max_arguments = 2};
    struct cli_list arguments;
    struct config c;
    struct error err = {0};
    o = (struct options){.file = "",
                         .name = "",
                         .tenant = "",
                         .scopes = "infer,read",
                         .models = "",
                         .quota = "",
                         .expires = "",
                         .certificate = ""};
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    if (strcmp(arguments.v[0], "routes") == 0)
        return print_routes();
    if (o.file[0])
        return act(self, &o, &arguments, o.file);
    if (cli_config_load(&o.config, NULL, &c, &err) < 0)
        return cli_refuse("%s", err.text);
    if (c.auth.keys_file[0])
        code = act(self, &o, &arguments, c.auth.keys_file);
    else
        code = cli_usage_error(self, "which key file? give --file, or --config with auth.keys_file in it");
    config_release(&c);
    return code;
}

const struct cli_command command_keys = {
    .name = "keys",
    .arguments = "make|list|revoke|routes [ID|NAME]",
    .summary = "Make, list and revoke API keys.",
    .details = "make prints the new key once; the file keeps only a salted hash of it. A running server reads the file again\n"
               "when it changes. To replace a key without an outage: make a second one, hand it out, revoke the first.\n"
               "routes shows what each route asks for: a scope, and whether the key must be for all models.\n",
    .run = run,
};
