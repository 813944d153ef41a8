/* log.c: names of the log levels; rendering lives in obs. */
#include "base/log.h"

static const char *const names[] = {"debug", "info", "warn", "error", "off"};

const char *log_level_name(enum log_level level)
{
    return names[level];
}

bool log_level_parse(struct str name, enum log_level *out)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (str_eqz(name, names[i])) {
            *out = (enum log_level)i;
            return true;
        }
    }
    return false;
}
