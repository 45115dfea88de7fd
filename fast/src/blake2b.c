/* See blake2b.h. hashlib costs a Python object and three calls an id; this is one pass without the
 * GIL. The known answers of hapax.kafka.native and a property test compare both. */
#include "blake2b.h"

#include <string.h>

#define BLOCK 128

static const uint64_t START[8] = {
    0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
    0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL};

/* The order of message words by round (RFC 7693, 2.7); rounds 10 and 11 are 0 and 1 again. */
static const uint8_t ORDER[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3}};

static inline uint64_t rotated(uint64_t word, int by) { return (word >> by) | (word << (64 - by)); }

static inline void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
  v[a] += v[b] + x;
  v[d] = rotated(v[d] ^ v[a], 32);
  v[c] += v[d];
  v[b] = rotated(v[b] ^ v[c], 24);
  v[a] += v[b] + y;
  v[d] = rotated(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = rotated(v[b] ^ v[c], 63);
}

static void compress(uint64_t state[8], const uint8_t block[BLOCK], uint64_t total, int last) {
  uint64_t words[16], v[16];
  memcpy(words, block, BLOCK); /* little endian, as this machine is (module.c refuses others) */
  for (int i = 0; i < 8; i++) v[i] = state[i], v[i + 8] = START[i];
  v[12] ^= total;
  if (last) v[14] = ~v[14];
  for (int round = 0; round < 12; round++) {
    const uint8_t *at = ORDER[round];
    for (int i = 0; i < 4; i++) mix(v, i, i + 4, i + 8, i + 12, words[at[2 * i]], words[at[2 * i + 1]]);
    for (int i = 0; i < 4; i++)
      mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, words[at[8 + 2 * i]], words[at[9 + 2 * i]]);
  }
  for (int i = 0; i < 8; i++) state[i] ^= v[i] ^ v[i + 8];
}

void blake2b_16(const uint8_t salt[16], const uint8_t *first, size_t first_len, const uint8_t *rest, size_t rest_len,
                uint8_t out[16]) {
  uint64_t state[8], salted[2];
  uint8_t block[BLOCK];
  size_t total = first_len + rest_len, done = 0;
  memcpy(state, START, sizeof state);
  memcpy(salted, salt, sizeof salted);
  state[0] ^= 0x01010000 ^ 16; /* no key, one tree node, 16 bytes of digest */
  state[4] ^= salted[0];
  state[5] ^= salted[1];
  do {
    size_t size = total - done < BLOCK ? total - done : BLOCK, at = 0;
    memset(block, 0, sizeof block);
    if (done < first_len) {
      at = first_len - done < size ? first_len - done : size;
      memcpy(block, first + done, at);
    }
    if (size > at) memcpy(block + at, rest + (done + at - first_len), size - at);
    done += size;
    compress(state, block, done, done == total);
  } while (done < total);
  memcpy(out, state, 16);
}
