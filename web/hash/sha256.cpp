// SHA-256 (FIPS 180-4) as a module of its own, so that a download can be hashed while it arrives. The host writes up to
// kRoom bytes at input() and calls update(); finish() leaves the digest there, twice: other
// modules of this kind have two.
#include <stdint.h>

namespace {

constexpr uint32_t kRoom = 1 << 20;
alignas(16) uint8_t room[kRoom];

constexpr uint32_t kFirst[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
// The fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t state[8];
uint8_t rest[64];  // bytes that do not fill a block yet
uint32_t rest_size;
uint64_t total;

uint32_t rotate_right(uint32_t x, int n) { return x >> n | x << (32 - n); }

void block(const uint8_t* p) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = static_cast<uint32_t>(p[4 * i]) << 24 | static_cast<uint32_t>(p[4 * i + 1]) << 16 |
           static_cast<uint32_t>(p[4 * i + 2]) << 8 | p[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3) + w[i - 7] +
           (rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10);
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
  uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
  for (int i = 0; i < 64; ++i) {
    const uint32_t t1 =
        h + (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t t2 =
        (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += h;
}

void take(const uint8_t* p, uint32_t n) {
  while (n > 0 && rest_size > 0) {
    rest[rest_size++] = *p++;
    --n;
    if (rest_size == 64) {
      block(rest);
      rest_size = 0;
    }
  }
  for (; n >= 64; p += 64, n -= 64) block(p);
  for (; n > 0; --n) rest[rest_size++] = *p++;
}

}  // namespace

extern "C" {

__attribute__((export_name("input"))) uint8_t* input() { return room; }
__attribute__((export_name("room"))) uint32_t input_room() { return kRoom; }

__attribute__((export_name("start"))) void start() {
  for (int i = 0; i < 8; ++i) state[i] = kFirst[i];
  rest_size = 0;
  total = 0;
}

__attribute__((export_name("update"))) void update(uint32_t bytes) {
  total += bytes;
  take(room, bytes);
}

__attribute__((export_name("finish"))) void finish() {
  const uint64_t bits = total * 8;
  const uint8_t one = 0x80, zero = 0;
  take(&one, 1);
  while (rest_size != 56) take(&zero, 1);
  uint8_t size[8];
  for (int i = 0; i < 8; ++i) size[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  take(size, 8);
  for (int i = 0; i < 32; ++i) room[i] = room[32 + i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
}

}  // extern "C"
