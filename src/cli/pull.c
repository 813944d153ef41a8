/* pull.c: `inferd pull`: a model from a hub into a model repository: models/NAME/1/model.gguf, or a Hugging Face folder there.
 *
 * A file comes into "FILE.DIGEST.part" beside its place and is moved there when its length and SHA-256 are what the hub said; a transfer
 * that broke off goes on where it ended, by itself a few times, and at the next call. Another content has another digest, so parts of
 * different files never mix. The hub is $HF_ENDPOINT, the token $HF_TOKEN, as with the hub's own tools. */
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/pull_hub.h"
#include "cli/table.h"
#include "net/fetch.h"
#include "os/clock.h"
#include "os/dir.h"
#include "os/file.h"
#include "os/terminal.h"

#define HUB            "https://huggingface.co"
#define LISTING_MAX    (16u << 20)
#define TRIES          5
#define PROGRESS_NS    100000000u
#define PART_BUFFER    (1u << 20)
#define VERSION_FOLDER "1"

struct pull {
    const char *repository, *wanted, *revision, *to, *name;
    bool quiet;
    const char *endpoint, *token;
    struct arena arena;
    struct fetch *fetch;
    struct buf listing;
    /* the transfer under way */
    const struct hub_file *file;
    FILE *out;
    struct sha256 sha;
    uint64_t have, from, begin_ns, shown_ns, begin_bytes;
    bool restarted; /* the server began at 0 though asked to go on */
    bool write_failed;
};

/* ---- progress ---- */

static void show_progress(struct pull *p, bool last)
{
    char done[32], whole[32], rate[32], bar[31];
    uint64_t now = os_monotonic_ns();
    if (p->quiet || !os_is_terminal(2) || (!last && now - p->shown_ns < PROGRESS_NS))
        return;
    p->shown_ns = now;
    double share = p->file->size && p->file->size != UINT64_MAX ? (double)p->have / (double)p->file->size : 0;
    double seconds = (double)(now - p->begin_ns) * 1e-9;
    size_t full = (size_t)(share * 30);
    memset(bar, '.', 30);
    memset(bar, '#', MIN_OF(full, (size_t)30));
    bar[30] = 0;
    fprintf(stderr, "\r[%s] %3.0f %%  %s of %s  %s/s  %s\033[K", bar, share * 100,
            table_bytes((double)p->have, done, sizeof done),
            p->file->size == UINT64_MAX ? "?" : table_bytes((double)p->file->size, whole, sizeof whole),
            table_bytes(seconds > 0 ? (double)(p->have - p->begin_bytes) / seconds : 0, rate, sizeof rate), p->file->path);
    if (last)
        fputc('\n', stderr);
}

/* ---- one file ---- */

static const char *place_of(struct pull *p, bool gguf, const struct hub_file *f)
{
    return arena_printf(&p->arena, "%s/%s/" VERSION_FOLDER "/%s", p->to, p->name, gguf ? "model.gguf" : f->path);
}

static int begin_anew(struct pull *p)
{
    sha256_init(&p->sha);
    p->have = 0;
    return fseek(p->out, 0, SEEK_SET) == 0 ? 0 : STATUS_IO;
}

static int on_body(void *ctx, int status, struct str part)
{
    struct pull *p = ctx;
    if (p->from && status != 206 && !p->restarted) { /* it sends everything again */
        p->restarted = true;
        if (begin_anew(p) < 0)
            return STATUS_IO;
    }
    p->write_failed = fwrite(part.p, 1, part.n, p->out) != part.n;
    if (p->write_failed)
        return STATUS_IO;
    sha256_add(&p->sha, part.p, part.n);
    p->have += part.n;
    show_progress(p, false);
    return 0;
}

/* Take up a part that is there: its bytes go through the digest first. */
static int open_part(struct pull *p, const char *part, struct error *err)
{
    char *buffer = malloc(PART_BUFFER);
    size_t n;
    sha256_init(&p->sha);
    p->have = 0;
    p->out = fopen(part, "r+b");
    if (!p->out)
        p->out = fopen(part, "w+b");
    if (!p->out || !buffer) {
        free(buffer);
        return error_set(err, p->out ? STATUS_NOMEM : STATUS_IO, "%s can't be written", part);
    }
    while ((n = fread(buffer, 1, PART_BUFFER, p->out)) > 0) {
        sha256_add(&p->sha, buffer, n);
        p->have += n;
    }
    free(buffer);
    if (p->file->size != UINT64_MAX && p->have > p->file->size)
        return begin_anew(p);
    return fseek(p->out, 0, SEEK_END) == 0 ? 0 : error_set(err, STATUS_IO, "%s can't be read", part);
}

static int refuse(const struct pull *p, const struct fetch_answer *a, struct error *err)
{
    if (a->status == 401 || a->status == 403)
        return error_set(err, STATUS_FORBIDDEN, "the hub refuses %s (status %d)%s", p->repository, a->status,
                         p->token ? ": the token of HF_TOKEN may not read it" : ": it may need a token in HF_TOKEN");
    if (a->status == 404)
        return error_set(err, STATUS_NOT_FOUND, "the hub has no %s at revision %s", p->repository, p->revision);
    return error_set(err, STATUS_IO, "the hub answers %d: %.*s", a->status, STR_ARG(a->error));
}

/* Until it is complete, or doesn't get further. */
static int transfer(struct pull *p, const char *url, struct error *err)
{
    int rc = 0;
    for (int tries = 0; tries < TRIES; tries++) {
        struct fetch_answer a;
        uint64_t before = p->have;
        if (p->file->size != UINT64_MAX && p->have == p->file->size && p->have)
            return 0;
        p->restarted = false;
        p->from = p->have;
        const struct fetch_request r = {.url = url, .token = p->token, .from = p->have, .on_body = on_body, .ctx = p};
        rc = fetch_get(p->fetch, &r, &a, err);
        if (rc == 0 && a.status == 416) /* what is here is no beginning of what is there */
            rc = begin_anew(p) < 0 ? error_set(err, STATUS_IO, "the part can't be rewritten") : STATUS_AGAIN;
        else if (rc == 0 && a.status / 100 != 2)
            return refuse(p, &a, err);
        if (rc == 0 && (p->file->size == UINT64_MAX || p->have >= p->file->size))
            return 0;
        if (p->write_failed)
            return error_set(err, STATUS_IO, "%s can't be written: is the disk full?", p->file->path);
        if (rc == STATUS_UNAVAILABLE || rc == STATUS_INVALID)
            return rc;
        tries = p->have > before ? 0 : tries; /* it gets on */
    }
    if (rc < 0 && rc != STATUS_AGAIN) {
        error_prefix(err, "the transfer of %s breaks off again and again", p->file->path);
        return rc;
    }
    return error_set(err, STATUS_IO, "the transfer of %s breaks off again and again", p->file->path);
}

static int check_part(struct pull *p, const char *part, struct error *err)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t digest[32];
    char hex[65];
    int rc = 0;
    sha256_finish(&p->sha, digest);
    for (int i = 0; i < 32; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[64] = 0;
    if (p->file->size != UINT64_MAX && p->have != p->file->size)
        rc = error_set(err, STATUS_INVALID, "%s has %llu bytes; the hub said %llu", p->file->path, (unsigned long long)p->have,
                       (unsigned long long)p->file->size);
    else if (p->file->sha256 && strcmp(p->file->sha256, hex) != 0)
        rc = error_set(err, STATUS_INVALID, "%s has the SHA-256 %s; the hub said %s: it was damaged on the way, try again",
                       p->file->path, hex, p->file->sha256);
    if (rc < 0 && os_file_remove(part, NULL) < 0)
        fprintf(stderr, "inferd: %s could not be removed\n", part);
    return rc;
}

/* The file at its place has the right length and, where one is known, digest. */
static bool is_there(struct pull *p, const char *place)
{
    struct os_file_info info;
    struct error err;
    if (os_file_info(place, &info, NULL) < 0 || info.size_bytes != p->file->size)
        return false;
    if (!p->file->sha256)
        return true;
    int rc = open_part(p, place, &err);
    if (p->out)
        fclose(p->out);
    p->out = NULL;
    uint8_t digest[32];
    char hex[65];
    sha256_finish(&p->sha, digest);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return rc == 0 && strcmp(hex, p->file->sha256) == 0;
}

static int make_folder(struct pull *p, const char *place, struct error *err)
{
    char *folder = arena_strdup(&p->arena, str_of(place)), *slash = folder ? strrchr(folder, '/') : NULL;
    if (!slash)
        return error_set(err, STATUS_NOMEM, "not enough memory");
    *slash = 0;
    return os_dir_make(folder, 0755, err);
}

static int pull_file(struct pull *p, const struct hub_file *f, bool gguf, struct error *err)
{
    const char *place = place_of(p, gguf, f);
    const char *part = place ? arena_printf(&p->arena, "%s.%.16s.part", place, f->sha256 ? f->sha256 : p->revision) : NULL;
    const char *url = arena_printf(&p->arena, "%s/%s/resolve/%s/%s", p->endpoint, p->repository, p->revision, f->path);
    if (!part || !url)
        return error_set(err, STATUS_NOMEM, "not enough memory");
    p->file = f;
    if (is_there(p, place)) {
        if (!p->quiet)
            fprintf(stderr, "%s is up to date\n", place);
        return 0;
    }
    int rc = make_folder(p, place, err);
    if (rc == 0)
        rc = open_part(p, part, err);
    if (rc < 0)
        return rc;
    p->begin_ns = os_monotonic_ns();
    p->begin_bytes = p->have;
    rc = transfer(p, url, err);
    show_progress(p, true);
    bool closed = fflush(p->out) == 0;
    closed = fclose(p->out) == 0 && closed;
    p->out = NULL;
    if (rc == 0 && !closed)
        rc = error_set(err, STATUS_IO, "%s can't be written: is the disk full?", part);
    if (rc == 0)
        rc = check_part(p, part, err);
    return rc ? rc : os_file_rename(part, place, err);
}

/* ---- the model ---- */

static int on_listing(void *ctx, int status, struct str part)
{
    struct pull *p = ctx;
    (void)status;
    if (p->listing.n + part.n > LISTING_MAX)
        return STATUS_TOO_LARGE;
    buf_append_str(&p->listing, part);
    return 0;
}

static int get_listing(struct pull *p, struct hub_listing *l, struct error *err)
{
    struct fetch_answer a;
    const char *url =
        arena_printf(&p->arena, "%s/api/models/%s/revision/%s?blobs=true", p->endpoint, p->repository, p->revision);
    const struct fetch_request r = {.url = url, .token = p->token, .on_body = on_listing, .ctx = p};
    int rc = url ? fetch_get(p->fetch, &r, &a, err) : error_set(err, STATUS_NOMEM, "not enough memory");
    if (rc == STATUS_TOO_LARGE)
        return error_set(err, rc, "the hub's list of files is longer than %u bytes", LISTING_MAX);
    if (rc == 0 && a.status / 100 != 2)
        return refuse(p, &a, err);
    if (rc == 0)
        rc = hub_listing_parse(buf_str(&p->listing), &p->arena, l, err);
    if (rc == 0)
        p->revision = l->revision; /* all files of one commit, whatever is pushed meanwhile */
    return rc;
}

static int pull_model(struct pull *p, struct error *err)
{
    struct hub_listing l;
    const struct hub_file **files;
    size_t n;
    bool gguf;
    int rc = fetch_create(&p->fetch, err);
    if (rc == 0)
        rc = get_listing(p, &l, err);
    if (rc == 0)
        rc = hub_choose(&l, p->wanted, &p->arena, &files, &n, &gguf, err);
    if (rc == 0 && !p->name && (p->name = hub_model_name(p->repository, &p->arena)) == NULL)
        rc = error_set(err, STATUS_NOMEM, "not enough memory");
    if (rc == 0 && !str_is_model_name(str_of(p->name)))
        rc = error_set(err, STATUS_INVALID, "\"%s\" can't be a model's name; give one with --name", p->name);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = pull_file(p, files[i], gguf, err);
    return rc;
}

/* What may stand in the hub's paths: of a revision ("refs/pr/1") and of a repository. */
static bool is_revision(const char *s)
{
    static const char ok[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/";
    return s[0] && s[0] != '/' && strspn(s, ok) == strlen(s) && !strstr(s, "..");
}

/* OWNER/NAME, or a NAME alone (the hub's oldest have no owner). */
static bool is_repository(const char *s)
{
    const char *slash = strchr(s, '/');
    return is_revision(s) && (!slash || (slash[1] && !strchr(slash + 1, '/')));
}

/* clang-format off */
static const struct cli_flag flags[] = {
    CLI_FLAG_STRING(struct pull, to, "to", 0, "FOLDER", "The model repository (default: models)."),
    CLI_FLAG_STRING(struct pull, name, "name", 0, "NAME", "The model's name there. Default: the last part of REPOSITORY."),
    CLI_FLAG_STRING(struct pull, revision, "revision", 0, "REV", "Branch, tag or commit (default: main)."),
    CLI_FLAG_BOOL(struct pull, quiet, "quiet", 'q', "No progress, only errors."),
};
/* clang-format on */

static int run(const struct cli_command *self, int argc, char **argv)
{
    const char *endpoint = getenv("HF_ENDPOINT"), *token = getenv("HF_TOKEN");
    struct pull p = {.revision = "main",
                     .to = "models",
                     .endpoint = endpoint && *endpoint ? endpoint : HUB,
                     .token = token && *token ? token : NULL};
    struct cli_list arguments;
    struct error err = {0};
    const struct cli_spec spec = {
        .command = self, .flags = flags, .n_flags = COUNT_OF(flags), .options = &p, .min_arguments = 1, .max_arguments = 2};
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    p.repository = arguments.v[0];
    p.wanted = arguments.n > 1 ? arguments.v[1] : NULL;
    if (!is_repository(p.repository))
        return cli_usage_error(self, "'%s' is not a repository of a hub; give OWNER/NAME", p.repository);
    if (!is_revision(p.revision))
        return cli_usage_error(self, "--revision: '%s' is not accepted; give a branch, a tag or a commit", p.revision);
    arena_init(&p.arena, 16384, 0);
    buf_init(&p.listing);
    int rc = pull_model(&p, &err);
    if (rc == 0 && !p.quiet)
        fprintf(stderr, "%s/%s is ready: inferd serve %s\n", p.to, p.name, p.to);
    if (p.out)
        fclose(p.out);
    fetch_destroy(p.fetch);
    buf_release(&p.listing);
    arena_release(&p.arena);
    return rc < 0 ? cli_fail("%s", err.text) : CLI_OK;
}

const struct cli_command command_pull = {
    .name = "pull",
    .arguments = "REPOSITORY [FILE|QUANTISATION]",
    .summary = "Fetch a model from a Hugging Face hub into a model repository.",
    .details = "REPOSITORY is OWNER/NAME on the hub, FILE one of its files or the name of a quantisation, such as Q4_K_M. "
               "Without it:\n"
               "the only GGUF file, the one in Q4_K_M, or else the files of a Hugging Face folder. The hub is $HF_ENDPOINT, "
               "and $HF_TOKEN\n"
               "is sent to it. A transfer that broke off goes on where it ended; length and SHA-256 are checked.\n",
    .run = run,
};
