#pragma once

#include <stddef.h>
#include <stdint.h>

namespace doppler {

// BLAKE3 of bytes as they come, without key. Needs no library: a page has it as a module of its own (web/hash).
//
// What the JavaScript engine writes as blake3 is not quite it: a block's place, length and flags are combined with four
// words of the initial state where they should replace them, and the digest is the first half of the last state,
// without the second half. kVariant is that.
class Blake3 {
 public:
  enum Kind : uint32_t { kStandard, kVariant };
  explicit Blake3(Kind kind = kStandard) : kind_(kind) { reset(); }
  void reset();
  void update(const uint8_t* bytes, size_t size);
  void finish(uint8_t digest[32]) const;

 private:
  void take_block(const uint8_t* block);
  void end_chunk();

  Kind kind_;
  uint32_t chain_[8];  // of the chunk that is being read
  uint8_t block_[64];  // its last bytes, not compressed before more follow
  uint32_t size_;      // of block_
  uint32_t blocks_;    // of the chunk, compressed
  uint64_t chunks_;    // before this one
  // Of the subtrees to the left, each a power of two chunks, the largest first: 2^54 chunks are all that there can be.
  uint32_t subtrees_[54][8];
  uint32_t depth_;
};

}  // namespace doppler
