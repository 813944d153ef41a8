/* llm_tokens.c: ids of texts, for tests/tools/tokenizer_oracle.py.
 *
 *   bench_llm_tokens MODEL [special] < texts > ids
 *   bench_llm_tokens pieces NAME < texts > lengths      the cut of pre-tokeniser NAME (tokenizer.ggml.pre) alone, in bytes
 *
 * MODEL: a GGUF file, or a folder with a tokenizer.json (no weights needed). A text is a line of hexadecimal bytes; its ids are a line of numbers.
 * "special": the text may hold control tokens, and BOS, EOS, CLS and SEP are added as the vocabulary says. */
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "engine/llm/file/hf_priv.h"
#include "os/dir.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

static int read_vocab(const char *path, struct model_desc *d, struct error *err)
{
    struct stat st;
    struct json tok = {0}, config = {0};
    char copy[4096];
    int dir = -1;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        int rc = os_dir_open(path, &dir, err);
        if (rc == 0)
            rc = hf__read_json(NULL, dir, "tokenizer.json", JSON_REQUIRED, &tok, err);
        if (rc == 0)
            rc = hf__read_json(NULL, dir, "tokenizer_config.json", JSON_OPTIONAL, &config, err);
        return rc == 0 ? hf__read_tokenizer(tok.root, config.root, d, err) : rc;
    }
    snprintf(copy, sizeof copy, "%s", path);
    int rc = os_dir_open(dirname(copy), &dir, err);
    struct os_map map = {0};
    struct gguf g;
    snprintf(copy, sizeof copy, "%s", path);
    if (rc == 0)
        rc = desc__map_file(dir, basename(copy), d->maps, &map, err);
    if (rc == 0)
        rc = gguf_parse(map.p, map.n, &d->arena, &g, err);
    return rc == 0 ? desc__gguf_tokenizer(&g, d, err) : rc;
}

/* The next text of stdin; false at the end. The caller frees it. */
static bool next_text(char **line, size_t *cap, struct str *out)
{
    if (getline(line, cap, stdin) <= 0)
        return false;
    size_t n = strcspn(*line, "\n") / 2;
    char *text = malloc(n + 1);
    ASSERT(text);
    for (size_t i = 0; i < n; i++) {
        char byte[3] = {(*line)[2 * i], (*line)[2 * i + 1], 0};
        text[i] = (char)strtoul(byte, NULL, 16);
    }
    *out = (struct str){text, n};
    return true;
}

static int print_pieces(const char *name)
{
    const struct pre_rules *r = pre_rules_find(str_of(name));
    struct pre_cut cut;
    struct str text, piece;
    char *line = NULL;
    size_t cap = 0;
    if (!r) {
        fprintf(stderr, "no pre-tokeniser \"%s\"; known: %s\n", name, pre_rules_known());
        return 1;
    }
    while (next_text(&line, &cap, &text)) {
        pre_cut_init(&cut, r, text);
        for (const char *gap = ""; pre_cut_next(&cut, &piece); gap = " ")
            printf("%s%zu", gap, piece.n);
        printf("\n");
        free((char *)text.p);
    }
    free(line);
    return 0;
}

static int print_ids(const struct tokenizer *t, bool special)
{
    struct error err = {0};
    struct str text;
    char *line = NULL;
    size_t cap = 0;
    while (next_text(&line, &cap, &text)) {
        struct text_span span = {text, special};
        struct token_list l = {0};
        if (tokenizer_encode(t, &span, 1, special, 0, &l, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        for (size_t i = 0; i < l.n; i++)
            printf("%s%d", i ? " " : "", l.v[i]);
        printf("\n");
        token_list_release(&l);
        free((char *)text.p);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    struct model_desc d = {0};
    struct tokenizer *t = NULL;
    struct desc_maps maps = {0};
    if (argc == 3 && !strcmp(argv[1], "pieces"))
        return print_pieces(argv[2]);
    arena_init(&d.arena, 1 << 16, 0);
    d.maps = &maps;
    if (argc < 2 || read_vocab(argv[1], &d, &err) < 0 || tokenizer_create(&d.tokenizer, &t, &err) < 0) {
        fprintf(stderr, "%s\n", argc < 2 ? "usage: bench_llm_tokens MODEL [special] | pieces NAME" : err.text);
        return 1;
    }
    return print_ids(t, argc > 2 && !strcmp(argv[2], "special"));
}
