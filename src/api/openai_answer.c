/* openai_answer.c: what a chat's choice has said so far: content, reasoning, calls. */
#include <stdlib.h>

#include "api/openai_priv.h"
#include "base/size.h"
#include "os/random.h"

void openai__answer_init(struct openai_answer *a, const struct openai_format *f)
{
    bool open = f->choice == TOOL_CHOICE_REQUIRED || f->choice == TOOL_CHOICE_NAMED; /* a grammar leaves no room for thoughts */
    calls_init(&a->calls, f->calls, f->named, f->thinking && !open, f->reasoning && !open);
}

void openai__answer_release(struct openai_answer *a)
{
    calls_release(&a->calls);
    buf_release(&a->content);
    buf_release(&a->reasoning);
    for (size_t i = 0; i < a->n_calls; i++) {
        free((void *)a->call[i].name.p);
        buf_release(&a->call[i].arguments);
    }
    free(a->call);
}

/* Mistral's templates accept nine letters and digits and nothing else. */
static void make_id(struct openai_call *k, enum calls_format format)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    if (format != CALLS_MISTRAL) {
        snprintf(k->id, sizeof k->id, "call_%016llx%08llx", (unsigned long long)os_random_u64(),
                 (unsigned long long)(os_random_u64() & 0xffffffff));
        return;
    }
    uint64_t r = os_random_u64();
    for (int i = 0; i < 9; i++, r /= 62)
        k->id[i] = letters[r % 62];
}

static bool add_call(struct openai_answer *a, const struct openai_format *f, struct str name)
{
    if (a->n_calls == OPENAI_CALLS_MAX)
        return false;
    struct openai_call *grown = reallocarray(a->call, a->n_calls + 1, sizeof *grown);
    if (!grown)
        return false;
    a->call = grown;
    struct openai_call *k = &a->call[a->n_calls];
    *k = (struct openai_call){.name = {str_dup(name), name.n}};
    make_id(k, f->calls);
    a->n_calls += k->name.p != NULL;
    return k->name.p != NULL;
}

bool openai__answer_add(struct openai_answer *a, const struct openai_format *f, enum calls_piece kind, struct str text)
{
    struct buf *to = &a->content;
    bool extra = !f->parallel && a->calls.n_calls > 1;
    if (kind == CALLS_BEGIN)
        return !extra && add_call(a, f, text);
    if (kind == CALLS_REASONING)
        to = &a->reasoning;
    if (kind == CALLS_ARGUMENTS) {
        if (extra || a->calls.n_calls > a->n_calls)
            return false;
        to = &a->call[a->n_calls - 1].arguments;
    }
    buf_append_str(to, text);
    return !to->failed;
}

const char *openai__answer_finish(const struct openai_answer *a, const struct openai_format *f)
{
    if (a->finish == TOKEN_FINISH_FILTERED)
        return "content_filter";
    if (a->finish == TOKEN_FINISH_LENGTH)
        return "length";
    return a->n_calls && f->choice != TOOL_CHOICE_NAMED ? "tool_calls" : "stop";
}
