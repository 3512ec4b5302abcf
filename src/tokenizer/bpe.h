// Byte pair encoding: a piece of text becomes its characters' tokens, and then neighbours are merged, the pair with
// the lowest rank first and the leftmost of equals, until no pair has a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/hash_key.h"
#include "tokenizer/text_effort.h"

namespace doppler {

// Tokens and their ids, both ways, in flat tables: about 50 bytes per token beside its text.
class Vocabulary {
 public:
  // Ids lie below this. A file with larger ones is refused: the table by id would fill the memory.
  static constexpr int64_t kIdLimit = int64_t{1} << 23;

  enum class Added { kYes, kTokenTaken, kIdTaken };

  // 0 <= id < kIdLimit.
  Added add(std::string_view token, int32_t id);

  int32_t find(std::string_view token) const { return find(token, hash_of(token)); }  // -1 if it is not there

  // Many look-ups in a row wait less when they are begun together: hash_of and prefetch_slot for each, then
  // prefetch_text for each, then find for each.
  static uint32_t hash_of(std::string_view token) { return static_cast<uint32_t>(HashKey::of_process()(token)); }
  void prefetch_slot(uint32_t hash) const;
  void prefetch_text(uint32_t hash) const;
  int32_t find(std::string_view token, uint32_t hash) const;

  bool has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < extents_.size() && extents_[id].offset != kEmpty;
  }
  std::string_view token(int32_t id) const;  // empty if it is not there; good as long as nothing is added

  size_t size() const { return count_; }
  int32_t id_end() const { return static_cast<int32_t>(extents_.size()); }  // one more than the largest id

 private:
  static constexpr uint32_t kEmpty = 0xFFFFFFFF;
  struct Extent {
    uint32_t offset = kEmpty, length = 0;  // in pool_
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
    Extent extent;  // again, so that a look-up goes from here straight to the text
  };
  std::string_view text(Extent extent) const { return std::string_view(pool_).substr(extent.offset, extent.length); }
  void grow();

  std::string pool_;
  std::vector<Extent> extents_;  // by id
  std::vector<Slot> slots_;      // open addressing, a power of two, at most half full
  size_t count_ = 0;
};

struct Merge {
  int32_t left = 0, right = 0, result = 0;  // ids
};

// The merges of a vocabulary that has scores instead (higher is better, one for each id): every way to put a token
// together from two others, the best token first. Finding them reads a token's bytes as often as it has characters.
std::vector<Merge> merges_from_scores(const Vocabulary& vocabulary, const std::vector<float>& scores);

struct BpeOptions {
  std::optional<std::string> unk_token;  // for characters without a token; without it they are dropped
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unk = false;       // neighbouring unknowns become one
  bool byte_fallback = false;  // an unknown character becomes its bytes' <0xNN> tokens, if they are all there
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
};

// Buffers that one call of Tokenizer::encode uses over and over.
struct BpeScratch {
  std::vector<int32_t> ids;
  std::vector<char32_t> first, last;  // of each initial symbol's token: its first and last character
  std::vector<uint32_t> previous, next, ranks;
  std::vector<uint64_t> initial, heap;
  TextEffort* effort = nullptr;  // hears of every run that is merged on its own, and of every merge in a long one
};

class Bpe {
 public:
  Bpe() = default;
  // `merges` in the order of their ranks; a pair that comes twice has its later rank. `where` names the source.
  Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options, const std::string& where);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Appends the ids of a piece of valid UTF-8. O(n log n) in its length.
  void encode(std::string_view piece, std::vector<int32_t>& ids, BpeScratch& scratch) const;

 private:
  static constexpr uint32_t kNoRank = 0xFFFFFFFF;
  struct Slot {
    int32_t left = -1, right = -1;
    uint32_t rank = kNoRank;
  };

  uint32_t rank_of(int32_t left, int32_t right) const;
  void build_symbols(std::string_view piece, BpeScratch& s) const;
  int32_t id_of_character(char32_t code, std::string_view text) const;
  bool may_merge(char32_t last, char32_t first) const;
  void merge_short(int32_t* ids, size_t count, std::vector<int32_t>& out) const;
  void merge_long(const int32_t* ids, size_t count, std::vector<int32_t>& out, BpeScratch& s) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  HashKey key_ = HashKey::of_process();
  std::vector<Slot> slots_;          // open addressing by pair, a power of two, at most about half full
  std::vector<int32_t> results_;     // by rank
  std::vector<int32_t> characters_;  // by code point below U+10000: its token or -1
  int32_t bytes_[256] = {};          // the <0xNN> tokens or -1
  int32_t unknown_ = -1;
  // One bit for each (hashed) pair of characters that some merge can bring together. Where a bit is clear no token can
  // cross, so the text falls into short runs that are merged on their own.
  std::vector<uint64_t> mergeable_;
};

}  // namespace doppler
