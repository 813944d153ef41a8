/* analyzer.h: what clang's analyser cannot see by itself, put before every file that ./dev lint tidy reads (never compiled).
 *
 * error_set returns the code it was given, and a code is never 0. Without this the analyser follows paths on which an error
 * was reported and the function still returned success, and finds null pointers there that cannot be. */
#ifndef INFERD_TOOLS_ANALYZER_H
#define INFERD_TOOLS_ANALYZER_H

#include "base/error.h"

#define error_set(err, code, ...) ((error_set)((err), (code), __VA_ARGS__), (code))

#endif
