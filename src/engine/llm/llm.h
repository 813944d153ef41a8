/* llm.h: the language-model engine's entry in the table of engines (cli/engines.c): name "llm", files "model.gguf" and "config.json" (a Hugging Face folder). The token face of
 * engine.h is all of its interface. What it can't do is refused: constrained output and best_of > n with
 * UNIMPLEMENTED or NOT_FOUND. */
#ifndef INFERD_ENGINE_LLM_LLM_H
#define INFERD_ENGINE_LLM_LLM_H

#include "engine/engine.h"

extern const struct engine_ops engine_llm;

#endif
