/* fake.h: a scripted batch engine: what a model takes and gives, how long it takes, and how it fails, from a text file.
 * The grammar of model.fake is in README.md. Used by tests, by the demo of failure handling and by `inferd bench` runs
 * that must not measure a real runtime. */
#ifndef INFERD_ENGINE_FAKE_FAKE_H
#define INFERD_ENGINE_FAKE_FAKE_H

#include "engine/engine.h"

extern const struct engine_ops engine_fake; /* name "fake", file "model.fake" */

#endif
