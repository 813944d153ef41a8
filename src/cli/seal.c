/* seal.c: `inferd seal`: keys for sealed models, and sealing and opening files. A sealed file takes the place of the plain one under the
 * same name, by a rename, so that a server which follows the folder sees one or the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "model/seal.h"
#include "os/file.h"
#include "os/random.h"

struct options {
    struct cli_list keys;
    const char *output;
};

/* ---- new-key ---- */

static int refuse_existing(const char *path, struct error *err)
{
    struct os_file_info info;
    if (os_file_info(path, &info, NULL) == 0)
        return error_set(err, STATUS_CONFLICT, "%s is there already: a key that is lost makes its files unreadable", path);
    return 0;
}

static int new_key(const char *path, struct error *err)
{
    uint8_t key[SEAL_KEY_BYTES];
    char text[2 * SEAL_KEY_BYTES + 2];
    int rc = refuse_existing(path, err);
    if (rc)
        return rc;
    os_random_bytes(key, sizeof key);
    for (size_t i = 0; i < sizeof key; i++)
        snprintf(text + 2 * i, 3, "%02x", key[i]);
    text[sizeof text - 2] = '\n';
    rc = os_file_write_atomic(path, text, sizeof text - 1, 0600, err);
    explicit_bzero(key, sizeof key);
    explicit_bzero(text, sizeof text);
    return rc;
}

/* ---- encrypt ---- */

struct sealing {
    const char *path;
    int in;
    FILE *out;
    struct seal_header h;
    struct seal_cipher *c;
    uint8_t *plain, *sealed;
};

static int write_all(struct sealing *s, const void *p, size_t n, struct error *err)
{
    return fwrite(p, 1, n, s->out) == n ? 0 : error_set(err, STATUS_IO, "%s.part can't be written: is the disk full?", s->path);
}

static int seal_chunks(struct sealing *s, struct error *err)
{
    uint8_t head[SEAL_HEADER_BYTES];
    uint64_t chunks, bytes, at = 0;
    if (!seal_sizes(s->h.plain_bytes, s->h.chunk_bytes, &chunks, &bytes))
        return error_set(err, STATUS_TOO_LARGE, "%s is too large", s->path);
    seal_header_write(&s->h, head);
    int rc = write_all(s, head, sizeof head, err);
    for (uint64_t i = 0; i < chunks && !rc; i++) {
        size_t n = (size_t)MIN_OF(s->h.plain_bytes - at, (uint64_t)s->h.chunk_bytes);
        if (n)
            rc = os_file_read_at(s->in, at, s->plain, n, err);
        if (!rc)
            rc = seal_chunk(s->c, i, s->plain, n, s->sealed, err);
        if (!rc)
            rc = write_all(s, s->sealed, n + SEAL_TAG_BYTES, err);
        at += n;
    }
    return rc;
}

static int open_input(struct sealing *s, const struct seal_key *key, struct error *err)
{
    struct os_file_info info;
    uint8_t magic[SEAL_MAGIC_BYTES] = {0};
    int rc = os_file_open(s->path, &s->in, err);
    if (!rc)
        rc = os_file_info_fd(s->in, &info, err);
    if (rc)
        return rc;
    if (info.kind != OS_FILE_REGULAR)
        return error_set(err, STATUS_INVALID, "%s is not a file", s->path);
    if (info.size_bytes >= sizeof magic)
        rc = os_file_read_at(s->in, 0, magic, sizeof magic, err);
    if (!rc && seal_is_sealed(magic, sizeof magic))
        rc = error_set(err, STATUS_CONFLICT, "%s is sealed already", s->path);
    if (rc)
        return rc;
    s->h = (struct seal_header){.chunk_bytes = SEAL_CHUNK_DEFAULT, .plain_bytes = info.size_bytes};
    memcpy(s->h.key_id, key->id, SEAL_ID_BYTES);
    os_random_bytes(s->h.salt, sizeof s->h.salt);
    s->plain = malloc(SEAL_CHUNK_DEFAULT);
    s->sealed = malloc(SEAL_CHUNK_DEFAULT + SEAL_TAG_BYTES);
    if (!s->plain || !s->sealed)
        return error_set(err, STATUS_NOMEM, "out of memory");
    return seal_cipher_create(&s->h, key, &s->c, err);
}

static int encrypt(const char *path, const struct seal_key *key, struct error *err)
{
    char part[4096];
    struct sealing s = {.path = path, .in = -1};
    int n = snprintf(part, sizeof part, "%s.part", path);
    if (n < 0 || (size_t)n >= sizeof part)
        return error_set(err, STATUS_INVALID, "the path %s is too long", path);
    int rc = open_input(&s, key, err);
    if (!rc)
        (void)!os_file_remove(part, NULL); /* what an interrupted run left, and never what a link there leads to */
    if (!rc && !(s.out = fopen(part, "wbxe")))
        rc = error_set(err, STATUS_IO, "%s can't be written", part);
    if (!rc)
        rc = seal_chunks(&s, err);
    if (s.out && fclose(s.out) != 0 && !rc)
        rc = error_set(err, STATUS_IO, "%s can't be written: is the disk full?", part);
    if (!rc)
        rc = os_file_rename(part, path, err);
    if (rc && s.out)
        (void)!os_file_remove(part, NULL);
    os_close(s.in);
    seal_cipher_destroy(s.c);
    if (s.plain)
        explicit_bzero(s.plain, SEAL_CHUNK_DEFAULT);
    free(s.plain);
    free(s.sealed);
    return rc;
}

/* ---- decrypt ---- */

static int read_source(void *ctx, uint64_t offset, void *p, size_t n, struct error *err)
{
    return os_file_read_at(*(const int *)ctx, offset, p, n, err);
}

static int decrypt(const char *path, const char *output, const struct seal_keys *keys, struct error *err)
{
    struct os_blob blob = {0};
    struct os_file_info info;
    int fd = -1, rc = os_file_open(path, &fd, err);
    if (!rc)
        rc = os_file_info_fd(fd, &info, err);
    if (!rc) {
        struct seal_source s = {.read = read_source, .ctx = &fd, .bytes = info.size_bytes, .name = path};
        rc = seal_open(&s, keys, UINT64_MAX, NULL, &blob, err);
    }
    if (!rc)
        rc = os_file_write_atomic(output, blob.p ? (const void *)blob.p : "", blob.n, 0600, err);
    os_blob_release(&blob);
    os_close(fd);
    return rc;
}

/* ---- command line ---- */

static int act(const struct options *o, const struct cli_list *arguments, const struct seal_keys *keys, struct error *err)
{
    char id[SEAL_ID_TEXT];
    if (!keys->n)
        return error_set(err, STATUS_INVALID, "no key: give --key FILE, or set $" SEAL_KEY_ENV);
    if (strcmp(arguments->v[0], "decrypt") == 0)
        return decrypt(arguments->v[1], o->output, keys, err);
    seal_id_text(keys->v[0].id, id);
    for (size_t i = 1; i < arguments->n; i++) {
        int rc = encrypt(arguments->v[i], &keys->v[0], err);
        if (rc)
            return rc;
        printf("%s: sealed with the key %s\n", arguments->v[i], id);
    }
    return 0;
}

static int with_keys(const struct options *o, const struct cli_list *arguments)
{
    struct error err = {0};
    struct seal_keys *keys = calloc(1, sizeof *keys);
    if (!keys)
        return cli_fail("out of memory");
    int rc = seal_keys_load(keys, o->keys.v, o->keys.n, &err);
    if (!rc)
        rc = act(o, arguments, keys, &err);
    seal_keys_wipe(keys);
    free(keys);
    return rc ? cli_fail("%s", err.text) : CLI_OK;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct options o = {0};
    struct cli_list arguments;
    struct error err = {0};
    const struct cli_flag flags[] = {
        {.name = "key",
         .letter = 'k',
         .type = CLI_LIST,
         .out = &o.keys,
         .value = "FILE",
         .help = "A file of keys, any number of times; the first key of all seals. Then those in $" SEAL_KEY_ENV "."},
        {.name = "output", .letter = 'o', .type = CLI_STRING, .out = &o.output, .value = "FILE", .help = "decrypt: where to."},
    };
    const struct cli_spec spec = {
        .command = self, .flags = flags, .n_flags = COUNT_OF(flags), .min_arguments = 2, .max_arguments = CLI_LIST_MAX};
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    const char *verb = arguments.v[0];
    if (strcmp(verb, "new-key") == 0 || strcmp(verb, "decrypt") == 0) {
        if (arguments.n != 2)
            return cli_usage_error(self, "'%s' takes one file", verb);
        if (verb[0] == 'd' && !o.output)
            return cli_usage_error(self, "decrypt needs --output FILE");
    } else if (strcmp(verb, "encrypt") != 0) {
        return cli_usage_error(self, "there is no 'seal %s'; give new-key, encrypt or decrypt", verb);
    }
    if (strcmp(verb, "new-key") == 0)
        return new_key(arguments.v[1], &err) ? cli_fail("%s", err.text) : CLI_OK;
    return with_keys(&o, &arguments);
}

const struct cli_command command_seal = {
    .name = "seal",
    .arguments = "new-key FILE | encrypt FILE... | decrypt FILE --output FILE",
    .summary = "Encrypt model files, which a server then decrypts in memory only.",
    .details =
        "encrypt puts the sealed file in the place of the plain one, under the same name; the server finds out by itself\n"
        "and needs the key (models.seal_keys). decrypt is for changing keys. docs/reference/sealed-models.md has the format.",
    .run = run,
};
