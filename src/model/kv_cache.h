// Which keys and values are kept, and for whom: one pool of pages that many sequences share. This is the bookkeeping
// alone, the same for every backend; the bytes of a page lie with the executor.
//
// A page holds `page_tokens` positions of one layer. Layers that see equally far form a group, and a block is one page
// for each layer of a group: sequences hold blocks, blocks are counted, and a block that is full can be found again by
// the tokens before and in it. A layer with a window gives back the blocks that slid out of it.
//
// What layers carry from one token to the next (a state, state_layout.h) has a group of its own, whose blocks are the
// states after the last token written in them. A sequence holds the one that it goes on from, and goes on from it in
// the same block or, past its end, in another; so a full block is a state to begin with, found again like any other.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/adapters.h"
#include "model/plan.h"

namespace doppler {

using PageId = uint32_t;

// How a token is computed. A backend may use other numbers for the many tokens of a prompt than for tokens that come
// one by one; which of them is the request's own affair, so that its result never depends on what runs beside it.
enum class Phase : uint8_t { kPrefill, kDecode };

struct KvLayout {
  struct Group {
    int window = 0;  // positions that a token sees, itself included; 0: all
    int layers = 0;
    bool state =
        false;  // blocks are states, in a pool of their own; window 2, for a token sees the state before its own
  };
  struct Place {
    int group = -1, index = 0;  // of the group's layers
  };
  std::vector<Group> groups;
  std::vector<Place> places;  // by layer
  int page_tokens = 0;
  // false: keys depend on the tokens behind them, too, so they are those of one text and nothing is found again.
  bool prefixes = true;

  // Blocks of a group that hold keys a sequence of `length` tokens can still see once `more` are written behind them.
  int blocks(const Group& group, int length, int more = 0) const;
  // Blocks of a group that one sequence of `context` tokens needs, run at most `block` tokens at a time.
  size_t blocks_of(const Group& group, int context, int block) const;
  // Pages of keys and values for that.
  size_t pages(int context, int block) const;
};
// The group of states comes last, where there is one.
KvLayout make_kv_layout(const Plan& plan, int page_tokens, int context);

class KvCache;

// Tokens, and the blocks that hold their keys and values. Moved, never copied (see KvCache::fork); gives its blocks
// back when it goes. Must not outlive its cache, and belongs to one thread with it.
class Sequence {
 public:
  Sequence() = default;
  Sequence(Sequence&& other) noexcept { *this = std::move(other); }
  Sequence& operator=(Sequence&& other) noexcept;
  ~Sequence();

  int length() const { return static_cast<int>(tokens_.size()); }
  std::span<const int32_t> tokens() const { return tokens_; }
  uint64_t id() const { return id_; }  // unlike that of any other sequence of the cache
  // That all of its tokens are computed with.
  const AdapterUses& adapters() const { return adapters_; }

 private:
  friend class KvCache;
  struct Hash {
    uint64_t low = 0, high = 0;
    bool operator==(const Hash&) const = default;
  };
  struct HashOf {
    size_t operator()(const Hash& hash) const { return hash.low; }
  };
  static constexpr int32_t kNone = -1;

  KvCache* cache_ = nullptr;
  uint64_t id_ = 0;
  Hash salt_;  // of the adapters, too
  AdapterUses adapters_;
  std::vector<int32_t> tokens_;
  std::vector<Phase> phases_;                 // of each token
  std::vector<Hash> hashes_;                  // of each full block: of all tokens up to its end
  std::vector<std::vector<int32_t>> tables_;  // [group][block]; kNone where it slid out of the window
  std::vector<int> first_;                    // [group]: blocks before this one slid out
};

class KvCache {
 public:
  struct Options {
    size_t pages = 0;
    // By group (but for that of states), or empty. A backend whose layers have memory of their own says how many blocks
    // each group has: then `pages` is not looked at, groups share nothing, and block n of a group is its pages n ·
    // layers, … behind those of the groups before it.
    std::vector<size_t> blocks = {};
    size_t states = 0;  // places for a state; a sequence that runs takes up to three
    // Do the phases compute the same numbers? Then a prefix is found again whichever computed it.
    bool phases_agree = false;
    // false: nothing is found again (a backend whose keys cannot be shared).
    bool prefixes = true;
    // The books are kept by another cache, with as many `blocks` and `states`: what its sequences hold is placed here,
    // and nothing is handed out, found or given back.
    bool follows = false;
  };
  KvCache(KvLayout layout, const Options& options);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvLayout& layout() const { return layout_; }

  // An empty sequence. Sequences with another salt or other adapters never share what they computed.
  Sequence start(uint64_t salt = 0) { return start(salt, standard_adapters_); }
  Sequence start(uint64_t salt, AdapterUses adapters);
  // Those of sequences for which nobody says; none unless this is called.
  void set_standard_adapters(AdapterUses adapters) { standard_adapters_ = std::move(adapters); }
  // Gives an empty sequence the longest prefix of `tokens` that is there, computed in this phase (the last `decoded` of
  // the tokens in Phase::kDecode): whole blocks, and not all of the tokens, since the last must run for its logits.
  // Returns its length.
  int take_prefix(Sequence& sequence, std::span<const int32_t> tokens, Phase phase, int decoded = 0);
  // A second sequence with the same tokens; blocks are shared until one of them writes.
  Sequence fork(const Sequence& sequence);
  // Makes room for `tokens` behind the sequence's end, and gives back what slid out of its windows, as seen from its
  // end or from `back` tokens before it. False, and nothing is taken, where there are not enough pages.
  bool reserve(Sequence& sequence, int tokens, int back = 0);
  // Of a prompt's next `tokens`, how many to run at once: all, or where there are states those up to the last end of a
  // block, where a prefix can then be gone on from, unless they are fewer than `least`.
  int piece_of_prompt(const Sequence& sequence, int tokens, int least) const {
    return piece_of_prompt(sequence.length(), tokens, least);
  }
  int piece_of_prompt(int length, int tokens, int least) const;
  // After the executor wrote their keys and values into the room reserved.
  void append(Sequence& sequence, std::span<const int32_t> tokens, Phase phase);
  // Forgets the tokens from `length` on: not more than were appended since the last reserve(), and its `back`, where a
  // window's older blocks are gone. Where there are states, all tokens or none.
  void truncate(Sequence& sequence, int length);
  // Can some tokens of a sequence be forgotten?
  bool can_rewind() const { return states_ < 0; }
  // Forgets everything that no sequence holds.
  void drop_prefixes();

  // Pages that reserve(sequence, tokens) would take.
  size_t pages_for(const Sequence& sequence, int tokens) const;
  // Could it take so many blocks of each group?
  bool has_room(std::span<const size_t> blocks) const;
  // Could it hold one sequence of `context` tokens, run at most `block` at a time, and nothing else?
  bool can_hold(int context, int block) const;
  size_t pages() const { return pages_; }
  size_t free_pages() const;  // with those that only wait to be found again
  size_t held_pages() const { return pages_ - free_pages(); }

  // The blocks that a sequence holds in a group: from the first that did not slide out to the end of its room.
  struct Range {
    int begin, end;
  };
  Range blocks(const Sequence& sequence, int group) const {
    const auto g = static_cast<size_t>(group);
    return {sequence.first_[g], static_cast<int>(sequence.tables_[g].size())};
  }

  // The page of a layer that holds position `position`.
  PageId page(const Sequence& sequence, int layer, int position) const {
    const KvLayout::Place place = layout_.places[static_cast<size_t>(layer)];
    const Group& group = groups_[static_cast<size_t>(place.group)];
    const int32_t block =
        sequence.tables_[static_cast<size_t>(place.group)][static_cast<size_t>(position / layout_.page_tokens)];
    return group.pages[static_cast<size_t>(block) * group.layers + static_cast<size_t>(place.index)];
  }

  // The number of the state after position `position`, the sequence's last or the last that there is room for; kNoState
  // before the first.
  static constexpr uint32_t kNoState = UINT32_MAX;
  uint32_t state(const Sequence& sequence, int position) const;
  size_t states() const { return options_.states; }

  // Pages whose bytes must be copied before the next token is written.
  struct Copy {
    PageId from, to;
  };
  std::vector<Copy> take_copies();
  std::vector<Copy> take_state_copies();  // the same of states, by their numbers

  // What a sequence holds, by number of block, for a cache that follows. This cache has `blocks`, not `pages`.
  struct Place {
    int length = 0;                            // tokens
    std::vector<int> first;                    // [group]: blocks before this one slid out
    std::vector<std::vector<int32_t>> tables;  // [group][block], from `first` on
  };
  struct BlockCopy {
    int group = 0;
    int32_t from = 0, to = 0;
  };
  Place place_of(const Sequence& sequence) const;
  std::vector<BlockCopy> take_block_copies();  // of pages and of states
  // In a cache that follows.
  void place(Sequence& sequence, const Place& place);
  void place_copy(const BlockCopy& copy);
  bool phases_agree() const { return options_.phases_agree; }

 private:
  friend class Sequence;
  using Hash = Sequence::Hash;
  struct Block {
    int refs = 0;
    bool indexed = false;
    Hash hash;
    std::list<std::pair<int, int32_t>>::iterator idle;  // place in its pool's, when indexed and held by nobody
  };
  // Pages that are shared by all groups, or belong to one.
  struct Pool {
    size_t pages = 0;
    std::vector<PageId> free;
    std::list<std::pair<int, int32_t>> idle;  // (group, block), the least recently used first
    size_t idle_pages = 0;
    size_t available() const { return free.size() + idle_pages; }
  };
  struct Group {
    size_t layers = 0, pool = 0;
    std::vector<Block> blocks;
    std::vector<PageId> pages;    // [block][layer]
    std::vector<int32_t> unused;  // numbers of blocks without pages
    std::unordered_map<Hash, int32_t, Sequence::HashOf> index;
  };

  Hash hash_next(const Sequence& sequence, size_t block) const;
  int32_t take_block(int group);  // there must be pages
  void release_block(int group, int32_t block);
  void hold_block(int group, int32_t block);
  void unindex(Group& group, Block& block);
  void free_block(int group, int32_t block);  // its pages
  bool is_state(size_t group) const { return static_cast<int>(group) == states_; }
  int32_t spare_state(const Sequence& sequence) const;
  void reserve_state(Sequence& sequence, int tokens);
  size_t blocks_for(const Sequence& sequence, size_t group, int tokens) const;
  std::vector<size_t> blocks_for(const Sequence& sequence, int tokens) const;  // by group
  bool fits(std::span<const size_t> blocks, bool empty) const;  // into what is available, or into the empty cache
  bool make_free(std::span<const size_t> blocks);
  void make_free(Pool& pool, size_t pages);
  void release(Sequence& sequence);
  int first_seen_block(int group, int length) const;

  const KvLayout layout_;
  const Options options_;
  size_t pages_ = 0;
  std::vector<Group> groups_;
  std::vector<Pool> pools_;
  int states_ = -1;  // the group of states, or none
  std::vector<Copy> copies_, state_copies_;
  AdapterUses standard_adapters_;
  uint64_t started_ = 0;
  uint64_t seed_;
};

}  // namespace doppler
