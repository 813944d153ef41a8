/* sha256.c: the compression function as FIPS 180-4, section 6.2, writes it down, and with the SHA instructions of x86 where the CPU
 * has them (Intel, "Intel SHA Extensions", 2013): some nine times as fast, and models are large. */
#include "base/sha256.h"

#include <stdatomic.h>
#include <string.h>

static const uint32_t k[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
                               0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
                               0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
                               0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
                               0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
                               0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
                               0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
                               0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

/* The eight working variables stay where they are and change names instead: round i's `a` is v[(0 - i) % 8]. */
static void compress(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[16], v[8];
    for (unsigned i = 0; i < 16; i++, p += 4)
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    memcpy(v, h, sizeof v);
#pragma GCC unroll 64
    for (unsigned i = 0; i < 64; i++) {
        uint32_t *at = &v[(0 - i) & 7], e = v[(4 - i) & 7], f = v[(5 - i) & 7], g = v[(6 - i) & 7], *last = &v[(7 - i) & 7];
        if (i >= 16) {
            uint32_t w15 = w[(i - 15) & 15], w2 = w[(i - 2) & 15];
            w[i & 15] += (rotr(w15, 7) ^ rotr(w15, 18) ^ w15 >> 3) + w[(i - 7) & 15] + (rotr(w2, 17) ^ rotr(w2, 19) ^ w2 >> 10);
        }
        uint32_t a = *at, b = v[(1 - i) & 7], c = v[(2 - i) & 7];
        uint32_t t1 = *last + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i & 15];
        v[(3 - i) & 7] += t1;
        *last = t1 + (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

static bool ask_cpu(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}

/* Asked once: in a virtual machine the question itself leaves the guest and takes some microseconds, more than hashing a key. */
static bool has_sha(void)
{
    static _Atomic int
        known; /* Exception: a constant of the machine, found at first use; every thread finds the same. 1 no, 2 yes */
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (!answer) {
        answer = ask_cpu() ? 2 : 1;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == 2;
}

/* The instructions want the state as ABEF and CDGH, and do two rounds each. m[i] holds words 4i to 4i + 3 of the schedule. */
__attribute__((target("sha,sse4.1"))) static void compress_sha(uint32_t h[8], const uint8_t *p)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i dcba = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)h), 0xb1);
    __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(h + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(dcba, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, dcba, 0xf0);
    const __m128i abef0 = abef, cdgh0 = cdgh;
    __m128i m[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        if (i < 4)
            m[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), swap);
        else
            m[i] = _mm_sha256msg2_epu32(
                _mm_add_epi32(_mm_sha256msg1_epu32(m[i - 4], m[i - 3]), _mm_alignr_epi8(m[i - 1], m[i - 2], 4)), m[i - 1]);
        __m128i t = _mm_add_epi32(m[i], _mm_loadu_si128((const __m128i *)(k + 4 * i)));
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, t);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(t, 0x0e));
    }
    abef = _mm_shuffle_epi32(_mm_add_epi32(abef, abef0), 0x1b); /* FEBA */
    cdgh = _mm_shuffle_epi32(_mm_add_epi32(cdgh, cdgh0), 0xb1); /* DCHG */
    _mm_storeu_si128((__m128i *)h, _mm_blend_epi16(abef, cdgh, 0xf0));
    _mm_storeu_si128((__m128i *)(h + 4), _mm_alignr_epi8(cdgh, abef, 8));
}
#else
static bool has_sha(void)
{
    return false;
}
static void compress_sha(uint32_t h[8], const uint8_t *p)
{
    compress(h, p);
}
#endif

void sha256_init(struct sha256 *s)
{
    *s = (struct sha256){.by_cpu = has_sha(),
                         .h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
    const uint8_t *at = p;
    size_t held = s->n % 64;
    s->n += n;
    if (held && n) {
        size_t part = n < 64 - held ? n : 64 - held;
        memcpy(s->block + held, at, part);
        at += part, n -= part;
        if (held + part < 64)
            return;
        (s->by_cpu ? compress_sha : compress)(s->h, s->block);
    }
    for (; n >= 64; at += 64, n -= 64)
        (s->by_cpu ? compress_sha : compress)(s->h, at);
    if (n)
        memcpy(s->block, at, n);
}

static void put_be32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24), p[1] = (uint8_t)(v >> 16), p[2] = (uint8_t)(v >> 8), p[3] = (uint8_t)v;
}

void sha256_finish(struct sha256 *s, uint8_t out[32])
{
    size_t held = s->n % 64;
    s->block[held++] = 0x80;
    memset(s->block + held, 0, 64 - held);
    if (held > 56) {
        (s->by_cpu ? compress_sha : compress)(s->h, s->block);
        memset(s->block, 0, 56);
    }
    put_be32(s->block + 56, (uint32_t)(s->n >> 29));
    put_be32(s->block + 60, (uint32_t)(s->n << 3));
    (s->by_cpu ? compress_sha : compress)(s->h, s->block);
    for (int i = 0; i < 8; i++)
        put_be32(out + 4 * i, s->h[i]);
}
