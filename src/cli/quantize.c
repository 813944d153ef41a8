/* quantize.c: `inferd quantize`: a GGUF model with smaller weights. The new file appears under its name only when it is whole. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "cli/commands.h"
#include "engine/llm/file/quantize.h"
#include "os/clock.h"
#include "model/seal.h"
#include "os/file.h"
#include "os/terminal.h"

struct out {
    FILE *f;
    size_t n_tensors;
    bool verbose, live; /* live: stderr is a terminal */
};

static int put(void *ctx, const void *p, size_t n, struct error *err)
{
    struct out *o = ctx;
    if (fwrite(p, 1, n, o->f) != n)
        return error_set(err, STATUS_IO, "the new file could not be written: is the disk full?");
    return 0;
}

static void show(void *ctx, size_t index, const struct gguf_tensor *t, enum weight_type to)
{
    struct out *o = ctx;
    const char *from = weight_type_info((uint32_t)t->type)->name, *name = weight_type_info((uint32_t)to)->name;
    if (o->verbose)
        printf("%-40.*s %10llu x %-8llu %5s -> %s\n", STR_ARG(t->name),
               (unsigned long long)(t->dims[1] * t->dims[2] * t->dims[3]), (unsigned long long)t->dims[0], from,
               to == t->type ? "kept" : name);
    else if (o->live)
        fprintf(stderr, "\r\033[K%zu of %zu  %.*s", index + 1, o->n_tensors, STR_ARG(t->name));
}

static void print_report(const struct quantize_report *r, enum quant_mix mix, double seconds)
{
    printf("%s: %.1f MiB -> %.1f MiB (%.2f x), %u tensors converted, %u kept, %.1f s\n", quant_mix_name(mix),
           (double)r->bytes_before / 1048576.0, (double)r->bytes_after / 1048576.0,
           (double)r->bytes_before / (double)r->bytes_after, r->n_converted, r->n_kept, seconds);
    if (r->n_fallback)
        printf("%u tensors have rows that the type's blocks don't divide and got a larger type\n", r->n_fallback);
}

/* Convert into `part`, which is removed again when that fails. */
static int convert(const struct gguf *g, const char *part, struct quantize_options *o, struct out *out, struct error *err)
{
    struct quantize_report report;
    uint64_t start = os_monotonic_ns();
    out->f = fopen(part, "wb");
    if (!out->f)
        return error_set(err, STATUS_IO, "%s cannot be created", part);
    o->write = put, o->progress = show, o->ctx = out;
    int rc = quantize_gguf(g, o, &report, err);
    if (out->live && !out->verbose)
        fputs("\r\033[K", stderr);
    if (fclose(out->f) != 0 && rc == 0)
        rc = error_set(err, STATUS_IO, "%s could not be written to its end", part);
    if (rc == 0)
        print_report(&report, o->mix, (double)(os_monotonic_ns() - start) / 1e9);
    return rc;
}

static int quantize(const char *from, const char *to, struct quantize_options *o, struct out *out, struct error *err)
{
    struct os_map map = {0};
    struct arena arena;
    struct gguf g = {0};
    struct error ignored;
    int fd = -1, rc = os_file_open(from, &fd, err);
    if (rc == 0)
        rc = os_map_open(fd, &map, err);
    os_close(fd);
    if (rc < 0)
        return rc;
    arena_init(&arena, 1 << 16, 0);
    if (seal_is_sealed(map.p, map.n))
        rc = error_set(err, STATUS_INVALID, "%s is sealed: quantize the plain file, then seal what comes of it", from);
    else
        rc = gguf_parse(map.p, map.n, &arena, &g, err);
    char *part = arena_printf(&arena, "%s.part", to);
    if (rc == 0 && !part)
        rc = error_set(err, STATUS_NOMEM, "out of memory");
    if (rc == 0) {
        out->n_tensors = g.n_tensors;
        rc = convert(&g, part, o, out, err);
        if (rc == 0)
            rc = os_file_rename(part, to, err);
        if (rc < 0 && os_file_remove(part, &ignored) < 0)
            cli_fail("%s", ignored.text);
        gguf_release(&g);
    }
    arena_release(&arena);
    os_map_release(&map);
    return rc;
}

static int run(const struct cli_command *self, int argc, char **argv)
{
    struct quantize_options o = {0};
    struct out out = {.live = os_is_terminal(2)};
    const char *type = "q4_k_m";
    struct cli_list arguments;
    struct error err = {0};
    const struct cli_flag flags[] = {
        {.name = "type",
         .letter = 't',
         .type = CLI_STRING,
         .out = &type,
         .value = "TYPE",
         .help = "What to write; q4_k_m by default."},
        {.name = "threads",
         .type = CLI_COUNT,
         .out = &o.threads,
         .value = "N",
         .help = "Threads; 0: what CPU quota and affinity allow.",
         .min = 0,
         .max = 256},
        {.name = "allow-requantize",
         .type = CLI_BOOL,
         .out = &o.allow_requantize,
         .help = "Convert weights that are quantised already. Quality is worse than from the original."},
        {.name = "verbose", .letter = 'v', .type = CLI_BOOL, .out = &out.verbose, .help = "One line a tensor."},
    };
    const struct cli_spec spec = {
        .command = self, .flags = flags, .n_flags = COUNT_OF(flags), .min_arguments = 2, .max_arguments = 2};
    int code = cli_parse(&spec, argc, argv, &arguments);
    if (code != CLI_GO)
        return code;
    if (!quant_mix_parse(str_of(type), &o.mix))
        return cli_usage_error(self, "--type is \"%s\"; accepted: %s", type, quant_mix_known());
    if (strcmp(arguments.v[0], arguments.v[1]) == 0)
        return cli_usage_error(self, "the new file must have another name");
    if (quantize(arguments.v[0], arguments.v[1], &o, &out, &err) < 0)
        return cli_fail("%s", err.text);
    return CLI_OK;
}

const struct cli_command command_quantize = {
    .name = "quantize",
    .arguments = "IN.gguf OUT.gguf",
    .summary = "Write a GGUF model with its weights in another type.",
    .details = "Types: f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m q6_k.\n"
               "The names with _s, _m and _l are llama.cpp's mixes: a base type, with a better one for the output and a part\n"
               "of attn_v and ffn_down. Rows that a type's blocks don't divide get the next larger type that fits.\n",
    .run = run,
};
