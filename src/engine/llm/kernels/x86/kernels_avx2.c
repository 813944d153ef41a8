/* kernels_avx2.c: AVX2 with FMA and F16C: a strip is two vectors of 8 rows. */
#if defined(__x86_64__)
#include "engine/llm/kernels/x86/avx2.inc"

#define KERNELS_NAME kernels_avx2
#define KERNELS_TEXT "avx2"
#include "engine/llm/kernels/simd/table.inc"
#endif
