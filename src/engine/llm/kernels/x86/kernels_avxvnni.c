/* kernels_avxvnni.c: AVX2 with the 256-bit VNNI instruction (Alder Lake and later clients, Zen 5). */
#if defined(__x86_64__)
#define AVXVNNI 1
#include "engine/llm/kernels/x86/avx2.inc"

#define KERNELS_NAME kernels_avxvnni
#define KERNELS_TEXT "avxvnni"
#include "engine/llm/kernels/simd/table.inc"
#endif
