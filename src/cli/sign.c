/* sign.c: `inferd sign`: key pairs, and signing the models of a repository. */
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/engines.h"
#include "model/seal_repo.h"
#include "model/seal_sign.h"
#include "os/file.h"

#define PEM_MAX ((size_t)64 << 10)

static int new_key(const char *path, struct error *err)
{
    char public_path[4096];
    struct os_file_info info;
    struct buf secret, open;
    int n = snprintf(public_path, sizeof public_path, "%s.pub", path);
    if (n < 0 || (size_t)n >= sizeof public_path)
        return error_set(err, STATUS_INVALID, "the path is too long");
    if (os_file_info(path, &info, NULL) == 0)
        return error_set(err, STATUS_CONFLICT, "%s is there already", path);
    buf_init(&secret);
    buf_init(&open);
    int rc = sign_new_keys(&secret, &open, err);
    if (!rc)
        rc = os_file_write_atomic(path, secret.p, secret.n, 0600, err);
    if (!rc)
        rc = os_file_write_atomic(public_path, open.p, open.n, 0644, err);
    if (secret.p)
        explicit_bzero(secret.p, secret.n);
    buf_release(&secret);
    buf_release(&open);
    if (!rc)
        printf("%s\n", public_path);
    return rc;
}

static int sign_models(const char *key, const struct cli_list *arguments, bool follow, struct error *err)
{
    struct buf pem, report;
    struct registry_options o = {
        .roots = arguments->v + 1, .n_roots = arguments->n - 1, .follow_symlinks = follow, .engines = cli_engines};
    buf_init(&pem);
    buf_init(&report);
    int rc = os_file_read(key, PEM_MAX, &pem, err);
    if (!rc)
        rc = seal_repo_sign(&o, buf_str(&pem), &report, err);
    fwrite(report.p ? report.p : "", 1, report.n, stdout);
    if (pem.p)
        explicit_bzero(pem.p, pem.n);
    buf_release(&pem);
    buf_release(&report);
    return rc;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    const char *key = NULL;
    bool follow = false;
    struct cli_list arguments;
    struct error err = {0};
    const struct cli_flag flags[] = {
        {.name = "key",
         .letter = 'k',
         .type = CLI_STRING,
         .out = &key,
         .value = "FILE",
         .help = "models: the private key, PEM, as new-key writes it (or `openssl genpkey -algorithm ed25519`)."},
        {.name = "follow-symlinks",
         .type = CLI_BOOL,
         .out = &follow,
         .help = "models: sign also what links lead to outside of the repository (as repository.follow_symlinks)."},
    };
    const struct cli_spec spec = {
        .command = self, .flags = flags, .n_flags = COUNT_OF(flags), .min_arguments = 2, .max_arguments = CLI_LIST_MAX};
    int code = cli_parse(&spec, argc, argv, &arguments), rc;
    if (code != CLI_GO)
        return code;
    if (strcmp(arguments.v[0], "new-key") == 0) {
        if (arguments.n != 2)
            return cli_usage_error(self, "new-key takes one file");
        rc = new_key(arguments.v[1], &err);
    } else if (strcmp(arguments.v[0], "models") == 0) {
        if (!key)
            return cli_usage_error(self, "models needs --key FILE");
        rc = sign_models(key, &arguments, follow, &err);
    } else {
        return cli_usage_error(self, "there is no 'sign %s'; give new-key or models", arguments.v[0]);
    }
    return rc ? cli_fail("%s", err.text) : CLI_OK;
}

const struct cli_command command_sign = {
    .name = "sign",
    .arguments = "new-key FILE | models --key FILE REPOSITORY|MODEL...",
    .summary = "Sign the files of models, so that a server loads only what you signed.",
    .details =
        "new-key writes a private key to FILE and its public half to FILE.pub, which goes into models.signature_keys. models\n"
        "writes inferd.sig beside each version: sign after sealing, and again after any change, also of the config.",
    .run = run,
};
