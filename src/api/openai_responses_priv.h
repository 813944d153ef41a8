/* openai_responses_priv.h: for openai_responses*.c only. */
#ifndef INFERD_API_OPENAI_RESPONSES_PRIV_H
#define INFERD_API_OPENAI_RESPONSES_PRIV_H

#include "api/openai_priv.h"

/* c->doc, a body of /v1/responses, becomes the body of the chat that it asks for; the original is moved to *original, which the caller
 * releases. INVALID: a field, by its name in /v1/responses. Worker thread. */
int openai__responses_to_chat(struct gen_call *c, struct json *original, struct error *err) MUST_CHECK;

#endif
