/* weight_type.c: the table of weight_type.h. Names and geometry are facts of the ggml file format. */
#include "engine/llm/file/weight_type.h"

#include "base/size.h"

static const struct weight_type_info table[WEIGHT_TYPE_COUNT] = {
    [WEIGHT_F32] = {"F32", 1, 4},
    [WEIGHT_F16] = {"F16", 1, 2},
    [WEIGHT_Q4_0] = {"Q4_0", 32, 18},
    [WEIGHT_Q4_1] = {"Q4_1", 32, 20},
    [WEIGHT_Q5_0] = {"Q5_0", 32, 22},
    [WEIGHT_Q5_1] = {"Q5_1", 32, 24},
    [WEIGHT_Q8_0] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 0, 0},
    [WEIGHT_Q2_K] = {"Q2_K", 256, 84},
    [WEIGHT_Q3_K] = {"Q3_K", 256, 110},
    [WEIGHT_Q4_K] = {"Q4_K", 256, 144},
    [WEIGHT_Q5_K] = {"Q5_K", 256, 176},
    [WEIGHT_Q6_K] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 0, 0},
    [16] = {"IQ2_XXS", 0, 0},
    [17] = {"IQ2_XS", 0, 0},
    [18] = {"IQ3_XXS", 0, 0},
    [19] = {"IQ1_S", 0, 0},
    [20] = {"IQ4_NL", 0, 0},
    [21] = {"IQ3_S", 0, 0},
    [22] = {"IQ2_S", 0, 0},
    [23] = {"IQ4_XS", 0, 0},
    [24] = {"I8", 0, 0},
    [25] = {"I16", 0, 0},
    [26] = {"I32", 0, 0},
    [27] = {"I64", 0, 0},
    [28] = {"F64", 0, 0},
    [29] = {"IQ1_M", 0, 0},
    [WEIGHT_BF16] = {"BF16", 1, 2},
    [34] = {"TQ1_0", 0, 0},
    [35] = {"TQ2_0", 0, 0},
    [39] = {"MXFP4", 0, 0},
};

const struct weight_type_info *weight_type_info(uint32_t id)
{
    return id < WEIGHT_TYPE_COUNT && table[id].name ? &table[id] : NULL;
}

bool weight_type_parse(struct str name, enum weight_type *out)
{
    for (uint32_t id = 0; id < WEIGHT_TYPE_COUNT; id++) {
        if (!weight_type_supported(id) || !str_ieqz(name, table[id].name))
            continue;
        *out = (enum weight_type)id;
        return true;
    }
    return false;
}

bool weight_bytes(enum weight_type t, uint64_t rows, uint64_t cols, size_t *out)
{
    const struct weight_type_info *i = weight_type_info(t);
    size_t bytes;
    if (!i || !i->block_elems || cols % i->block_elems)
        return false;
    return size_mul((size_t)(cols / i->block_elems), i->block_bytes, &bytes) && size_mul(bytes, (size_t)rows, out);
}
