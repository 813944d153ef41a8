/* show.h: a tensor for people: its values nested as its shape, the middle of large ones left out; classes as a table. Main thread. */
#ifndef INFERD_CLI_SHOW_H
#define INFERD_CLI_SHOW_H

#include <stdio.h>

#include "tensor/tensor.h"

struct show_options {
    bool all;  /* nothing is left out */
    int width; /* columns */
};

/* Name, dtype, shape, then the values; for numbers of more than 16 elements also min, mean and max. Text is printed as it is with
 * control characters escaped. `t` has passed tensor_check. */
void show_tensor(const struct tensor *t, const struct show_options *o, FILE *f);

/* A BYTES tensor of Triton's classification extension ("value:index[:label]"): rank, label, value, bar. False: it isn't one, and
 * nothing was printed. */
bool show_classes(const struct tensor *t, FILE *f);

#endif
