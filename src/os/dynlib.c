/* dynlib.c: dlopen and friends. */
#include "os/dynlib.h"

#include <dlfcn.h>

#include "base/status.h"

int os_dynlib_open(const char *name, void **library, struct error *err)
{
    *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!*library)
        return error_set(err, STATUS_UNAVAILABLE, "%s", dlerror());
    return STATUS_OK;
}

void *os_dynlib_symbol(void *library, const char *symbol)
{
    return dlsym(library, symbol);
}
