/* replay.c: a main for fuzz targets in builds without libFuzzer: runs the target once over every file it is
 * given, folders included one level deep. Each input is copied to an exact-size block, so that a sanitizer
 * sees any read past its end. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0) {
        perror(path);
        if (f)
            fclose(f);
        return 0;
    }
    size_t n = (size_t)st.st_size;
    uint8_t *data = malloc(n ? n : 1);
    if (data && fread(data, 1, n, f) == n)
        LLVMFuzzerTestOneInput(data, n);
    else
        perror(path);
    free(data);
    fclose(f);
    return 1;
}

static int run_path(const char *path)
{
    DIR *d = opendir(path);
    if (!d)
        return run_file(path);
    int n = 0;
    struct dirent *e;
    char name[4096];
    while ((e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        n += run_file(name);
    }
    closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++)
        n += run_path(argv[i]);
    printf("%d inputs replayed\n", n);
    return n > 0 ? 0 : 1; /* an empty or missing corpus is a mistake */
}
