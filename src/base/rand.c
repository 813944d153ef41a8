/* rand.c: the generator of rand.h. */
#include "base/rand.h"

void rand_init(struct rand *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        r->s[i] = z ^ (z >> 31);
    }
}

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

uint64_t rand_u64(struct rand *r)
{
    uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t rand_below(struct rand *r, uint64_t n)
{
    uint64_t limit = UINT64_MAX - UINT64_MAX % n, v;
    do
        v = rand_u64(r);
    while (v >= limit);
    return v % n;
}

double rand_f64(struct rand *r)
{
    return (double)(rand_u64(r) >> 11) * 0x1p-53;
}
