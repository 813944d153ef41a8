/* chat_template_eval.c: walking the tree: expressions to values, statements to output. Every node costs a step; nested calls are counted, so
 * that neither a loop nor a recursive macro can run away. Scopes as Jinja has them: a loop's body and a macro have their own, `if` does not, and
 * macros see the template's top level. */
#include <string.h>

#include "base/check.h"
#include "base/size.h"
#include "base/status.h"
#include "text/chat_template_priv.h"

int render__fail(struct render *r, int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_vset(r->err, status, fmt, ap);
    va_end(ap);
    error_prefix(r->err, "chat template, line %u", r->line);
    return status;
}

int render__step(struct render *r)
{
    if (r->steps_left == 0)
        return render__fail(r, STATUS_EXHAUSTED, "the template takes more steps than allowed");
    r->steps_left--;
    return 0;
}

/* ---- names ---- */

static struct binding *find(const struct scope *s, struct str name, bool up)
{
    for (; s; s = up ? s->parent : NULL)
        for (struct binding *b = s->first; b; b = b->next)
            if (str_eq(b->name, name))
                return b;
    return NULL;
}

int render__bind(struct render *r, struct scope *s, struct str name, const struct value *v)
{
    struct binding *b = find(s, name, false);
    if (!b) {
        b = ARENA_NEW(r->a, struct binding);
        if (!b)
            return render__fail(r, STATUS_EXHAUSTED, "the values of the template take more memory than allowed");
        b->name = name;
        b->next = s->first;
        s->first = b;
    }
    b->v = *v;
    return 0;
}

static int assign_tuple(struct render *r, const struct expr *target, const struct value *v)
{
    struct list_value *l;
    int rc = value_iterate(r, v, &l);
    if (rc == 0 && l->n != target->n_items)
        return render__fail(r, STATUS_INVALID, "%zu values for %zu names", l->n, target->n_items);
    for (size_t i = 0; rc == 0 && i < target->n_items; i++)
        rc = render__assign(r, target->items[i], &l->v[i]);
    return rc;
}

int render__assign(struct render *r, const struct expr *target, const struct value *v)
{
    struct value object, key;
    switch (target->kind) {
    case EXPR_NAME:
        return render__bind(r, r->scope, target->name, v);
    case EXPR_TUPLE:
        return assign_tuple(r, target, v);
    case EXPR_ATTR: {
        int rc = render__eval(r, target->a, &object);
        if (rc == 0 && (object.kind != VALUE_DICT || !object.d->is_namespace))
            return render__fail(r, STATUS_INVALID, "only a namespace's attributes can be set");
        if (rc == 0)
            rc = value_str(r, target->name, true, &key);
        return rc == 0 ? dict_put(r, object.d, &key, v) : rc;
    }
    default:
        return render__fail(r, STATUS_INVALID, "this can't be assigned to");
    }
}

/* ---- expressions ---- */

static int eval_args(struct render *r, const struct expr *e, struct args *out)
{
    struct value *v = arena_array(r->a, e->n_items ? e->n_items : 1, sizeof *v);
    if (!v)
        return render__fail(r, STATUS_EXHAUSTED, "the values of the template take more memory than allowed");
    *out = (struct args){v, e->names, e->n_items};
    for (size_t i = 0; i < e->n_items; i++) {
        int rc = render__eval(r, e->items[i], &v[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int eval_sequence(struct render *r, const struct expr *e, struct value *out)
{
    int rc = value_list(r, e->n_items, e->kind == EXPR_TUPLE, out);
    for (size_t i = 0; rc == 0 && i < e->n_items; i++) {
        struct value v;
        rc = render__eval(r, e->items[i], &v);
        if (rc == 0)
            rc = list_push(r, out->l, &v);
    }
    return rc;
}

static int eval_dict(struct render *r, const struct expr *e, struct value *out)
{
    int rc = value_dict(r, out);
    for (size_t i = 0; rc == 0 && i + 1 < e->n_items; i += 2) {
        struct value k, v;
        rc = render__eval(r, e->items[i], &k);
        if (rc == 0)
            rc = render__eval(r, e->items[i + 1], &v);
        if (rc == 0)
            rc = dict_put(r, out->d, &k, &v);
    }
    return rc;
}

/* One bound of a slice, or `fallback`. */
static int slice_part(struct render *r, const struct expr *e, int64_t fallback, int64_t *out)
{
    struct value v;
    *out = fallback;
    if (!e)
        return 0;
    int rc = render__eval(r, e, &v);
    if (rc == 0 && v.kind == VALUE_INT)
        *out = v.i;
    else if (rc == 0 && v.kind != VALUE_NONE)
        rc = render__fail(r, STATUS_INVALID, "a slice's bound is a %s", value_type(&v));
    return rc;
}

/* Python's rules: negative bounds count from the end, all are clipped. */
static int64_t clip(int64_t i, int64_t n, int64_t step)
{
    if (i < 0)
        i = i + n < 0 ? (step < 0 ? -1 : 0) : i + n;
    else if (i >= n)
        i = step < 0 ? n - 1 : n;
    return i;
}

static int eval_slice(struct render *r, const struct expr *e, struct value *out)
{
    struct value v;
    struct list_value *l;
    int64_t step, from, to;
    int rc = render__eval(r, e->a, &v);
    if (rc == 0)
        rc = slice_part(r, e->items[2], 1, &step);
    if (rc == 0 && step == 0)
        return render__fail(r, STATUS_INVALID, "a slice's step is 0");
    if (rc == 0 && v.kind != VALUE_LIST && v.kind != VALUE_STR)
        return render__fail(r, STATUS_INVALID, "a %s has no slices", value_type(&v));
    if (rc == 0)
        rc = value_iterate(r, &v, &l);
    if (rc < 0)
        return rc;
    int64_t n = (int64_t)l->n;
    rc = slice_part(r, e->items[0], step < 0 ? n - 1 : 0, &from);
    if (rc == 0)
        rc = slice_part(r, e->items[1], step < 0 ? -n - 1 : n, &to);
    from = clip(from, n, step);
    to = clip(to, n, step);
    struct value list;
    struct builder b;
    builder_init(&b, r->a);
    if (rc == 0)
        rc = value_list(r, 4, v.kind == VALUE_LIST && v.l->tuple, &list);
    for (int64_t i = from; rc == 0 && (step > 0 ? i < to : i > to); i += step) {
        if (v.kind == VALUE_LIST)
            rc = list_push(r, list.l, &l->v[i]);
        else
            builder_add_text(&b, &l->v[i].s, 0, l->v[i].s.n);
    }
    if (rc < 0)
        return rc;
    *out = list;
    if (v.kind == VALUE_LIST)
        return 0;
    out->kind = VALUE_STR;
    return builder_take(r, &b, &out->s);
}

static int eval_test(struct render *r, const struct expr *e, struct value *out)
{
    struct value v;
    struct args args;
    bool yes = false;
    int rc = render__eval(r, e->a, &v);
    if (rc == 0)
        rc = eval_args(r, e, &args);
    if (rc == 0)
        rc = call__test(r, e->name, &v, &args, &yes);
    *out = value_bool(yes != e->negated);
    return rc;
}

static int eval_filter(struct render *r, const struct expr *e, const struct value *input, struct value *out)
{
    struct value v;
    struct args args;
    int rc = 0;
    if (e->a && e->a->kind == EXPR_FILTER && input)
        rc = eval_filter(r, e->a, input, &v);
    else if (e->a)
        rc = render__eval(r, e->a, &v);
    else
        v = *input;
    if (rc == 0)
        rc = eval_args(r, e, &args);
    return rc == 0 ? call__filter(r, e->name, &v, &args, out) : rc;
}

static int eval_call(struct render *r, const struct expr *e, const struct value *caller, struct value *out)
{
    struct value fn;
    struct args args;
    int rc = render__eval(r, e->a, &fn);
    if (rc == 0)
        rc = eval_args(r, e, &args);
    if (rc < 0)
        return rc;
    r->line = e->line;
    if (fn.kind == VALUE_MACRO)
        return render__macro(r, fn.macro, &args, caller, out);
    return call__invoke(r, &fn, &args, out);
}

static int eval_name(struct render *r, const struct expr *e, struct value *out)
{
    const struct binding *b = find(r->scope, e->name, true);
    *out = b ? b->v : call__global(e->name);
    return 0;
}

/* Two operands, and what becomes of them. */
static int eval_binary(struct render *r, const struct expr *e, struct value *out)
{
    struct value a, b;
    int rc = render__eval(r, e->a, &a);
    if (rc == 0)
        rc = render__eval(r, e->b, &b);
    r->line = e->line;
    return rc == 0 ? call__binary(r, e->op, &a, &b, out) : rc;
}

static int eval_sign(struct render *r, const struct expr *e, struct value *out)
{
    int rc = render__eval(r, e->a, out);
    if (rc == 0 && out->kind == VALUE_BOOL)
        *out = value_int(out->b);
    if (rc == 0 && out->kind != VALUE_INT && out->kind != VALUE_FLOAT)
        return render__fail(r, STATUS_INVALID, "a %s has no sign", value_type(out));
    if (rc == 0 && e->kind == EXPR_NEG) {
        if (out->kind == VALUE_FLOAT)
            out->f = -out->f;
        else if (__builtin_sub_overflow((int64_t)0, out->i, &out->i))
            return render__fail(r, STATUS_INVALID, "a number overflows");
    }
    return rc;
}

static int eval_if(struct render *r, const struct expr *e, struct value *out)
{
    struct value condition;
    int rc = render__eval(r, e->b, &condition);
    if (rc < 0)
        return rc;
    if (value_truth(&condition))
        return render__eval(r, e->a, out);
    if (e->c)
        return render__eval(r, e->c, out);
    *out = value_undefined(STR("the else of an inline if"));
    return 0;
}

static int eval_subscript(struct render *r, const struct expr *e, struct value *out)
{
    struct value v, key;
    int rc = render__eval(r, e->a, &v);
    if (rc == 0 && e->kind == EXPR_ITEM)
        rc = render__eval(r, e->b, &key);
    r->line = e->line;
    if (rc < 0)
        return rc;
    if (v.kind == VALUE_UNDEFINED)
        return render__fail(r, STATUS_INVALID, "'%.*s' is undefined", STR_ARG(v.undefined));
    return e->kind == EXPR_ITEM ? call__item(r, &v, &key, out) : call__attribute(r, &v, e->name, out);
}

static int eval_logic(struct render *r, const struct expr *e, struct value *out)
{
    int rc = render__eval(r, e->a, out);
    if (rc == 0 && value_truth(out) == (e->kind == EXPR_AND))
        rc = render__eval(r, e->b, out);
    return rc;
}

int render__eval(struct render *r, const struct expr *e, struct value *out)
{
    int rc = render__step(r);
    if (rc < 0)
        return rc;
    switch (e->kind) {
    case EXPR_LITERAL:
        *out = e->value;
        return 0;
    case EXPR_NAME:
        return eval_name(r, e, out);
    case EXPR_LIST:
    case EXPR_TUPLE:
        return eval_sequence(r, e, out);
    case EXPR_DICT:
        return eval_dict(r, e, out);
    case EXPR_ATTR:
    case EXPR_ITEM:
        return eval_subscript(r, e, out);
    case EXPR_SLICE:
        return eval_slice(r, e, out);
    case EXPR_CALL:
        return eval_call(r, e, NULL, out);
    case EXPR_FILTER:
        return eval_filter(r, e, NULL, out);
    case EXPR_TEST:
        return eval_test(r, e, out);
    case EXPR_NOT:
        rc = render__eval(r, e->a, out);
        *out = value_bool(!value_truth(out));
        return rc;
    case EXPR_NEG:
    case EXPR_POS:
        return eval_sign(r, e, out);
    case EXPR_BINARY:
        return eval_binary(r, e, out);
    case EXPR_AND:
    case EXPR_OR:
        return eval_logic(r, e, out);
    case EXPR_IF:
        return eval_if(r, e, out);
    }
    return render__fail(r, STATUS_INTERNAL, "unknown expression");
}

/* ---- statements ---- */

static int write(struct render *r, const struct value *v)
{
    int rc = value_append(r, r->out, v, false);
    if (rc == 0 && r->out->failed)
        return render__fail(r, STATUS_EXHAUSTED, "the output takes more memory than allowed");
    if (rc == 0 && r->out->n > r->max_output)
        return render__fail(r, STATUS_EXHAUSTED, "the output is longer than %zu bytes", r->max_output);
    return rc;
}

/* Run a body with its output captured as a string. */
static int capture(struct render *r, const struct stmt *body, struct value *out)
{
    struct builder b, *before = r->out;
    builder_init(&b, r->a);
    r->out = &b;
    int rc = render__body(r, body);
    r->out = before;
    out->kind = VALUE_STR;
    return rc == 0 ? builder_take(r, &b, &out->s) : rc;
}

/* The `loop` object of one iteration, a fresh dict each time so that a kept reference stays right. */
static int bind_loop(struct render *r, struct scope *s, const struct list_value *items, size_t i)
{
    const struct {
        const char *name;
        struct value v;
    } fields[] = {
        {"index", value_int((int64_t)i + 1)},
        {"index0", value_int((int64_t)i)},
        {"revindex", value_int((int64_t)(items->n - i))},
        {"revindex0", value_int((int64_t)(items->n - i) - 1)},
        {"first", value_bool(i == 0)},
        {"last", value_bool(i + 1 == items->n)},
        {"length", value_int((int64_t)items->n)},
        {"previtem", i ? items->v[i - 1] : value_undefined(STR("loop.previtem"))},
        {"nextitem", i + 1 < items->n ? items->v[i + 1] : value_undefined(STR("loop.nextitem"))},
    };
    struct value loop, key;
    int rc = value_dict(r, &loop);
    for (size_t f = 0; rc == 0 && f < COUNT_OF(fields); f++) {
        if (fields[f].v.kind == VALUE_UNDEFINED)
            continue;
        rc = value_str(r, str_of(fields[f].name), true, &key);
        if (rc == 0)
            rc = dict_put(r, loop.d, &key, &fields[f].v);
    }
    return rc == 0 ? render__bind(r, s, STR("loop"), &loop) : rc;
}

/* The items that pass `for ... if`. */
static int filter_items(struct render *r, const struct stmt *s, struct list_value **items)
{
    struct value kept;
    struct scope scope = {.parent = r->scope}, *before = r->scope;
    int rc = value_list(r, (*items)->n, false, &kept);
    r->scope = &scope;
    for (size_t i = 0; rc == 0 && i < (*items)->n; i++) {
        struct value yes;
        rc = render__assign(r, s->target, &(*items)->v[i]);
        if (rc == 0)
            rc = render__eval(r, s->filter, &yes);
        if (rc == 0 && value_truth(&yes))
            rc = list_push(r, kept.l, &(*items)->v[i]);
    }
    r->scope = before;
    *items = kept.l;
    return rc;
}

static int run_for(struct render *r, const struct stmt *s)
{
    struct value over;
    struct list_value *items = NULL;
    struct scope *before = r->scope;
    int rc = render__eval(r, s->expr, &over);
    if (rc == 0)
        rc = value_iterate(r, &over, &items);
    if (rc == 0 && s->filter)
        rc = filter_items(r, s, &items);
    if (rc == 0 && items->n == 0)
        return render__body(r, s->other);
    for (size_t i = 0; rc == 0 && i < items->n; i++) {
        struct scope scope = {.parent = before};
        r->scope = &scope;
        rc = bind_loop(r, &scope, items, i);
        if (rc == 0)
            rc = render__assign(r, s->target, &items->v[i]);
        if (rc == 0)
            rc = render__body(r, s->body);
        bool stop = r->flow == FLOW_BREAK;
        r->flow = FLOW_NEXT;
        if (stop)
            break;
    }
    r->scope = before;
    return rc;
}

static int run_set_block(struct render *r, const struct stmt *s)
{
    struct value v;
    int rc = capture(r, s->body, &v);
    if (rc == 0 && s->expr)
        rc = eval_filter(r, s->expr, &v, &v);
    return rc == 0 ? render__assign(r, s->target, &v) : rc;
}

static int run_call(struct render *r, const struct stmt *s)
{
    struct value caller = {.kind = VALUE_MACRO, .macro = s}, v;
    int rc = eval_call(r, s->expr, &caller, &v);
    return rc == 0 ? write(r, &v) : rc;
}

static int run_one(struct render *r, const struct stmt *s)
{
    struct value v;
    int rc = render__step(r);
    r->line = s->line;
    if (rc < 0)
        return rc;
    switch (s->kind) {
    case STMT_TEXT:
        builder_add(r->out, s->text.p, s->text.n, true);
        v = (struct value){.kind = VALUE_STR};
        return write(r, &v); /* for the limits */
    case STMT_OUTPUT:
        rc = render__eval(r, s->expr, &v);
        return rc == 0 ? write(r, &v) : rc;
    case STMT_IF:
        rc = render__eval(r, s->expr, &v);
        return rc == 0 ? render__body(r, value_truth(&v) ? s->body : s->other) : rc;
    case STMT_FOR:
        return run_for(r, s);
    case STMT_SET:
        rc = render__eval(r, s->expr, &v);
        return rc == 0 ? render__assign(r, s->target, &v) : rc;
    case STMT_SET_BLOCK:
        return run_set_block(r, s);
    case STMT_MACRO:
        v = (struct value){.kind = VALUE_MACRO, .macro = s};
        return render__bind(r, r->scope, s->text, &v);
    case STMT_CALL:
        return run_call(r, s);
    case STMT_FILTER:
        rc = capture(r, s->body, &v);
        if (rc == 0)
            rc = eval_filter(r, s->expr, &v, &v);
        return rc == 0 ? write(r, &v) : rc;
    case STMT_BODY:
        return render__body(r, s->body);
    case STMT_BREAK:
    case STMT_CONTINUE:
        r->flow = s->kind == STMT_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
        return 0;
    }
    return render__fail(r, STATUS_INTERNAL, "unknown statement");
}

int render__body(struct render *r, const struct stmt *s)
{
    int rc = 0;
    if (++r->depth > r->max_depth)
        return render__fail(r, STATUS_EXHAUSTED, "the template is nested more than %u deep", r->max_depth);
    for (; rc == 0 && s && r->flow == FLOW_NEXT; s = s->next)
        rc = run_one(r, s);
    r->depth--;
    return rc;
}

/* ---- macros ---- */

/* The value of parameter `i`: positional, by name, its default, or undefined. */
static int parameter(struct render *r, const struct stmt *m, size_t i, const struct args *args, struct value *out)
{
    size_t positional = 0;
    for (size_t k = 0; k < args->n; k++) {
        bool here = args->names[k].n ? str_eq(args->names[k], m->params[i]) : positional++ == i;
        if (here) {
            *out = args->v[k];
            return 0;
        }
    }
    *out = value_undefined(m->params[i]);
    return m->defaults[i] ? render__eval(r, m->defaults[i], out) : 0;
}

int render__macro(struct render *r, const struct stmt *m, const struct args *args, const struct value *caller,
                  struct value *out)
{
    struct scope scope = {.parent = m->kind == STMT_CALL ? r->scope : r->root}, *before = r->scope;
    struct value v;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n_params; i++) {
        rc = parameter(r, m, i, args, &v);
        if (rc == 0)
            rc = render__bind(r, &scope, m->params[i], &v);
    }
    if (rc == 0 && caller)
        rc = render__bind(r, &scope, STR("caller"), caller);
    r->scope = &scope;
    if (rc == 0)
        rc = capture(r, m->body, out);
    r->scope = before;
    return rc;
}
