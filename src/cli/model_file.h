/* model_file.h: a model's configuration file, whatever its spelling, as the JSON that clients and load requests use. */
#ifndef INFERD_CLI_MODEL_FILE_H
#define INFERD_CLI_MODEL_FILE_H

#include "base/buf.h"
#include "base/error.h"

/* Append `path` (.yaml or .yml, .json, anything else is protobuf text format) as Triton's JSON of ModelConfig; warnings go to stderr. What
 * reading it says. Blocks on the file. */
int cli_model_config_json(const char *path, struct buf *out, struct error *err) MUST_CHECK;

#endif
