#include "model/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <random>
#include <utility>

#include "base/error.h"

namespace doppler {
namespace {

// Both halves of a 128-bit product: one step of a hash in which every bit of a and b counts.
uint64_t fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

int KvLayout::blocks(const Group& group, int length, int more) const {
  const int end = (length + more + page_tokens - 1) / page_tokens;
  const int first = group.window > 0 ? std::max(0, length - group.window + 1) / page_tokens : 0;
  return end - first;
}

size_t KvLayout::blocks_of(const Group& group, int context, int block) const {
  if (group.state) return 2;  // where a sequence is, and where it goes
  // A window that begins in the middle of a block needs one block more than one that begins with it.
  const int seen = group.window > 0 ? std::min(context, group.window + block + page_tokens) : context;
  return static_cast<size_t>((seen + page_tokens - 1) / page_tokens);
}

size_t KvLayout::pages(int context, int block) const {
  size_t pages = 0;
  for (const Group& group : groups) {
    if (!group.state) pages += blocks_of(group, context, block) * static_cast<size_t>(group.layers);
  }
  return pages;
}

KvLayout make_kv_layout(const Plan& plan, int page_tokens, int context) {
  KvLayout layout;
  layout.page_tokens = page_tokens;
  bool states = false;
  for (const Step& step : plan.steps) {
    states |= std::holds_alternative<ShortConv>(step.op) || std::holds_alternative<DeltaNet>(step.op);
    const auto* op = std::get_if<Attention>(&step.op);
    if (!op || op->shared) continue;
    layout.prefixes = layout.prefixes && op->ahead == 0;
    const int window = op->window < context ? op->window : 0;
    const auto same = [&](const KvLayout::Group& group) { return group.window == window; };
    auto group = std::find_if(layout.groups.begin(), layout.groups.end(), same);
    if (group == layout.groups.end()) group = layout.groups.insert(group, {.window = window});
    const size_t layer = static_cast<size_t>(op->layer);
    if (layout.places.size() <= layer) layout.places.resize(layer + 1);
    layout.places[layer] = {static_cast<int>(group - layout.groups.begin()), group->layers++};
  }
  if (states) layout.groups.push_back({.window = 2, .layers = 1, .state = true});
  return layout;
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  if (this == &other) return *this;
  if (cache_) cache_->release(*this);
  cache_ = std::exchange(other.cache_, nullptr);
  id_ = other.id_;
  salt_ = other.salt_;
  adapters_ = std::exchange(other.adapters_, {});
  tokens_ = std::exchange(other.tokens_, {});
  phases_ = std::exchange(other.phases_, {});
  hashes_ = std::exchange(other.hashes_, {});
  tables_ = std::exchange(other.tables_, {});
  first_ = std::exchange(other.first_, {});
  return *this;
}

Sequence::~Sequence() {
  if (cache_) cache_->release(*this);
}

KvCache::KvCache(KvLayout layout, const Options& options)
    : layout_(std::move(layout)), options_(options), seed_(std::random_device()() | 1ull << 40) {
  if (options.blocks.empty()) pools_.emplace_back().pages = options.pages;
  for (const KvLayout::Group& group : layout_.groups) {
    const size_t layers = static_cast<size_t>(group.layers);
    if (options.follows) {
      const size_t pages = group.state ? options.states : options.blocks[groups_.size()] * layers;
      const size_t first = group.state ? 0 : pages_;
      if (group.state) states_ = static_cast<int>(groups_.size());
      Group& placed = groups_.emplace_back();
      placed.layers = layers;
      for (size_t page = 0; page < pages; ++page) placed.pages.push_back(static_cast<PageId>(first + page));
      if (!group.state) pages_ += pages;
      continue;
    }
    if (group.state) {
      states_ = static_cast<int>(groups_.size());
      pools_.emplace_back();
    } else if (!options.blocks.empty())
      pools_.emplace_back().pages = options.blocks[groups_.size()] * layers;
    groups_.emplace_back().layers = layers;
    groups_.back().pool = pools_.size() - 1;
  }
  for (size_t p = 0; p < pools_.size(); ++p) {
    Pool& pool = pools_[p];
    if (states_ >= 0 && groups_.back().pool == p) {
      pool.pages = options.states;
      for (size_t state = pool.pages; state > 0; --state) pool.free.push_back(static_cast<PageId>(state - 1));
      continue;
    }
    pool.free.reserve(pool.pages);
    for (size_t page = pool.pages; page > 0; --page) pool.free.push_back(static_cast<PageId>(pages_ + page - 1));
    pages_ += pool.pages;
  }
}

Sequence KvCache::start(uint64_t salt, AdapterUses adapters) {
  Sequence sequence;
  sequence.cache_ = this;
  sequence.id_ = ++started_;
  sequence.salt_ = {fold(salt ^ seed_, 0x9e3779b97f4a7c15), salt};
  sequence.adapters_ = in_order(std::move(adapters));
  for (const AdapterUse& use : sequence.adapters_) {
    const uint64_t word = static_cast<uint64_t>(use.adapter) << 32 | std::bit_cast<uint32_t>(use.scale);
    sequence.salt_.low = fold(sequence.salt_.low ^ word ^ seed_, 0x8ebc6af09c88c6e3);
    sequence.salt_.high = fold(sequence.salt_.high ^ word, 0x589965cc75374cc3 ^ seed_) ^ sequence.salt_.low;
  }
  sequence.tables_.resize(groups_.size());
  sequence.first_.resize(groups_.size());
  return sequence;
}

// Of the block's tokens and, where it matters, how they were computed, on top of all before them.
KvCache::Hash KvCache::hash_next(const Sequence& sequence, size_t block) const {
  Hash hash = block == 0 ? sequence.salt_ : sequence.hashes_[block - 1];
  const size_t begin = block * static_cast<size_t>(layout_.page_tokens);
  for (size_t i = begin; i < begin + static_cast<size_t>(layout_.page_tokens); ++i) {
    const uint64_t phase = options_.phases_agree ? 0 : static_cast<uint64_t>(sequence.phases_[i]) + 1;
    const uint64_t token = static_cast<uint32_t>(sequence.tokens_[i]) | phase << 32;
    hash.low = fold(hash.low ^ token ^ seed_, 0xa0761d6478bd642f) + hash.high;
    hash.high = fold(hash.high ^ token, 0xe7037ed1a0b428db ^ seed_) ^ hash.low;
  }
  return hash;
}

int KvCache::first_seen_block(int group, int length) const {
  const int window = layout_.groups[static_cast<size_t>(group)].window;
  return window > 0 ? std::max(0, length - window + 1) / layout_.page_tokens : 0;
}

int KvCache::take_prefix(Sequence& sequence, std::span<const int32_t> tokens, Phase phase, int decoded) {
  if (tokens.empty() || sequence.length() > 0) return 0;
  release(sequence);  // room that was reserved
  if (!options_.prefixes || !layout_.prefixes) return 0;
  const size_t page = static_cast<size_t>(layout_.page_tokens), most = (tokens.size() - 1) / page;
  sequence.tokens_.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(most * page));
  sequence.phases_.assign(std::min(most * page, tokens.size() - static_cast<size_t>(decoded)), phase);
  sequence.phases_.resize(most * page, Phase::kDecode);
  // The longest prefix for which every group has what the next token sees; `run` blocks up to here are there in a row.
  std::vector<size_t> run(groups_.size());
  size_t best = 0;
  for (size_t b = 0; b < most; ++b) {
    sequence.hashes_.push_back(hash_next(sequence, b));
    bool all = true, broken = false;
    for (size_t g = 0; g < groups_.size(); ++g) {
      run[g] = groups_[g].index.count(sequence.hashes_[b]) > 0 ? run[g] + 1 : 0;
      const size_t first = static_cast<size_t>(first_seen_block(static_cast<int>(g), static_cast<int>((b + 1) * page)));
      all &= run[g] >= b + 1 - first;
      broken |= layout_.groups[g].window == 0 && run[g] < b + 1;
    }
    if (broken) break;  // a layer that sees everything lacks something: no longer prefix can be whole
    if (all) best = b + 1;
  }
  sequence.tokens_.resize(best * page);
  sequence.phases_.resize(best * page);
  sequence.hashes_.resize(best);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const size_t first = static_cast<size_t>(first_seen_block(static_cast<int>(g), static_cast<int>(best * page)));
    sequence.tables_[g].assign(best, Sequence::kNone);
    sequence.first_[g] = static_cast<int>(std::min(first, best));
    for (size_t b = first; b < best; ++b) {
      sequence.tables_[g][b] = groups_[g].index.at(sequence.hashes_[b]);
      hold_block(static_cast<int>(g), sequence.tables_[g][b]);
    }
  }
  return sequence.length();
}

Sequence KvCache::fork(const Sequence& other) {
  Sequence sequence = start(0, other.adapters_);
  sequence.salt_ = other.salt_;
  sequence.tokens_ = other.tokens_;
  sequence.phases_ = other.phases_;
  sequence.hashes_ = other.hashes_;
  sequence.tables_ = other.tables_;
  sequence.first_ = other.first_;
  // Room that was reserved and not written is the other's own.
  const size_t written = static_cast<size_t>((other.length() + layout_.page_tokens - 1) / layout_.page_tokens);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (sequence.tables_[g].size() > written) sequence.tables_[g].resize(written);
    for (const int32_t block : sequence.tables_[g]) {
      if (block != Sequence::kNone) hold_block(static_cast<int>(g), block);
    }
  }
  return sequence;
}

size_t KvCache::blocks_for(const Sequence& sequence, size_t group, int tokens) const {
  const size_t page = static_cast<size_t>(layout_.page_tokens), length = static_cast<size_t>(sequence.length());
  const size_t end = (length + static_cast<size_t>(tokens) + page - 1) / page;
  if (is_state(group)) {
    if (tokens == 0 || spare_state(sequence) != Sequence::kNone) return 0;
    const bool stays = length > 0 && (length - 1) / page + 1 == end;
    return stays && groups_[group].blocks[static_cast<size_t>(sequence.tables_[group][end - 1])].refs == 1 ? 0 : 1;
  }
  const std::vector<int32_t>& table = sequence.tables_[group];
  size_t blocks = end > table.size() ? end - table.size() : 0;
  // The block that is written on must be nobody else's.
  if (length % page != 0 && groups_[group].blocks[static_cast<size_t>(table[length / page])].refs > 1) ++blocks;
  return blocks;
}

std::vector<size_t> KvCache::blocks_for(const Sequence& sequence, int tokens) const {
  std::vector<size_t> blocks(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) blocks[g] = blocks_for(sequence, g, tokens);
  return blocks;
}

size_t KvCache::pages_for(const Sequence& sequence, int tokens) const {
  size_t pages = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (!is_state(g)) pages += blocks_for(sequence, g, tokens) * groups_[g].layers;
  }
  return pages;
}

bool KvCache::fits(std::span<const size_t> blocks, bool empty) const {
  std::vector<size_t> wanted(pools_.size());
  for (size_t g = 0; g < groups_.size(); ++g) wanted[groups_[g].pool] += blocks[g] * groups_[g].layers;
  for (size_t p = 0; p < pools_.size(); ++p) {
    if (wanted[p] > (empty ? pools_[p].pages : pools_[p].available())) return false;
  }
  return true;
}

bool KvCache::has_room(std::span<const size_t> blocks) const { return fits(blocks, false); }

bool KvCache::can_hold(int context, int block) const {
  std::vector<size_t> blocks;
  for (const KvLayout::Group& group : layout_.groups) blocks.push_back(layout_.blocks_of(group, context, block));
  return fits(blocks, true);
}

size_t KvCache::free_pages() const {
  size_t pages = 0;
  for (size_t p = 0; p < pools_.size(); ++p) {
    if (states_ < 0 || groups_.back().pool != p) pages += pools_[p].available();
  }
  return pages;
}

bool KvCache::reserve(Sequence& sequence, int tokens, int back) {
  if (options_.follows) return true;
  const size_t page = static_cast<size_t>(layout_.page_tokens), length = static_cast<size_t>(sequence.length());
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<int32_t>& table = sequence.tables_[g];
    for (const int first = first_seen_block(static_cast<int>(g), sequence.length() - (is_state(g) ? 0 : back));
         sequence.first_[g] < first;) {
      int32_t& slid = table[static_cast<size_t>(sequence.first_[g]++)];
      if (slid != Sequence::kNone) release_block(static_cast<int>(g), slid);
      slid = Sequence::kNone;
    }
  }
  // Most tokens of a decode need no block.
  const bool room = pages_for(sequence, tokens) == 0 &&
                    (states_ < 0 || blocks_for(sequence, static_cast<size_t>(states_), tokens) == 0);
  if (!room && !make_free(blocks_for(sequence, tokens))) return false;
  const size_t blocks = (length + static_cast<size_t>(tokens) + page - 1) / page;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    std::vector<int32_t>& table = sequence.tables_[g];
    if (is_state(g)) {
      if (tokens > 0) reserve_state(sequence, tokens);
      continue;
    }
    if (length % page != 0) {
      int32_t& last = table[length / page];
      Block& block = group.blocks[static_cast<size_t>(last)];
      if (block.refs > 1) {
        const int32_t own = take_block(static_cast<int>(g));
        for (size_t l = 0; l < group.layers; ++l) {
          copies_.push_back({group.pages[static_cast<size_t>(last) * group.layers + l],
                             group.pages[static_cast<size_t>(own) * group.layers + l]});
        }
        release_block(static_cast<int>(g), last);
        last = own;
      } else if (block.indexed) {
        unindex(group, block);  // it was full, and is about to become another
      }
    }
    while (table.size() < blocks) table.push_back(take_block(static_cast<int>(g)));
  }
  return true;
}

// Room for a state that was reserved and is not written: behind the block of the sequence's own.
int32_t KvCache::spare_state(const Sequence& sequence) const {
  const std::vector<int32_t>& table = sequence.tables_[static_cast<size_t>(states_)];
  const size_t page = static_cast<size_t>(layout_.page_tokens), length = static_cast<size_t>(sequence.length());
  for (size_t b = (length + page - 1) / page; b < table.size(); ++b) {
    if (table[b] != Sequence::kNone) return table[b];
  }
  return Sequence::kNone;
}

void KvCache::reserve_state(Sequence& sequence, int tokens) {
  const size_t page = static_cast<size_t>(layout_.page_tokens), length = static_cast<size_t>(sequence.length());
  const size_t written = (length + page - 1) / page, end = (length + static_cast<size_t>(tokens) + page - 1) / page;
  std::vector<int32_t>& table = sequence.tables_[static_cast<size_t>(states_)];
  int32_t spare = spare_state(sequence);
  table.resize(written, Sequence::kNone);
  table.resize(end, Sequence::kNone);
  int32_t& last = table.back();
  const bool shared = last != Sequence::kNone && groups_.back().blocks[static_cast<size_t>(last)].refs > 1;
  if (last == Sequence::kNone || shared) {
    const int32_t own = spare != Sequence::kNone ? spare : take_block(states_);
    if (shared) {
      const std::vector<PageId>& numbers = groups_.back().pages;
      state_copies_.push_back({numbers[static_cast<size_t>(last)], numbers[static_cast<size_t>(own)]});
      release_block(states_, last);
    }
    last = own;
  } else if (spare != Sequence::kNone) {
    release_block(states_, spare);
  }
}

int KvCache::piece_of_prompt(int length, int tokens, int least) const {
  if (options_.follows) return tokens;
  const int end = (length + tokens) / layout_.page_tokens * layout_.page_tokens;
  return can_rewind() || end - length < least ? tokens : end - length;
}

uint32_t KvCache::state(const Sequence& sequence, int position) const {
  if (states_ < 0 || position < 0) return kNoState;
  const int32_t block =
      sequence.tables_[static_cast<size_t>(states_)][static_cast<size_t>(position / layout_.page_tokens)];
  return groups_.back().pages[static_cast<size_t>(block)];
}

void KvCache::append(Sequence& sequence, std::span<const int32_t> tokens, Phase phase) {
  const size_t page = static_cast<size_t>(layout_.page_tokens);
  sequence.tokens_.insert(sequence.tokens_.end(), tokens.begin(), tokens.end());
  sequence.phases_.resize(sequence.tokens_.size(), phase);
  if (!options_.prefixes || !layout_.prefixes || options_.follows) return;
  for (size_t b = sequence.hashes_.size(); (b + 1) * page <= sequence.tokens_.size(); ++b) {
    sequence.hashes_.push_back(hash_next(sequence, b));
    for (size_t g = 0; g < groups_.size(); ++g) {
      const int32_t number = sequence.tables_[g][b];
      if (number == Sequence::kNone) continue;
      if (is_state(g) && (b + 1) * page != sequence.tokens_.size()) continue;  // the state of a token within the block
      Block& block = groups_[g].blocks[static_cast<size_t>(number)];
      if (block.indexed || !groups_[g].index.emplace(sequence.hashes_[b], number).second) continue;
      block.indexed = true;
      block.hash = sequence.hashes_[b];
    }
  }
}

void KvCache::truncate(Sequence& sequence, int length) {
  const size_t page = static_cast<size_t>(layout_.page_tokens), size = static_cast<size_t>(length);
  const size_t blocks = (size + page - 1) / page;
  if (states_ >= 0 && size > 0 && length != sequence.length()) {
    fail({.code = ErrorCode::kInternal,
          .what = "a sequence with a state cannot go back",
          .expected = "all of its tokens, or none",
          .got = fmt::format("{} of {}", length, sequence.length())});
  }
  if (states_ >= 0 && size == 0) sequence.first_.back() = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (first_seen_block(static_cast<int>(g), length) < sequence.first_[g]) {
      fail({.code = ErrorCode::kInternal,
            .what = "a sequence cannot go back to where its window's keys are gone",
            .expected = "as many tokens as were appended last",
            .got = fmt::format("from {} to {} tokens", sequence.length(), length)});
    }
    std::vector<int32_t>& table = sequence.tables_[g];
    for (; table.size() > blocks; table.pop_back()) {
      if (table.back() != Sequence::kNone) release_block(static_cast<int>(g), table.back());
    }
  }
  sequence.tokens_.resize(std::min(size, sequence.tokens_.size()));
  sequence.phases_.resize(sequence.tokens_.size());
  sequence.hashes_.resize(std::min(size / page, sequence.hashes_.size()));
}

void KvCache::release(Sequence& sequence) {
  if (options_.follows) return;
  size_t blocks = 0;
  for (const std::vector<int32_t>& table : sequence.tables_) blocks = std::max(blocks, table.size());
  // The last first and the groups together, so that a prefix outlives what follows it in all of them.
  for (; blocks > 0; --blocks) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      std::vector<int32_t>& table = sequence.tables_[g];
      if (table.size() < blocks) continue;
      if (table.back() != Sequence::kNone) release_block(static_cast<int>(g), table.back());
      table.pop_back();
    }
  }
}

void KvCache::drop_prefixes() {
  for (Pool& pool : pools_) make_free(pool, pool.available());
}

std::vector<KvCache::Copy> KvCache::take_copies() { return std::exchange(copies_, {}); }

std::vector<KvCache::Copy> KvCache::take_state_copies() { return std::exchange(state_copies_, {}); }

KvCache::Place KvCache::place_of(const Sequence& sequence) const {
  Place place{.length = sequence.length(), .first = sequence.first_, .tables = {}};
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<int32_t>& table = sequence.tables_[g];
    const auto first = std::min(static_cast<size_t>(sequence.first_[g]), table.size());
    place.tables.emplace_back(table.begin() + static_cast<std::ptrdiff_t>(first), table.end());
  }
  return place;
}

std::vector<KvCache::BlockCopy> KvCache::take_block_copies() {
  std::vector<BlockCopy> copies;
  for (const Copy& copy : take_copies()) {
    size_t first = 0;  // page of the group
    for (size_t g = 0; g < groups_.size(); ++g) {
      const size_t layers = groups_[g].layers, pages = options_.blocks[g] * layers;
      if (copy.from >= first + pages) {
        first += pages;
        continue;
      }
      if ((copy.from - first) % layers == 0)  // a block is copied whole, page by page
        copies.push_back({static_cast<int>(g), static_cast<int32_t>((copy.from - first) / layers),
                          static_cast<int32_t>((copy.to - first) / layers)});
      break;
    }
  }
  for (const Copy& copy : take_state_copies())
    copies.push_back({states_, static_cast<int32_t>(copy.from), static_cast<int32_t>(copy.to)});
  return copies;
}

void KvCache::place(Sequence& sequence, const Place& place) {
  sequence.tokens_.resize(static_cast<size_t>(place.length));
  sequence.phases_.resize(sequence.tokens_.size());
  sequence.first_ = place.first;
  for (size_t g = 0; g < groups_.size(); ++g) {
    sequence.tables_[g].assign(static_cast<size_t>(place.first[g]), Sequence::kNone);
    sequence.tables_[g].insert(sequence.tables_[g].end(), place.tables[g].begin(), place.tables[g].end());
  }
}

void KvCache::place_copy(const BlockCopy& copy) {
  const Group& group = groups_[static_cast<size_t>(copy.group)];
  std::vector<Copy>& copies = is_state(static_cast<size_t>(copy.group)) ? state_copies_ : copies_;
  for (size_t l = 0; l < group.layers; ++l) {
    copies.push_back({group.pages[static_cast<size_t>(copy.from) * group.layers + l],
                      group.pages[static_cast<size_t>(copy.to) * group.layers + l]});
  }
}

bool KvCache::make_free(std::span<const size_t> blocks) {
  if (!fits(blocks, false)) return false;
  std::vector<size_t> wanted(pools_.size());
  for (size_t g = 0; g < groups_.size(); ++g) wanted[groups_[g].pool] += blocks[g] * groups_[g].layers;
  for (size_t p = 0; p < pools_.size(); ++p) make_free(pools_[p], wanted[p]);
  return true;
}

void KvCache::make_free(Pool& pool, size_t pages) {
  while (pool.free.size() < pages) {
    const auto [group, number] = pool.idle.front();
    Block& block = groups_[static_cast<size_t>(group)].blocks[static_cast<size_t>(number)];
    pool.idle.pop_front();
    pool.idle_pages -= groups_[static_cast<size_t>(group)].layers;
    unindex(groups_[static_cast<size_t>(group)], block);
    free_block(group, number);
  }
}

int32_t KvCache::take_block(int number) {
  Group& group = groups_[static_cast<size_t>(number)];
  if (group.unused.empty()) {
    group.unused.push_back(static_cast<int32_t>(group.blocks.size()));
    group.blocks.emplace_back();
    group.pages.resize(group.blocks.size() * group.layers);
  }
  const int32_t block = group.unused.back();
  group.unused.pop_back();
  group.blocks[static_cast<size_t>(block)].refs = 1;
  std::vector<PageId>& free = pools_[group.pool].free;
  for (size_t l = 0; l < group.layers; ++l) {
    group.pages[static_cast<size_t>(block) * group.layers + l] = free.back();
    free.pop_back();
  }
  return block;
}

void KvCache::hold_block(int number, int32_t index) {
  Group& group = groups_[static_cast<size_t>(number)];
  Block& block = group.blocks[static_cast<size_t>(index)];
  if (block.refs++ == 0) {
    pools_[group.pool].idle.erase(block.idle);
    pools_[group.pool].idle_pages -= group.layers;
  }
}

void KvCache::release_block(int number, int32_t index) {
  Group& group = groups_[static_cast<size_t>(number)];
  Block& block = group.blocks[static_cast<size_t>(index)];
  if (--block.refs > 0) return;
  if (!block.indexed) return free_block(number, index);
  Pool& pool = pools_[group.pool];
  block.idle = pool.idle.insert(pool.idle.end(), {number, index});
  pool.idle_pages += group.layers;
}

void KvCache::unindex(Group& group, Block& block) {
  group.index.erase(block.hash);
  block.indexed = false;
}

void KvCache::free_block(int number, int32_t index) {
  Group& group = groups_[static_cast<size_t>(number)];
  // In the order in which take_block hands them out again.
  for (size_t l = group.layers; l > 0; --l) {
    pools_[group.pool].free.push_back(group.pages[static_cast<size_t>(index) * group.layers + l - 1]);
  }
  group.unused.push_back(index);
}

}  // namespace doppler
