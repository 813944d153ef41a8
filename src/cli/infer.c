/* infer.c: `inferd infer`: one request made from files and JSON, its answer for people. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/show.h"
#include "cli/table.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/terminal.h"
#include "tensor/npy.h"

struct options {
    struct kserve_request_options request;
    struct inputs_media media;
    const char *save;
    uint32_t classes, priority;
    bool json, all, random, describe;
};

struct infer {
    struct options o;
    struct http_client *client;
    struct arena arena;
    struct kserve_model *model;
    struct inputs in;
};

/* ---- what the model wants ---- */

static void add_ios(struct table *t, const char *kind, const struct kserve_io *io, size_t n)
{
    char shape[256];
    for (size_t i = 0; i < n; i++) {
        table_cell(t, "%s", kind);
        table_cell(t, "%.*s", STR_ARG(io[i].name));
        table_cell(t, "%s", dtype_name(io[i].dtype));
        table_cell(t, "%s%s", shape_format(&io[i].shape, shape, sizeof shape), io[i].optional ? " optional" : "");
    }
}

static void describe(const struct kserve_model *m)
{
    static const char *const titles[] = {"", "NAME", "TYPE", "SHAPE", NULL};
    struct cli_style style = cli_style(stdout);
    struct table t;
    printf("%s%.*s%s", style.bold, STR_ARG(m->name), style.off);
    if (m->versions.n)
        printf(memchr(m->versions.p, ',', m->versions.n) ? " versions %.*s" : " version %.*s", STR_ARG(m->versions));
    if (m->platform.n)
        printf(" (%.*s)", STR_ARG(m->platform));
    printf(m->max_batch ? ", batches of up to %u rows\n" : ", no batching\n", m->max_batch);
    table_init(&t, titles);
    add_ios(&t, "input", m->inputs, m->n_inputs);
    add_ios(&t, "output", m->outputs, m->n_outputs);
    table_print(&t, stdout);
    table_release(&t);
}

/* ---- the request ---- */

static int missing_inputs(struct infer *f, struct error *err)
{
    struct buf names;
    size_t missing = 0;
    buf_init(&names);
    for (size_t i = 0; i < f->model->n_inputs; i++) {
        const struct kserve_io *io = &f->model->inputs[i];
        bool given = io->optional;
        for (size_t k = 0; k < f->in.n; k++)
            given = given || str_eq(f->in.tensors[k].name, io->name);
        if (given)
            continue;
        buf_printf(&names, "%s%.*s", missing++ ? ", " : "", STR_ARG(io->name));
    }
    int rc = 0;
    if (missing)
        rc = error_set(err, STATUS_INVALID, "no data for %s: give FILE, NAME=FILE, --data NAME=JSON, or --random",
                       buf_z(&names));
    buf_release(&names);
    return rc;
}

static int make_inputs(struct infer *f, const struct cli_list *arguments, struct error *err)
{
    struct inputs_generate g = {
        .rows = 1, .dynamic = 16, .shapes = f->o.request.shapes, .zero = f->o.request.zero, .int_below = 100};
    int rc = 0;
    for (size_t i = 0; i < f->o.request.data.n && rc == 0; i++)
        rc = inputs_add_json(&f->in, f->model, f->o.request.data.v[i], err);
    for (size_t i = 1; i < arguments->n && rc == 0; i++)
        rc = inputs_add_file(&f->in, f->model, arguments->v[i], &f->o.media, err);
    rand_init(&g.rand, 1);
    if (rc == 0 && (f->o.random || f->o.request.zero))
        rc = inputs_generate(&f->in, f->model, &g, err);
    return rc == 0 ? missing_inputs(f, err) : rc;
}

static size_t answer_header(const struct http_client_answer *a)
{
    struct str v = http_client_header(a, "Inference-Header-Content-Length");
    uint64_t n;
    return v.p && str_to_u64(v, &n) && n <= SIZE_MAX ? (size_t)n : 0;
}

static int call(struct infer *f, struct http_client_answer *answer, struct error *err)
{
    const struct kserve_request r = {.inputs = f->in.tensors,
                                     .n_inputs = f->in.n,
                                     .json = f->o.json,
                                     .outputs = f->o.request.outputs.v,
                                     .n_outputs = f->o.request.outputs.n,
                                     .classes = f->o.classes,
                                     .priority = f->o.priority};
    struct buf body, path;
    struct http_header headers[2];
    char length[24], deadline[KSERVE_DEADLINE_BYTES];
    size_t header_bytes = 0, n = 0;
    buf_init(&body);
    buf_init(&path);
    int rc = kserve_request_build(&r, f->model, &body, &header_bytes, err);
    kserve_model_path(&path, f->model->name.p, f->o.request.version);
    buf_append_z(&path, "/infer");
    snprintf(length, sizeof length, "%zu", header_bytes);
    if (header_bytes)
        headers[n++] = (struct http_header){STR("Inference-Header-Content-Length"), str_of(length)};
    if (f->o.request.deadline_ns)
        headers[n++] = kserve_deadline_header(f->o.request.deadline_ns, deadline);
    if (rc == 0)
        rc = kserve_call(f->client, "POST", buf_z(&path), headers, n, buf_str(&body), answer, err);
    buf_release(&body);
    buf_release(&path);
    return rc;
}

/* ---- the answer ---- */

/* Output names may hold slashes and more: a file name keeps letters, digits, '.', '_' and '-'. */
static int save(const struct tensor *t, const char *folder, struct error *err)
{
    struct buf path, file;
    buf_init(&path);
    buf_init(&file);
    buf_append_z(&path, folder);
    buf_append_c(&path, '/');
    for (size_t i = 0; i < t->name.n; i++) {
        char c = t->name.p[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
                     (c == '.' && i);
        buf_append_c(&path, plain ? c : '_');
    }
    buf_append_z(&path, ".npy");
    int rc = npy_write(t, &file, err);
    if (rc == 0)
        rc = os_file_write_atomic(buf_z(&path), file.p, file.n, 0644, err);
    if (rc == 0)
        fprintf(stderr, "saved %s\n", buf_z(&path));
    buf_release(&path);
    buf_release(&file);
    return rc;
}

static int print_outputs(struct infer *f, const struct kserve_answer *a, double ms, struct error *err)
{
    struct cli_style style = cli_style(stdout);
    const struct show_options show = {.all = f->o.all, .width = os_terminal_columns(1)};
    int rc = 0;
    for (size_t i = 0; i < a->n_outputs && rc == 0; i++) {
        if (i)
            putchar('\n');
        if (!f->o.classes || !show_classes(&a->outputs[i], stdout))
            show_tensor(&a->outputs[i], &show, stdout);
        if (f->o.save)
            rc = save(&a->outputs[i], f->o.save, err);
    }
    printf("%s%.*s%s%.*s answered in %.2f ms%s\n", style.dim, STR_ARG(a->model_name), a->model_version.n ? " version " : "",
           STR_ARG(a->model_version), ms, style.off);
    return rc;
}

static int print_json(struct str body)
{
    fwrite(body.p ? body.p : "", 1, body.n, stdout);
    putchar('\n');
    return CLI_OK;
}

static int run_infer(struct infer *f, const struct cli_list *arguments, struct error *err)
{
    struct http_client_answer answer;
    struct kserve_answer parsed;
    int rc = kserve_connect(&f->o.request.server, &f->client, err);
    if (rc == 0)
        rc = kserve_model_get(f->client, arguments->v[0], f->o.request.version, &f->arena, f->model, err);
    if (rc == 0 && (f->o.describe || (arguments->n == 1 && !f->o.request.data.n && !f->o.random && !f->o.request.zero))) {
        describe(f->model);
        return 0;
    }
    if (rc == 0)
        rc = make_inputs(f, arguments, err);
    uint64_t start = os_monotonic_ns();
    if (rc == 0)
        rc = call(f, &answer, err);
    double ms = (double)(os_monotonic_ns() - start) * 1e-6;
    if (rc < 0)
        return rc;
    if (f->o.json)
        return print_json(answer.body);
    rc = kserve_answer_parse(answer.body, answer_header(&answer), &f->arena, &parsed, err);
    if (rc < 0)
        return rc;
    rc = print_outputs(f, &parsed, ms, err);
    kserve_answer_release(&parsed);
    return rc;
}

static const char *const scales[] = {"unit", "signed", "imagenet", "none", NULL};

#define S struct options

/* clang-format off */
static const struct cli_flag flags[] = {
    CLI_FLAG_BOOL(S, random, "random", 0, "Random data for inputs that have none."),
    CLI_FLAG_COUNT(S, classes, "classes", 'k', "K", 1, 1000000, "The K highest classes of each output, with labels where the model has them."),
    CLI_FLAG_WORD(S, media.scale, "scale", 0, scales, "Pictures as floats: unit 0..1 (default), signed -1..1, imagenet (mean and deviation), none 0..255."),
    CLI_FLAG_BOOL(S, media.bgr, "bgr", 0, "Pictures: blue first."),
    CLI_FLAG_COUNT(S, media.rate, "rate", 0, "HZ", 1000, 384000, "Sounds: resample to this rate."),
    CLI_FLAG_BOOL(S, media.cast, "cast", 0, "Convert arrays to the input's type."),
    CLI_FLAG_COUNT(S, priority, "priority", 0, "N", 0, 0, "Priority level, 1 is the most urgent."),
    CLI_FLAG_BOOL(S, all, "all", 'a', "Print every value of large outputs."),
    CLI_FLAG_STRING(S, save, "save", 0, "FOLDER", "Also write each output to FOLDER/NAME.npy."),
    CLI_FLAG_BOOL(S, json, "json", 0, "Send and print the server's JSON instead."),
    CLI_FLAG_BOOL(S, describe, "describe", 0, "Only say what the model takes and gives (the default without data)."),
    KSERVE_REQUEST_FLAGS(S, request),
    KSERVE_SERVER_FLAGS(S, request.server),
};
/* clang-format on */

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct infer f = {.o.media.scale = "unit"};
    struct cli_list arguments;
    struct error err = {0};
    kserve_server_init(&f.o.request.server);
    const struct cli_spec spec = {.command = self,
                                  .flags = flags,
                                  .n_flags = COUNT_OF(flags),
                                  .options = &f.o,
                                  .min_arguments = 1,
                                  .max_arguments = KSERVE_IO_MAX + 1};
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    arena_init(&f.arena, 65536, 0);
    inputs_init(&f.in);
    f.model = ARENA_NEW(&f.arena, struct kserve_model);
    if (!f.model)
        (void)error_set(&err, STATUS_NOMEM, "not enough memory");
    code = !f.model || run_infer(&f, &arguments, &err) < 0 ? cli_fail("%s", err.text) : CLI_OK;
    inputs_release(&f.in);
    http_client_destroy(f.client);
    arena_release(&f.arena);
    if (code == CLI_OK && fflush(stdout) != 0)
        return cli_fail("the output could not be written");
    return code;
}

const struct cli_command command_infer = {
    .name = "infer",
    .arguments = "MODEL [FILE | NAME=FILE]...",
    .summary = "Send one request made from files or JSON, and print the answer readably.",
    .details =
        "FILE is a .npy array, a .json file (an input's data, an object of inputs by name, or a whole request), a picture "
        "(JPEG,\n"
        "PNG, WebP) or a sound (WAV, FLAC, AIFF, Ogg, MP3), fitted to the input's shape and type; any other file goes as its "
        "bytes\n"
        "into an input of BYTES or UINT8. - is standard input. A file without a name goes to the first input that has none.",
    .run = run,
};
