/* seal_keys.c: see seal.h: keys as text, in files and in the environment. A key never appears in an error or a log; its id may. */
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/status.h"
#include "model/seal.h"
#include "os/file.h"

#define KEY_FILE_MAX ((size_t)64 << 10)
#define KEY_DIGITS   (2 * SEAL_KEY_BYTES)
#define ID_CONTEXT   "inferd seal key"
#define OTHERS_MODE  0007u

void seal_id_text(const uint8_t id[SEAL_ID_BYTES], char out[SEAL_ID_TEXT])
{
    for (size_t i = 0; i < SEAL_ID_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", id[i]);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool parse_key(struct str text, struct seal_key *k)
{
    uint8_t named[sizeof ID_CONTEXT - 1 + SEAL_KEY_BYTES], digest[EVP_MAX_MD_SIZE];
    if (text.n != KEY_DIGITS)
        return false;
    for (size_t i = 0; i < SEAL_KEY_BYTES; i++) {
        int high = digit(text.p[2 * i]), low = digit(text.p[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        k->key[i] = (uint8_t)(high << 4 | low);
    }
    memcpy(named, ID_CONTEXT, sizeof ID_CONTEXT - 1);
    memcpy(named + sizeof ID_CONTEXT - 1, k->key, SEAL_KEY_BYTES);
    bool ok = EVP_Digest(named, sizeof named, digest, NULL, EVP_sha256(), NULL) == 1;
    memcpy(k->id, digest, SEAL_ID_BYTES);
    OPENSSL_cleanse(named, sizeof named);
    return ok;
}

const struct seal_key *seal_keys_find(const struct seal_keys *keys, const uint8_t id[SEAL_ID_BYTES])
{
    for (size_t i = 0; i < keys->n; i++)
        if (memcmp(keys->v[i].id, id, SEAL_ID_BYTES) == 0)
            return &keys->v[i];
    return NULL;
}

void seal_keys_wipe(struct seal_keys *keys)
{
    OPENSSL_cleanse(keys, sizeof *keys);
}

static int add_line(struct seal_keys *keys, struct str line, const char *name, size_t number, struct error *err)
{
    struct str part;
    if (line.n && line.p[line.n - 1] == '\r')
        line.n--;
    while (str_cut(&line, ',', &part)) {
        part = str_trim(part);
        if (!part.n)
            continue;
        if (part.p[0] == '#')
            return 0;
        if (keys->n == SEAL_KEYS_MAX)
            return error_set(err, STATUS_INVALID, "%s, line %zu: more than %u keys", name, number, SEAL_KEYS_MAX);
        if (!parse_key(part, &keys->v[keys->n]))
            return error_set(err, STATUS_INVALID, "%s, line %zu: a key has %u hex digits, this is something else of %zu bytes",
                             name, number, KEY_DIGITS, part.n);
        keys->n += seal_keys_find(keys, keys->v[keys->n].id) == NULL;
    }
    return 0;
}

int seal_keys_add(struct seal_keys *keys, struct str text, const char *name, struct error *err)
{
    struct str line;
    int rc = 0;
    for (size_t number = 1; !rc && str_cut(&text, '\n', &line); number++)
        rc = add_line(keys, line, name, number, err);
    return rc;
}

static int add_file(struct seal_keys *keys, const char *path, struct error *err)
{
    struct os_file_info info;
    struct buf text;
    int fd = -1, rc = os_file_open(path, &fd, err);
    if (rc)
        return rc;
    buf_init(&text);
    rc = os_file_info_fd(fd, &info, err);
    if (!rc && (info.mode & OTHERS_MODE))
        rc = error_set(err, STATUS_FORBIDDEN, "%s: everybody on this machine may read this key file (mode %04o): chmod 600 it",
                       path, info.mode & 0777u);
    if (!rc)
        rc = os_file_read_fd(fd, path, KEY_FILE_MAX, &text, err);
    size_t before = keys->n;
    if (!rc)
        rc = seal_keys_add(keys, buf_str(&text), path, err);
    if (!rc && keys->n == before && text.n == 0)
        rc = error_set(err, STATUS_INVALID, "%s holds no key", path);
    if (text.p)
        OPENSSL_cleanse(text.p, text.n);
    buf_release(&text);
    os_close(fd);
    return rc;
}

int seal_keys_load(struct seal_keys *keys, const char *const *files, size_t n, struct error *err)
{
    const char *env = getenv(SEAL_KEY_ENV);
    int rc = 0;
    keys->n = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_file(keys, files[i], err);
    if (!rc && env)
        rc = seal_keys_add(keys, str_of(env), "$" SEAL_KEY_ENV, err);
    if (rc)
        seal_keys_wipe(keys);
    return rc;
}
