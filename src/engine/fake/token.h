/* token.h: for siblings in engine/fake: the token face of a scripted model: answers in pieces at intervals. */
#ifndef INFERD_ENGINE_FAKE_TOKEN_H
#define INFERD_ENGINE_FAKE_TOKEN_H

#include "engine/fake/script_priv.h"

struct fake_tokens;

/* `s` is borrowed and must outlive it. Starts the step thread. */
int fake_tokens_create(const struct fake_script *s, struct fake_tokens **out, struct error *err) MUST_CHECK;
/* Ends every request with FAILED and joins the thread. NULL accepted. */
void fake_tokens_destroy(struct fake_tokens *t);

/* The slots of engine_ops, for engine_model.tokens. */
int fake_tokens_submit(struct fake_tokens *t, const struct token_request *req, uint64_t *id, struct error *err);
void fake_tokens_cancel(struct fake_tokens *t, uint64_t id);
int fake_tokens_encode(struct str text, int32_t **tokens, size_t *n, struct error *err);
int fake_tokens_decode(const int32_t *tokens, size_t n, struct buf *out, struct error *err);
const struct engine_text *fake_tokens_text(const struct fake_tokens *t);
int fake_tokens_chat(const struct fake_tokens *t, struct str args, size_t max_tok, int32_t **tokens, size_t *n,
                     struct error *err);
void fake_tokens_progress(const struct fake_tokens *t, uint64_t *steps, bool *busy);

#endif
