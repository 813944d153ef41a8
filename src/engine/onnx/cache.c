/* cache.c: optimised models on disk, so that a second start skips the graph optimiser.
 *
 * An entry is "<digest>.onnx" in the cache folder; the digest (SHA-256) covers the model's bytes, the runtime's version, the
 * level, the model's options and this machine's CPU features, since the optimiser lays weights out for the CPU it runs on. The
 * folder belongs to inferd alone (mode 0700): what is in it is loaded without another look.
 *
 * The runtime writes a temporary file; a rename puts it in place, so no reader ever sees half an entry. Entries are forgotten
 * oldest use first once their sum passes the bound. Nothing here may fail a load: trouble is logged and the cache left aside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/status.h"
#include "engine/onnx/onnx_priv.h"
#include "os/dir.h"
#include "os/file.h"
#include "os/random.h"

#define ENTRY_BYTES_MAX ((uint64_t)1 << 30)
#define ENTRIES_MAX     100000

static void add_text(struct sha256 *s, struct str text)
{
    uint64_t n = text.n;
    sha256_add(s, &n, sizeof n); /* lengths keep neighbours apart */
    sha256_add(s, text.p, text.n);
}

/* The line of /proc/cpuinfo that lists instruction sets: "flags" on x86, "Features" on Arm. */
static void add_cpu_features(struct sha256 *s)
{
    struct buf text;
    buf_init(&text);
    if (os_file_read("/proc/cpuinfo", 16 << 20, &text, NULL) == 0) {
        struct str rest = buf_str(&text), line;
        while (str_cut(&rest, '\n', &line)) {
            if (str_starts(line, STR("flags")) || str_starts(line, STR("Features"))) {
                add_text(s, line);
                break;
            }
        }
    }
    buf_release(&text);
}

void onnx__cache_key(const struct onnx_source *src, const char *runtime_version, struct onnx_cache_key *key)
{
    struct sha256 s;
    uint8_t digest[32];
    int level = (int)src->options->level;
    sha256_init(&s);
    add_text(&s, STR("inferd optimised model 1"));
    add_text(&s, str_of(runtime_version));
    sha256_add(&s, &level, sizeof level);
    for (size_t i = 0; i < src->spec->n_options; i++) {
        add_text(&s, src->spec->options[i].key);
        add_text(&s, src->spec->options[i].value);
    }
    add_cpu_features(&s);
    add_text(&s, (struct str){(const char *)src->file.p, src->file.n});
    sha256_finish(&s, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(key->hex + 2 * i, 3, "%02x", digest[i]);
}

static bool entry_path(const struct onnx_options *o, const char *name, const char *suffix, char *path, size_t cap)
{
    int n = snprintf(path, cap, "%.*s/%s%s", STR_ARG(o->cache_dir), name, suffix);
    return n > 0 && (size_t)n < cap;
}

void onnx__cache_get(const struct onnx_options *o, const struct onnx_cache_key *key, struct os_blob *out)
{
    char name[sizeof key->hex + 5], path[1024];
    int dir;
    *out = (struct os_blob){0};
    snprintf(name, sizeof name, "%s.onnx", key->hex);
    if (!entry_path(o, name, "", path, sizeof path) || os_dir_open(o->cache_dir.p, &dir, NULL) < 0)
        return;
    if (os_blob_read(dir, name, false, ENTRY_BYTES_MAX, out, NULL) == 0)
        os_file_touch(path);
    os_close(dir);
}

bool onnx__cache_temp(const struct onnx_options *o, const struct onnx_cache_key *key, struct logger *log, char *path,
                      size_t cap)
{
    struct error err = {0};
    char suffix[32];
    snprintf(suffix, sizeof suffix, ".%016llx.tmp", (unsigned long long)os_random_u64());
    if (os_dir_make(o->cache_dir.p, 0700, &err) == 0 && entry_path(o, key->hex, suffix, path, cap))
        return true;
    LOG(log, LOG_WARN, "onnx_cache_unusable", LOG_S("reason", err.code ? err.text : "the folder's name is too long"));
    return false;
}

struct entry {
    const char *name;
    uint64_t bytes, mtime_ns;
};

static int older(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->mtime_ns < y->mtime_ns ? -1 : x->mtime_ns > y->mtime_ns;
}

static void evict(const struct onnx_options *o, struct logger *log)
{
    struct os_dir_list list = {0};
    int dir;
    if (os_dir_open(o->cache_dir.p, &dir, NULL) < 0)
        return;
    struct entry *entries = NULL;
    if (os_dir_list(dir, ENTRIES_MAX, &list, NULL) == 0)
        entries = calloc(list.n + 1, sizeof entries[0]);
    uint64_t sum = 0;
    size_t n = 0;
    for (size_t i = 0; entries && i < list.n; i++) {
        char path[1024];
        struct os_file_info info;
        if (!str_ends(str_of(list.entries[i].name), STR(".onnx")) || list.entries[i].kind != OS_FILE_REGULAR ||
            !entry_path(o, list.entries[i].name, "", path, sizeof path) || os_file_info(path, &info, NULL) < 0)
            continue;
        entries[n++] = (struct entry){list.entries[i].name, info.size_bytes, info.mtime_ns};
        sum += info.size_bytes;
    }
    if (n)
        qsort(entries, n, sizeof entries[0], older);
    for (size_t i = 0; i < n && sum > o->cache_bytes; i++) {
        char path[1024];
        if (entry_path(o, entries[i].name, "", path, sizeof path) && os_file_remove(path, NULL) == 0) {
            sum -= entries[i].bytes;
            LOG(log, LOG_DEBUG, "onnx_cache_evicted", LOG_S("entry", entries[i].name), LOG_U("bytes", entries[i].bytes));
        }
    }
    free(entries);
    os_dir_list_release(&list);
    os_close(dir);
}

void onnx__cache_commit(const struct onnx_options *o, const struct onnx_cache_key *key, const char *temp, bool keep,
                        struct logger *log)
{
    char path[1024];
    struct error err = {0};
    struct os_file_info info;
    if (os_file_info(temp, &info, NULL) < 0)
        return;
    if (!keep || info.size_bytes == 0 || info.size_bytes > ENTRY_BYTES_MAX || info.size_bytes > o->cache_bytes ||
        !entry_path(o, key->hex, ".onnx", path, sizeof path) || os_file_rename(temp, path, &err) < 0) {
        (void)!os_file_remove(temp, NULL);
        if (err.code)
            LOG(log, LOG_WARN, "onnx_cache_unusable", LOG_S("reason", err.text));
        return;
    }
    evict(o, log);
}

void onnx__cache_drop(const struct onnx_options *o, const struct onnx_cache_key *key)
{
    char path[1024];
    if (entry_path(o, key->hex, ".onnx", path, sizeof path))
        (void)!os_file_remove(path, NULL);
}
