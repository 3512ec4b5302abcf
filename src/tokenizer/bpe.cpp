#include "tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>
#include <tuple>

#include "base/error.h"
#include "base/utf8.h"

namespace doppler {

const HashKey& HashKey::of_process() {
  static const HashKey key = [] {
    std::random_device device;
    const auto draw = [&] { return static_cast<uint64_t>(device()) << 32 | device(); };
    return HashKey{draw(), draw() | 1};
  }();
  return key;
}

Vocabulary::Added Vocabulary::add(std::string_view token, int32_t id) {
  if (has(id)) return Added::kIdTaken;
  if ((count_ + 1) * 2 > slots_.size()) grow();
  const uint32_t hash = hash_of(token);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot].id >= 0; slot = (slot + 1) & mask) {
    if (slots_[slot].hash == hash && text(slots_[slot].extent) == token) return Added::kTokenTaken;
  }
  if (pool_.size() + token.size() >= kEmpty) {
    fail({.code = ErrorCode::kMemory, .what = "the vocabulary's texts are too long", .expected = "less than 4 GiB"});
  }
  const Extent extent = {static_cast<uint32_t>(pool_.size()), static_cast<uint32_t>(token.size())};
  slots_[slot] = {hash, id, extent};
  if (static_cast<size_t>(id) >= extents_.size()) extents_.resize(static_cast<size_t>(id) + 1);
  extents_[static_cast<size_t>(id)] = extent;
  pool_.append(token);
  ++count_;
  return Added::kYes;
}

void Vocabulary::prefetch_slot(uint32_t hash) const {
  if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
}

void Vocabulary::prefetch_text(uint32_t hash) const {
  if (slots_.empty()) return;
  const Slot& slot = slots_[hash & (slots_.size() - 1)];
  if (slot.id >= 0) __builtin_prefetch(pool_.data() + slot.extent.offset);
}

int32_t Vocabulary::find(std::string_view token, uint32_t hash) const {
  if (slots_.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot].id >= 0; slot = (slot + 1) & mask) {
    if (slots_[slot].hash == hash && text(slots_[slot].extent) == token) return slots_[slot].id;
  }
  return -1;
}

std::string_view Vocabulary::token(int32_t id) const {
  return has(id) ? text(extents_[static_cast<size_t>(id)]) : std::string_view();
}

void Vocabulary::grow() {
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(old.empty() ? 64 : old.size() * 2, {});
  const size_t mask = slots_.size() - 1;
  for (const Slot& entry : old) {
    if (entry.id < 0) continue;
    size_t slot = entry.hash & mask;
    while (slots_[slot].id >= 0) slot = (slot + 1) & mask;
    slots_[slot] = entry;
  }
}

namespace {

constexpr uint32_t kEnd = 0xFFFFFFFF;    // no neighbour
constexpr size_t kShort = 24;            // up to here looking through all ranks beats a heap
constexpr size_t kPairBits = 1u << 20;   // 128 KiB
constexpr char32_t kTableEnd = 0x10000;  // characters below have their ids in a table

uint64_t pair(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t pair_bit(char32_t last, char32_t first) {
  const uint64_t value = (static_cast<uint64_t>(last) << 32 | first) * 0xD6E8FEB86659FD93u;
  return (value ^ value >> 32) % kPairBits;
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options, const std::string& where)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  if (options_.unk_token) {
    unknown_ = vocabulary_.find(*options_.unk_token);
    if (unknown_ < 0) {
      fail({.code = ErrorCode::kFormat,
            .what = "the unknown token is not in the vocabulary",
            .where = where,
            .got = *options_.unk_token});
    }
  }
  for (int b = 0; b < 256; ++b) bytes_[b] = vocabulary_.find(fmt::format("<0x{:02X}>", b));

  uint32_t length = 0;
  characters_.assign(kTableEnd, -1);
  struct Ends {
    char32_t first = 0, last = 0;
  };
  std::vector<Ends> ends(static_cast<size_t>(vocabulary_.id_end()));
  for (int32_t id = 0; id < vocabulary_.id_end(); ++id) {
    const std::string_view token = vocabulary_.token(id);
    if (token.empty()) continue;
    const char32_t code = read_valid_utf8(token, 0, length);
    if (length == token.size() && code < kTableEnd) characters_[code] = id;
    ends[static_cast<size_t>(id)] = {code, read_last_utf8(token, length)};
  }

  size_t size = 64;
  while (size * 5 < merges.size() * 8) size *= 2;  // at most five eighths full
  slots_.assign(size, {});
  results_.resize(merges.size());
  mergeable_.assign(kPairBits / 64, 0);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    for (const int32_t id : {merge.left, merge.right, merge.result}) {
      if (id < 0 || id >= vocabulary_.id_end()) {
        fail({.code = ErrorCode::kFormat,
              .what = "a merge uses a token that is not there",
              .where = where,
              .got = std::to_string(id)});
      }
    }
    results_[rank] = merge.result;
    size_t slot = key_(pair(merge.left, merge.right)) & (size - 1);
    while (slots_[slot].rank != kNoRank && (slots_[slot].left != merge.left || slots_[slot].right != merge.right)) {
      slot = (slot + 1) & (size - 1);
    }
    slots_[slot] = {merge.left, merge.right, static_cast<uint32_t>(rank)};
    const size_t bit =
        pair_bit(ends[static_cast<size_t>(merge.left)].last, ends[static_cast<size_t>(merge.right)].first);
    mergeable_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

uint32_t Bpe::rank_of(int32_t left, int32_t right) const {
  const size_t mask = slots_.size() - 1;
  for (size_t slot = key_(pair(left, right)) & mask; slots_[slot].rank != kNoRank; slot = (slot + 1) & mask) {
    if (slots_[slot].left == left && slots_[slot].right == right) return slots_[slot].rank;
  }
  return kNoRank;
}

bool Bpe::may_merge(char32_t last, char32_t first) const {
  const size_t bit = pair_bit(last, first);
  return mergeable_[bit / 64] >> (bit % 64) & 1;
}

int32_t Bpe::id_of_character(char32_t code, std::string_view text) const {
  return code < kTableEnd ? characters_[code] : vocabulary_.find(text);
}

// The symbols before any merge, in s.ids, with the first and last character of each one's token.
void Bpe::build_symbols(std::string_view piece, BpeScratch& s) const {
  s.ids.clear();
  s.first.clear();
  s.last.clear();
  const auto push = [&](int32_t id, char32_t first, char32_t last) {
    s.ids.push_back(id);
    s.first.push_back(first);
    s.last.push_back(last);
  };
  const auto push_unknown = [&] {
    uint32_t length = 0;
    const std::string_view token = vocabulary_.token(unknown_);
    push(unknown_, token.empty() ? 0 : read_valid_utf8(token, 0, length),
         token.empty() ? 0 : read_last_utf8(token, length));
  };
  const bool affixes = !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
  std::string affixed;
  bool unknown_waits = false;
  uint32_t length = 0;
  for (size_t at = 0; at < piece.size(); at += length) {
    const char32_t code = read_valid_utf8(piece, at, length);
    std::string_view symbol = piece.substr(at, length);
    if (affixes) {
      affixed.assign(at > 0 ? options_.continuing_subword_prefix : "");
      affixed += symbol;
      if (at + length == piece.size()) affixed += options_.end_of_word_suffix;
      symbol = affixed;
    }
    const int32_t id = affixes ? vocabulary_.find(symbol) : id_of_character(code, symbol);
    if (id >= 0) {
      if (unknown_waits) push_unknown();
      unknown_waits = false;
      push(id, code, code);
      continue;
    }
    if (options_.byte_fallback &&
        std::all_of(symbol.begin(), symbol.end(), [&](char c) { return bytes_[static_cast<unsigned char>(c)] >= 0; })) {
      // A waiting unknown goes on waiting: that is how the files' makers' encoder orders them.
      for (const char c : symbol) push(bytes_[static_cast<unsigned char>(c)], '<', '>');
      continue;
    }
    if (unknown_ >= 0) {
      if (unknown_waits && !options_.fuse_unk) push_unknown();
      unknown_waits = true;
    }
  }
  if (unknown_waits) push_unknown();
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out, BpeScratch& s) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    const int32_t id = vocabulary_.find(piece);
    if (id >= 0) {
      out.push_back(id);
      return;
    }
  }
  build_symbols(piece, s);
  const size_t count = s.ids.size();
  // With a prefix the characters of a token are not those of its parts, and that table says nothing.
  const bool split = options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
  for (size_t begin = 0; begin < count;) {
    if (s.effort) s.effort->tick();
    size_t end = begin + 1;
    while (end < count && (!split || may_merge(s.last[end - 1], s.first[end]))) ++end;
    if (end - begin == 1) {
      out.push_back(s.ids[begin]);
    } else if (end - begin <= kShort) {
      merge_short(s.ids.data() + begin, end - begin, out);
    } else {
      merge_long(s.ids.data() + begin, end - begin, out, s);
    }
    begin = end;
  }
}

void Bpe::merge_short(int32_t* ids, size_t count, std::vector<int32_t>& out) const {
  uint32_t ranks[kShort];  // of the pair (i, i + 1)
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(ids[i], ids[i + 1]);
  while (count > 1) {
    const size_t best = static_cast<size_t>(std::min_element(ranks, ranks + count - 1) - ranks);
    if (ranks[best] == kNoRank) break;
    ids[best] = results_[ranks[best]];
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    if (best + 2 < count) std::copy(ranks + best + 2, ranks + count - 1, ranks + best + 1);
    --count;
    if (best > 0) ranks[best - 1] = rank_of(ids[best - 1], ids[best]);
    if (best + 1 < count) ranks[best] = rank_of(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids, ids + count);
}

void Bpe::merge_long(const int32_t* symbols, size_t count, std::vector<int32_t>& out, BpeScratch& s) const {
  // A doubly linked list over the symbols. ranks[i] is the rank of (i, next[i]) now; an entry of the queues is stale
  // when its rank is another, because the two tokens of a pair only ever grow and so never make the same pair again.
  // Entries are rank << 32 | position: the order in which merges happen.
  std::vector<int32_t> ids(symbols, symbols + count);
  s.previous.resize(count);
  s.next.resize(count);
  s.ranks.assign(count, kNoRank);
  s.initial.clear();
  s.heap.clear();
  for (size_t i = 0; i < count; ++i) {
    s.previous[i] = i == 0 ? kEnd : static_cast<uint32_t>(i - 1);
    s.next[i] = i + 1 == count ? kEnd : static_cast<uint32_t>(i + 1);
    if (i + 1 == count) break;
    s.ranks[i] = rank_of(ids[i], ids[i + 1]);
    if (s.ranks[i] != kNoRank) s.initial.push_back(static_cast<uint64_t>(s.ranks[i]) << 32 | i);
  }
  std::sort(s.initial.begin(), s.initial.end());
  const auto update = [&](uint32_t at) {
    const uint32_t right = s.next[at];
    s.ranks[at] = right == kEnd ? kNoRank : rank_of(ids[at], ids[right]);
    if (s.ranks[at] == kNoRank) return;
    s.heap.push_back(static_cast<uint64_t>(s.ranks[at]) << 32 | at);
    std::push_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  };
  size_t front = 0;
  while (front < s.initial.size() || !s.heap.empty()) {
    uint64_t entry = 0;
    if (s.heap.empty() || (front < s.initial.size() && s.initial[front] <= s.heap.front())) {
      entry = s.initial[front++];
    } else {
      entry = s.heap.front();
      std::pop_heap(s.heap.begin(), s.heap.end(), std::greater<>());
      s.heap.pop_back();
    }
    if (s.effort) s.effort->tick();
    const auto at = static_cast<uint32_t>(entry);
    if (s.ranks[at] != static_cast<uint32_t>(entry >> 32)) continue;
    const uint32_t gone = s.next[at];
    ids[at] = results_[s.ranks[at]];
    s.ranks[gone] = kNoRank;
    s.next[at] = s.next[gone];
    if (s.next[at] != kEnd) s.previous[s.next[at]] = at;
    if (s.previous[at] != kEnd) update(s.previous[at]);
    update(at);
  }
  for (uint32_t i = 0; i != kEnd; i = s.next[i]) out.push_back(ids[i]);
}

std::vector<Merge> merges_from_scores(const Vocabulary& vocabulary, const std::vector<float>& scores) {
  std::vector<Merge> merges;
  std::vector<uint32_t> characters(static_cast<size_t>(vocabulary.id_end()));  // of each token
  for (int32_t id = 0; id < vocabulary.id_end(); ++id) {
    const std::string_view token = vocabulary.token(id);
    const bool scored = static_cast<size_t>(id) < scores.size();
    uint32_t length = 0;
    for (size_t at = 0; at < token.size(); at += length) {
      read_valid_utf8(token, at, length);
      if (scored && at > 0) {
        const int32_t left = vocabulary.find(token.substr(0, at));
        const int32_t right = left < 0 ? -1 : vocabulary.find(token.substr(at));
        if (right >= 0) merges.push_back({left, right, id});
      }
      ++characters[static_cast<size_t>(id)];
    }
  }
  // The best score, then the longest left part, then the longest right part come first.
  const auto order = [&](const Merge& m) {
    return std::tuple(-scores[static_cast<size_t>(m.result)], -int64_t{characters[static_cast<size_t>(m.left)]},
                      -int64_t{characters[static_cast<size_t>(m.right)]}, m.result, m.left, m.right);
  };
  std::sort(merges.begin(), merges.end(), [&](const Merge& a, const Merge& b) { return order(a) < order(b); });
  return merges;
}

}  // namespace doppler
