// The paper's sections 2.1 to 2.6: chunks of 16 blocks of 64 bytes are the leaves of a binary tree whose left subtrees
// are complete; every node is the compression of its children's chaining values.
#include "base/blake3.h"

namespace doppler {
namespace {

constexpr uint32_t kIv[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr uint8_t kPermutation[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
constexpr uint32_t kBlock = 64, kBlocksOfChunk = 16, kRounds = 7;
enum Flag : uint32_t { kChunkStart = 1, kChunkEnd = 2, kParent = 4, kRoot = 8 };

// Which word of the message a round takes where: the permutation, applied once more for each round.
struct Schedule {
  uint8_t word[kRounds][16];
};
constexpr Schedule make_schedule() {
  Schedule s = {};
  for (uint8_t i = 0; i < 16; ++i) s.word[0][i] = i;
  for (uint32_t round = 1; round < kRounds; ++round) {
    for (uint32_t i = 0; i < 16; ++i) s.word[round][i] = s.word[round - 1][kPermutation[i]];
  }
  return s;
}
constexpr Schedule kSchedule = make_schedule();

inline uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

inline void mix(uint32_t* v, int a, int b, int c, int d, uint32_t x, uint32_t y) {
  v[a] += v[b] + x;
  v[d] = rotate(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = rotate(v[b] ^ v[c], 12);
  v[a] += v[b] + y;
  v[d] = rotate(v[d] ^ v[a], 8);
  v[c] += v[d];
  v[b] = rotate(v[b] ^ v[c], 7);
}

// The first eight words of the output, which are all that a digest of 32 bytes needs. `out` may be `chain`.
void compress(Blake3::Kind kind, const uint32_t* chain, const uint32_t* m, uint64_t counter, uint32_t size,
              uint32_t flags, uint32_t* out) {
  const bool variant = kind == Blake3::kVariant;
  uint32_t v[16];
  for (int i = 0; i < 8; ++i) v[i] = chain[i];
  for (int i = 0; i < 4; ++i) v[8 + i] = kIv[i];
  v[12] = static_cast<uint32_t>(counter);
  v[13] = static_cast<uint32_t>(counter >> 32);
  v[14] = size;
  v[15] = flags;
  for (int i = 4; i < 8 && variant; ++i) v[8 + i] ^= kIv[i];
#pragma GCC unroll 7  // so that words and places are constants
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint8_t* w = kSchedule.word[round];
    mix(v, 0, 4, 8, 12, m[w[0]], m[w[1]]);
    mix(v, 1, 5, 9, 13, m[w[2]], m[w[3]]);
    mix(v, 2, 6, 10, 14, m[w[4]], m[w[5]]);
    mix(v, 3, 7, 11, 15, m[w[6]], m[w[7]]);
    mix(v, 0, 5, 10, 15, m[w[8]], m[w[9]]);
    mix(v, 1, 6, 11, 12, m[w[10]], m[w[11]]);
    mix(v, 2, 7, 8, 13, m[w[12]], m[w[13]]);
    mix(v, 3, 4, 9, 14, m[w[14]], m[w[15]]);
  }
  for (int i = 0; i < 8; ++i) out[i] = v[i] ^ (variant && (flags & kRoot) ? 0 : v[8 + i]);
}

void read_words(const uint8_t* block, uint32_t* words) {
  for (uint32_t i = 0; i < 16; ++i)
    __builtin_memcpy(&words[i], block + 4 * i, 4);  // all machines here are little-endian
}

// Zeros behind the last byte.
void read_words(const uint8_t* block, uint32_t size, uint32_t* words) {
  for (uint32_t i = 0; i < 16; ++i) {
    words[i] = 0;
    for (uint32_t byte = 0; byte < 4 && 4 * i + byte < size; ++byte)
      words[i] |= static_cast<uint32_t>(block[4 * i + byte]) << (8 * byte);
  }
}

void join(const uint32_t* left, const uint32_t* right, uint32_t* words) {
  for (int i = 0; i < 8; ++i) {
    words[i] = left[i];
    words[8 + i] = right[i];
  }
}

}  // namespace

void Blake3::reset() {
  for (int i = 0; i < 8; ++i) chain_[i] = kIv[i];
  size_ = blocks_ = depth_ = 0;
  chunks_ = 0;
}

void Blake3::take_block(const uint8_t* block) {
  uint32_t words[16];
  read_words(block, words);
  compress(kind_, chain_, words, chunks_, kBlock, blocks_ == 0 ? +kChunkStart : 0u, chain_);
  ++blocks_;
}

void Blake3::end_chunk() {
  uint32_t words[16];
  read_words(block_, size_, words);
  compress(kind_, chain_, words, chunks_, size_, kChunkEnd | (blocks_ == 0 ? +kChunkStart : 0u), chain_);
  ++chunks_;
  // As many subtrees are complete now as the number of chunks ends in zeros.
  for (uint64_t rest = chunks_; rest % 2 == 0; rest /= 2) {
    join(subtrees_[--depth_], chain_, words);
    compress(kind_, kIv, words, 0, kBlock, kParent, chain_);
  }
  for (int i = 0; i < 8; ++i) {
    subtrees_[depth_][i] = chain_[i];
    chain_[i] = kIv[i];
  }
  ++depth_;
  size_ = blocks_ = 0;
}

void Blake3::update(const uint8_t* bytes, size_t size) {
  while (size > 0) {
    if (size_ == kBlock && blocks_ + 1 == kBlocksOfChunk) end_chunk();
    if (size_ == kBlock) {
      take_block(block_);
      size_ = 0;
    }
    for (; size_ == 0 && size > kBlock && blocks_ + 1 < kBlocksOfChunk; size -= kBlock, bytes += kBlock)
      take_block(bytes);
    for (; size_ < kBlock && size > 0; --size) block_[size_++] = *bytes++;
  }
}

void Blake3::finish(uint8_t digest[32]) const {
  uint32_t words[16], out[8];
  const uint32_t* chain = chain_;
  uint64_t counter = chunks_;
  uint32_t size = size_, flags = kChunkEnd | (blocks_ == 0 ? +kChunkStart : 0u);
  read_words(block_, size_, words);
  for (uint32_t left = depth_; left > 0;) {
    compress(kind_, chain, words, counter, size, flags, out);
    join(subtrees_[--left], out, words);
    chain = kIv;
    counter = 0;
    size = kBlock;
    flags = kParent;
  }
  compress(kind_, chain, words, 0, size, flags | kRoot, out);
  for (uint32_t i = 0; i < 32; ++i) digest[i] = static_cast<uint8_t>(out[i / 4] >> (8 * (i % 4)));
}

}  // namespace doppler
