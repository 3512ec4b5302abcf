#include "model/kv_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <set>

#include "base/error.h"

namespace doppler {
namespace {

constexpr uint64_t kUnwritten = 0;

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 ^ (b + 0x7f4a7c15);
  x ^= x >> 31;
  x *= 0xbf58476d1ce4e5b9;
  return (x ^ x >> 29) | 1;  // never kUnwritten
}

KvLayout layout_of(std::vector<KvLayout::Group> groups, int page_tokens) {
  KvLayout layout{.groups = groups, .places = {}, .page_tokens = page_tokens};
  // Layers of the groups take turns, as windowed and global layers do in a model.
  for (int index = 0; layout.places.size() < 64; ++index) {
    for (size_t g = 0; g < groups.size(); ++g) {
      if (index < groups[g].layers && !groups[g].state) layout.places.push_back({static_cast<int>(g), index});
    }
    if (std::all_of(groups.begin(), groups.end(), [&](const auto& group) { return index + 1 >= group.layers; })) break;
  }
  return layout;
}

// A sequence, and beside it what it must read: for each position the history that its keys and values stand for.
struct Mirrored {
  Sequence sequence;
  uint64_t salt = 0;
  std::vector<int32_t> tokens = {};
  std::vector<Phase> phases = {};
  std::vector<uint64_t> chain = {};  // by position: of salt, tokens and phases up to it
  int slid_at = 0;                   // the length for which blocks were last given back
  int room = 0;                      // positions that have pages: a multiple of the page
};

// The cache, and memory in place of an executor's: every slot of every page holds the history it was written for.
class World {
 public:
  World(KvLayout layout, const KvCache::Options& options)
      : cache(std::move(layout), options),
        memory_(cache.pages() * static_cast<size_t>(cache.layout().page_tokens), kUnwritten),
        states_(options.states, kUnwritten),
        phases_agree_(options.phases_agree) {}

  Mirrored start(uint64_t salt) { return {.sequence = cache.start(salt), .salt = salt}; }

  int take_prefix(Mirrored& one, std::span<const int32_t> tokens, Phase phase, int decoded = 0) {
    const int found = cache.take_prefix(one.sequence, tokens, phase, decoded);
    for (int i = 0; i < found; ++i) {
      note(one, tokens[static_cast<size_t>(i)], i < static_cast<int>(tokens.size()) - decoded ? phase : Phase::kDecode);
    }
    one.slid_at = one.room = found;
    return found;
  }

  Mirrored fork(const Mirrored& other) {
    Mirrored one{.sequence = cache.fork(other.sequence),
                 .salt = other.salt,
                 .tokens = other.tokens,
                 .phases = other.phases,
                 .chain = other.chain,
                 .slid_at = other.slid_at};
    one.room = std::min(other.room, whole_pages(static_cast<int>(one.tokens.size())));
    return one;
  }

  bool reserve(Mirrored& one, int tokens, int back = 0) {
    const bool reserved = cache.reserve(one.sequence, tokens, back);
    one.slid_at = std::max(one.slid_at, one.sequence.length() - back);
    if (reserved) one.room = std::max(one.room, whole_pages(one.sequence.length() + tokens));
    return reserved;
  }

  // What an executor does: copies first, then the tokens' own keys and values, then the bookkeeping.
  void write(Mirrored& one, std::span<const int32_t> tokens, Phase phase) {
    memory_ = with_copies();
    copies_.clear();
    states_ = with_state_copies();
    state_copies_.clear();
    const int before = one.sequence.length() - 1;
    const uint32_t from = cache.state(one.sequence, before);
    const uint32_t to = cache.state(one.sequence, before + static_cast<int>(tokens.size()));
    if (from != KvCache::kNoState) {
      ASSERT_EQ(states_[from], one.chain.back()) << "goes on from another state";
    }
    for (const int32_t token : tokens) {
      note(one, token, phase);
      const int position = static_cast<int>(one.tokens.size()) - 1;
      for (int layer = 0; layer < layers(); ++layer)
        memory_[slot(one, layer, position)] = content(one, layer, position);
    }
    if (to != KvCache::kNoState) states_[to] = one.chain.back();
    cache.append(one.sequence, tokens, phase);
  }

  bool extend(Mirrored& one, std::span<const int32_t> tokens, Phase phase) {
    if (!reserve(one, static_cast<int>(tokens.size()))) return false;
    write(one, tokens, phase);
    return true;
  }

  void truncate(Mirrored& one, int length) {
    cache.truncate(one.sequence, length);
    one.tokens.resize(static_cast<size_t>(length));
    one.phases.resize(static_cast<size_t>(length));
    one.chain.resize(static_cast<size_t>(length));
    one.room = std::min(one.room, whole_pages(length));
  }

  // Everything the next token would see is this sequence's own, once the copies that wait are made.
  void expect_reads_itself(const Mirrored& one) {
    const std::vector<uint64_t> memory = with_copies(), states = with_state_copies();
    ASSERT_EQ(one.sequence.length(), static_cast<int>(one.tokens.size()));
    ASSERT_TRUE(std::equal(one.tokens.begin(), one.tokens.end(), one.sequence.tokens().begin()));
    const uint32_t state = cache.state(one.sequence, one.sequence.length() - 1);
    if (state != KvCache::kNoState) {
      ASSERT_LT(state, states.size());
      ASSERT_EQ(states[state], one.chain.back()) << "the state is another's";
    }
    for (int layer = 0; layer < layers(); ++layer) {
      const int window = group_of(layer).window, length = one.sequence.length();
      for (int p = window > 0 ? std::max(0, length - window + 1) : 0; p < length; ++p) {
        ASSERT_EQ(memory[slot(one, layer, p)], content(one, layer, p)) << "layer " << layer << " position " << p;
      }
    }
  }

  // A page that one sequence may write on is in nobody else's tables.
  void expect_writes_alone(std::deque<Mirrored>& all, const Mirrored& writer, int tokens) {
    const int begin = writer.sequence.length();
    for (int layer = 0; layer < layers(); ++layer) {
      std::set<PageId> written;
      for (int p = begin; p < begin + tokens; ++p) written.insert(cache.page(writer.sequence, layer, p));
      for (const Mirrored& other : all) {
        if (&other == &writer) continue;
        for (const PageId page : pages_of(other)) {
          ASSERT_EQ(written.count(page), 0u) << "page " << page << " has two writers";
        }
      }
    }
  }

  // Neither lost nor counted twice.
  void expect_counts(const std::deque<Mirrored>& all) {
    std::set<PageId> held;
    for (const Mirrored& one : all) {
      for (const PageId page : pages_of(one)) held.insert(page);
    }
    ASSERT_EQ(cache.held_pages(), held.size());
    ASSERT_LE(held.size(), cache.pages());
    ASSERT_EQ(cache.held_pages() + cache.free_pages(), cache.pages());
  }

  // Every page in a sequence's tables, by what it must hold: from the window's first block at its last reserve().
  std::set<PageId> pages_of(const Mirrored& one) const {
    const int page = cache.layout().page_tokens;
    std::set<PageId> pages;
    for (int layer = 0; layer < layers(); ++layer) {
      const int window = group_of(layer).window;
      const int first = window > 0 ? std::max(0, one.slid_at - window + 1) / page * page : 0;
      for (int p = first; p < one.room; p += page) pages.insert(cache.page(one.sequence, layer, p));
    }
    return pages;
  }

  int layers() const { return static_cast<int>(cache.layout().places.size()); }
  const KvLayout::Group& group_of(int layer) const {
    return cache.layout().groups[static_cast<size_t>(cache.layout().places[static_cast<size_t>(layer)].group)];
  }
  int whole_pages(int tokens) const {
    const int page = cache.layout().page_tokens;
    return (tokens + page - 1) / page * page;
  }

  KvCache cache;

 private:
  void note(Mirrored& one, int32_t token, Phase phase) const {
    const uint64_t before = one.chain.empty() ? mix(one.salt, 0x5a17) : one.chain.back();
    const uint64_t how = phases_agree_ ? 0 : static_cast<uint64_t>(phase) + 1;
    one.chain.push_back(mix(before, static_cast<uint64_t>(token) << 2 | how));
    one.tokens.push_back(token);
    one.phases.push_back(phase);
  }
  std::vector<uint64_t> with_copies() {
    for (const KvCache::Copy& copy : cache.take_copies()) copies_.push_back(copy);
    const size_t page = static_cast<size_t>(cache.layout().page_tokens);
    std::vector<uint64_t> memory = memory_;
    for (const KvCache::Copy& copy : copies_) {
      std::copy_n(memory.begin() + static_cast<std::ptrdiff_t>(copy.from * page), page,
                  memory.begin() + static_cast<std::ptrdiff_t>(copy.to * page));
    }
    return memory;
  }
  std::vector<uint64_t> with_state_copies() {
    for (const KvCache::Copy& copy : cache.take_state_copies()) state_copies_.push_back(copy);
    std::vector<uint64_t> states = states_;
    for (const KvCache::Copy& copy : state_copies_) states[copy.to] = states[copy.from];
    return states;
  }
  size_t slot(const Mirrored& one, int layer, int position) const {
    const size_t page = static_cast<size_t>(cache.layout().page_tokens), p = static_cast<size_t>(position);
    return static_cast<size_t>(cache.page(one.sequence, layer, position)) * page + p % page;
  }
  static uint64_t content(const Mirrored& one, int layer, int position) {
    return mix(one.chain[static_cast<size_t>(position)], static_cast<uint64_t>(layer));
  }

  std::vector<uint64_t> memory_;                      // [page][position in it]
  std::vector<uint64_t> states_;                      // by number
  std::vector<KvCache::Copy> copies_, state_copies_;  // to be made before the next token is written
  const bool phases_agree_;
};

std::vector<int32_t> text(int length, int32_t start = 0) {
  std::vector<int32_t> tokens(static_cast<size_t>(length));
  std::iota(tokens.begin(), tokens.end(), start);
  return tokens;
}

// One random life of a cache.
class RandomCase {
 public:
  explicit RandomCase(uint64_t seed) : random_(seed), layout_(random_layout()), world_(layout_, random_options()) {}

  void play(int operations) {
    for (int i = 0; i < operations; ++i) {
      SCOPED_TRACE(fmt::format("operation {}", i));
      one_operation();
      if (::testing::Test::HasFatalFailure()) return;
      for (Mirrored& one : all_) world_.expect_reads_itself(one);
      world_.expect_counts(all_);
      if (::testing::Test::HasFatalFailure()) return;
    }
    all_.clear();
    ASSERT_EQ(world_.cache.held_pages(), 0u);
    world_.cache.drop_prefixes();
    ASSERT_EQ(world_.cache.free_pages(), world_.cache.pages());
    Mirrored one = world_.start(0);
    ASSERT_EQ(world_.take_prefix(one, text(200), Phase::kPrefill), 0);
  }

  int refused = 0, found = 0;

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  KvLayout random_layout() {
    std::vector<KvLayout::Group> groups;
    if (chance(80)) groups.push_back({.window = 0, .layers = pick(1, 3)});
    // Where every layer saw itself alone, any prefix would be whole.
    if (chance(60)) groups.push_back({.window = pick(groups.empty() ? 2 : 1, 24), .layers = pick(1, 3)});
    if (groups.empty() || chance(20)) groups.push_back({.window = pick(25, 40), .layers = 1});
    std::shuffle(groups.begin(), groups.end(), random_);
    if (chance(30)) groups.push_back({.window = 2, .layers = 1, .state = true});
    return layout_of(groups, chance(50) ? 4 : 16);
  }
  KvCache::Options random_options() {
    // Eight sequences at most, each of which holds two and may need another's place.
    KvCache::Options options{
        .states = static_cast<size_t>(pick(24, 32)), .phases_agree = chance(30), .prefixes = chance(90)};
    if (chance(70)) {
      options.pages = static_cast<size_t>(pick(20, 200));
    } else {
      for (size_t g = 0; g < layout_.groups.size(); ++g) blocks_.push_back(static_cast<size_t>(pick(15, 60)));
      options.blocks = blocks_;
    }
    return options;
  }

  // Few tokens and many shared beginnings, so that prefixes meet.
  std::vector<int32_t> random_text(int length) {
    std::vector<int32_t> tokens = text(length, pick(0, 1));
    for (int32_t& token : tokens) {
      if (chance(2)) token = pick(0, 3);
    }
    return tokens;
  }

  void one_operation() {
    const int what = pick(0, 99);
    if (all_.empty() || (what < 15 && all_.size() < 8)) return begin();
    Mirrored& one = all_[static_cast<size_t>(pick(0, static_cast<int>(all_.size()) - 1))];
    if (what < 60) return go_on(one);
    if (what < 70 && all_.size() < 8) {
      all_.push_back(world_.fork(one));
    } else if (what < 82) {
      const int length = one.sequence.length();
      if (length > 0) world_.truncate(one, world_.cache.can_rewind() ? pick(lowest(one), length) : length);
    } else if (what < 96) {
      std::swap(one, all_.back());
      all_.pop_back();
    } else if (what < 98) {
      world_.cache.drop_prefixes();
    } else {
      world_.reserve(one, pick(0, 20));
    }
  }

  // A window's older blocks are gone: back to where the last reserve() looked from at most.
  int lowest(const Mirrored& one) const {
    int low = 0;
    const int page = world_.cache.layout().page_tokens;
    for (const KvLayout::Group& group : world_.cache.layout().groups) {
      const int gone = group.window > 0 ? std::max(0, one.slid_at - group.window + 1) / page * page : 0;
      if (gone > 0) low = std::max(low, gone + group.window - 1);
    }
    return std::min(low, one.sequence.length());
  }

  void begin() {
    Mirrored one = world_.start(static_cast<uint64_t>(pick(0, 1)));
    if (chance(10)) world_.reserve(one, pick(1, 20));
    const std::vector<int32_t> tokens = random_text(pick(1, 80));
    const size_t before = world_.cache.held_pages();
    const int got = world_.take_prefix(one, tokens, chance(70) ? Phase::kPrefill : Phase::kDecode,
                                       chance(30) ? pick(0, static_cast<int>(tokens.size())) : 0);
    ASSERT_LT(got, static_cast<int>(tokens.size()));
    ASSERT_EQ(got % world_.cache.layout().page_tokens, 0);
    ASSERT_GE(before + world_.pages_of(one).size(), world_.cache.held_pages());
    found += got > 0;
    all_.push_back(std::move(one));
  }

  void go_on(Mirrored& one) {
    const KvCache& cache = world_.cache;
    const int count = chance(40) ? 1 : pick(2, 40), length = one.sequence.length();
    const int back = chance(20) ? pick(0, length) : 0;
    const bool fits = world_.reserve(one, count, back);
    if (!fits) {
      ++refused;
      if (blocks_.empty()) {
        ASSERT_GT(cache.pages_for(one.sequence, count), cache.free_pages());
      }
      return;
    }
    if (!blocks_.empty()) expect_own_pages(one);
    ASSERT_EQ(cache.pages_for(one.sequence, count), 0u);
    world_.expect_writes_alone(all_, one, count);
    if (::testing::Test::HasFatalFailure()) return;
    // What a token far behind the first needs is the window and no more: one block more than it fills at most.
    for (int layer = 0; layer < world_.layers(); ++layer) {
      const int window = world_.group_of(layer).window, page = cache.layout().page_tokens;
      if (window == 0 || back > 0 || one.room > world_.whole_pages(length + count)) continue;
      const int first = std::max(0, one.slid_at - window + 1) / page * page;
      ASSERT_LE(one.room - first, world_.whole_pages(window + count - 1) + page);
    }
    const std::vector<int32_t> tokens = random_text(length + count);
    world_.write(one, std::span(tokens).subspan(static_cast<size_t>(length)),
                 chance(70) ? Phase::kPrefill : Phase::kDecode);
  }

  // Where groups share nothing, a block's pages lie side by side among its group's.
  void expect_own_pages(const Mirrored& one) {
    const KvLayout& layout = world_.cache.layout();
    for (int layer = 0; layer < world_.layers(); ++layer) {
      const KvLayout::Place place = layout.places[static_cast<size_t>(layer)];
      const auto layers = static_cast<size_t>(world_.group_of(layer).layers);
      size_t first = 0;
      for (size_t g = 0; g < static_cast<size_t>(place.group); ++g) {
        first += blocks_[g] * static_cast<size_t>(layout.groups[g].layers);
      }
      const KvCache::Range held = world_.cache.blocks(one.sequence, place.group);
      for (int block = held.begin; block < held.end; ++block) {
        const PageId page = world_.cache.page(one.sequence, layer, block * layout.page_tokens);
        ASSERT_GE(page, first);
        ASSERT_LT(page, first + blocks_[static_cast<size_t>(place.group)] * layers);
        ASSERT_EQ((page - first) % layers, static_cast<size_t>(place.index));
      }
    }
  }

  std::mt19937_64 random_;
  KvLayout layout_;
  std::vector<size_t> blocks_;  // by group; none: they share their pages
  World world_;
  std::deque<Mirrored> all_;
};

TEST(KvCache, EverySequenceReadsItselfWhateverTheOthersDo) {
  int refused = 0, found = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    RandomCase one(seed);
    one.play(80);
    refused += one.refused;
    found += one.found;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(refused, 1000);  // or the cases were too easy
  EXPECT_GT(found, 1000);
}

TEST(KvCache, FindsTheLongestPrefixThatWasEverComputed) {
  std::mt19937_64 random(7);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 300; ++round) {
    World world(layout_of({{.window = 0, .layers = 2}, {.window = pick(1, 30), .layers = 3}}, 4), {.pages = 2000});
    std::vector<std::vector<int32_t>> histories;
    for (int i = 0; i < 12; ++i) {
      std::vector<int32_t> tokens = text(pick(1, 90));
      if (!histories.empty()) {
        const std::vector<int32_t>& other = histories[static_cast<size_t>(pick(0, i - 1))];
        const size_t shared = static_cast<size_t>(pick(0, static_cast<int>(std::min(other.size(), tokens.size()))));
        std::copy_n(other.begin(), shared, tokens.begin());
        for (size_t p = shared; p < tokens.size(); ++p) tokens[p] = pick(0, 2);
      }
      size_t longest = 0;
      for (const std::vector<int32_t>& other : histories) {
        const auto [mine, theirs] = std::mismatch(tokens.begin(), tokens.end(), other.begin(), other.end());
        longest = std::max(longest, static_cast<size_t>(mine - tokens.begin()) / 4);
      }
      longest = std::min(longest, (tokens.size() - 1) / 4);
      Mirrored one = world.start(0);
      ASSERT_EQ(world.take_prefix(one, tokens, Phase::kPrefill), static_cast<int>(longest * 4));
      while (one.tokens.size() < tokens.size()) {  // in any pieces
        const size_t at = one.tokens.size();
        const size_t count = static_cast<size_t>(pick(1, static_cast<int>(tokens.size() - at)));
        ASSERT_TRUE(world.extend(one, std::span(tokens).subspan(at, count), Phase::kPrefill));
      }
      world.expect_reads_itself(one);
      histories.push_back(tokens);
    }
  }
}

// Blocks of one ended sequence go one after another: those that slid out of the window first, then the last of both
// groups before the first. What is found is the longest prefix for which each group has what the next token sees.
void expect_prefixes_shrink(int piece, std::set<int>& lengths) {
  constexpr int kPage = 4, kWindow = 10, kLength = 64, kBlocks = kLength / kPage;
  const KvLayout layout = layout_of({{.window = 0, .layers = 1}, {.window = kWindow, .layers = 1}}, kPage);
  const auto first_seen = [](int length) { return std::max(0, length - kWindow + 1) / kPage; };
  std::vector<std::pair<int, int>> order;  // (group, block) as they become idle
  int slid = 0;
  for (int length = 0; length < kLength; length += piece) {
    while (slid < first_seen(length)) order.push_back({1, slid++});
  }
  for (int b = kBlocks - 1; b >= 0; --b) {
    order.push_back({0, b});
    if (b >= slid) order.push_back({1, b});
  }
  ASSERT_EQ(order.size(), 2u * kBlocks);
  const std::vector<int32_t> tokens = text(kLength + 1);
  for (size_t evicted = 0; evicted <= order.size(); evicted += 2) {
    World world(layout, {.pages = 2 * kBlocks});
    {
      Mirrored one = world.start(0);
      for (size_t at = 0; at < kLength; at += static_cast<size_t>(piece)) {
        ASSERT_TRUE(world.extend(one, std::span(tokens).subspan(at, static_cast<size_t>(piece)), Phase::kPrefill));
      }
    }
    Mirrored other = world.start(1);  // takes what is evicted: a block of both groups for each four tokens
    ASSERT_TRUE(world.reserve(other, static_cast<int>(evicted) / 2 * kPage));
    const std::set<std::pair<int, int>> there(order.begin() + static_cast<std::ptrdiff_t>(evicted), order.end());
    int expected = 0;
    for (int blocks = 1; blocks <= kBlocks; ++blocks) {
      bool whole = true;
      for (int b = 0; b < blocks; ++b) whole &= there.count({0, b}) > 0;
      for (int b = first_seen(blocks * kPage); b < blocks; ++b) whole &= there.count({1, b}) > 0;
      if (whole) expected = blocks * kPage;
    }
    Mirrored again = world.start(0);
    EXPECT_EQ(world.take_prefix(again, tokens, Phase::kPrefill), expected) << evicted << " evicted, piece " << piece;
    world.expect_reads_itself(again);
    lengths.insert(expected);
  }
}

TEST(KvCache, PrefixesWithWindowsSurviveWhatTheirWindowsDoNotNeed) {
  std::set<int> whole, pieces, single;
  expect_prefixes_shrink(64, whole);
  expect_prefixes_shrink(16, pieces);
  expect_prefixes_shrink(1, single);
  EXPECT_EQ(whole.size(), 17u);  // nothing slid out before the end: one block after another
  EXPECT_GT(pieces.size(), 4u);
  EXPECT_EQ(single, (std::set<int>{0, 64}));  // no shorter prefix has its window
}

TEST(KvCache, TheLeastRecentlyUsedGoesFirst) {
  World world(layout_of({{.window = 0, .layers = 2}}, 4), {.pages = 2 * 4 * 3});  // three sequences of four blocks
  const auto found = [&](int32_t which) {
    Mirrored one = world.start(0);
    return world.take_prefix(one, text(17, which), Phase::kPrefill);
  };
  for (const int32_t which : {100, 200, 300}) {
    Mirrored one = world.start(0);
    ASSERT_TRUE(world.extend(one, text(16, which), Phase::kPrefill));
  }
  EXPECT_EQ(found(100), 16);  // used again: 200 is the oldest
  Mirrored other = world.start(0);
  ASSERT_TRUE(world.extend(other, text(8, 900), Phase::kPrefill));
  EXPECT_EQ(found(300), 16);
  EXPECT_EQ(found(200), 8);  // its end went, its beginning is there
  EXPECT_EQ(found(100), 16);
  ASSERT_TRUE(world.extend(other, text(16, 950), Phase::kPrefill));  // 300 is the oldest since
  EXPECT_EQ(found(300), 0);
  EXPECT_EQ(found(200), 8);
  EXPECT_EQ(found(100), 16);
}

TEST(KvCache, SaltsAndPhasesKeepApart) {
  for (const bool agree : {false, true}) {
    World world(layout_of({{.window = 0, .layers = 1}}, 4), {.pages = 100, .phases_agree = agree});
    const std::vector<int32_t> tokens = text(20);
    {
      Mirrored one = world.start(1);
      ASSERT_TRUE(world.extend(one, std::span(tokens).first(10), Phase::kPrefill));
      ASSERT_TRUE(world.extend(one, std::span(tokens).subspan(10, 8), Phase::kDecode));
    }
    const auto found = [&](uint64_t salt, Phase phase, int decoded) {
      Mirrored one = world.start(salt);
      const int length = world.take_prefix(one, tokens, phase, decoded);
      world.expect_reads_itself(one);
      return length;
    };
    EXPECT_EQ(found(2, Phase::kPrefill, 0), 0);
    EXPECT_EQ(found(1, Phase::kPrefill, 0), agree ? 16 : 8);
    EXPECT_EQ(found(1, Phase::kDecode, 0), agree ? 16 : 0);
    EXPECT_EQ(found(1, Phase::kPrefill, 10), 16);
    EXPECT_EQ(found(1, Phase::kPrefill, 9), agree ? 16 : 8);
  }
}

TEST(KvCache, ForksShareUntilOneWrites) {
  World world(layout_of({{.window = 0, .layers = 2}, {.window = 8, .layers = 1}}, 4), {.pages = 100});
  std::deque<Mirrored> all;
  all.push_back(world.start(0));
  ASSERT_TRUE(world.extend(all[0], text(10), Phase::kPrefill));
  const size_t before = world.cache.held_pages();
  for (int i = 0; i < 4; ++i) all.push_back(world.fork(all[0]));
  EXPECT_EQ(world.cache.held_pages(), before);
  for (size_t i = 0; i < all.size(); ++i) {
    const int32_t token = static_cast<int32_t>(i);
    ASSERT_TRUE(world.extend(all[i], std::span(&token, 1), Phase::kDecode));
  }
  EXPECT_EQ(world.cache.held_pages(), before + 4 * 3);  // the last of them writes where all began
  for (Mirrored& one : all) world.expect_reads_itself(one);
  all.clear();
  EXPECT_EQ(world.cache.held_pages(), 0u);
}

TEST(KvCache, RoomThatWasReservedIsGivenBackWhenAPrefixIsTaken) {
  World world(layout_of({{.window = 0, .layers = 1}}, 4), {.pages = 20});
  Mirrored first = world.start(0);
  ASSERT_TRUE(world.extend(first, text(8), Phase::kPrefill));
  {
    Mirrored one = world.start(0);
    ASSERT_TRUE(world.reserve(one, 12));
    EXPECT_EQ(world.take_prefix(one, text(9), Phase::kPrefill), 8);
    EXPECT_EQ(world.cache.held_pages(), 2u);
  }
  EXPECT_EQ(world.cache.held_pages(), 2u);
}

TEST(KvCache, ASequenceCannotGoBackToWhereItsWindowIsGone) {
  World world(layout_of({{.window = 6, .layers = 1}}, 4), {.pages = 20});
  Mirrored one = world.start(0);
  ASSERT_TRUE(world.extend(one, text(30), Phase::kPrefill));
  ASSERT_TRUE(world.extend(one, text(3), Phase::kPrefill));
  world.truncate(one, 30);
  world.expect_reads_itself(one);
  EXPECT_THROW(world.cache.truncate(one.sequence, 10), Failure);
}

// Layers as in a model of 26 of which 22 see 512 positions: 64 sequences of 512 tokens that came in pieces and then
// one by one take what their tokens need, plus 5 % at most; and so it stays when they go on.
TEST(KvCache, SixtyFourSequencesTakeNoMoreThanTheirTokensNeed) {
  KvCache cache(layout_of({{.window = 512, .layers = 22}, {.window = 0, .layers = 4}}, 16), {.pages = 1000000});
  std::deque<Sequence> all;
  const auto held_ratio = [&](int length) {
    const double needed = 64.0 * (4 * length + 22 * std::min(length, 512)) / 16;  // pages that would be full
    return static_cast<double>(cache.held_pages()) / needed;
  };
  for (int32_t i = 0; i < 64; ++i) {
    Sequence one = cache.start();
    const std::vector<int32_t> tokens = text(512, 1000 * i);
    size_t at = 0;
    for (const size_t piece : {100u, 256u, 28u}) {
      ASSERT_TRUE(cache.reserve(one, static_cast<int>(piece)));
      cache.append(one, std::span(tokens).subspan(at, piece), Phase::kPrefill);
      at += piece;
    }
    for (; at < tokens.size(); ++at) {
      ASSERT_TRUE(cache.reserve(one, 1));
      cache.append(one, std::span(tokens).subspan(at, 1), Phase::kDecode);
    }
    all.push_back(std::move(one));
  }
  EXPECT_LE(held_ratio(512), 1.05);
  for (int length = 512; length < 2048; ++length) {
    for (Sequence& one : all) {
      ASSERT_TRUE(cache.reserve(one, 1));
      const int32_t token = length;
      cache.append(one, std::span(&token, 1), Phase::kDecode);
    }
  }
  EXPECT_LE(held_ratio(2048), 1.05);
  all.clear();
  EXPECT_EQ(cache.held_pages(), 0u);
}

// A prefix can be gone on from where a run ended at the end of a block, and nowhere else.
TEST(KvCache, StatesAreFoundWhereRunsEnded) {
  World world(layout_of({{.window = 0, .layers = 1}, {.window = 2, .layers = 1, .state = true}}, 4),
              {.pages = 100, .states = 8});
  EXPECT_FALSE(world.cache.can_rewind());
  const std::vector<int32_t> tokens = text(30);
  {
    Mirrored one = world.start(0);
    for (const int count : {8, 5, 7, 3}) {  // ends at 8, 13, 20 and 23
      ASSERT_TRUE(
          world.extend(one, std::span(tokens).subspan(one.tokens.size(), static_cast<size_t>(count)), Phase::kPrefill));
    }
    EXPECT_THROW(world.cache.truncate(one.sequence, 20), Failure);
    EXPECT_EQ(one.sequence.length(), 23);
  }
  for (const auto& [asked, found] : {std::pair(30, 20), std::pair(21, 20), std::pair(20, 8), std::pair(8, 0)}) {
    Mirrored one = world.start(0);
    EXPECT_EQ(world.take_prefix(one, std::span(tokens).first(static_cast<size_t>(asked)), Phase::kPrefill), found);
    world.expect_reads_itself(one);
    if (HasFatalFailure()) return;
    ASSERT_TRUE(world.extend(one, std::span(tokens).subspan(static_cast<size_t>(found), 1), Phase::kPrefill));
    world.expect_reads_itself(one);
  }
}

// However sequences begin, share and end, no place is lost.
TEST(KvCache, AllStatesComeBack) {
  World world(layout_of({{.window = 0, .layers = 1}, {.window = 2, .layers = 1, .state = true}}, 4),
              {.pages = 1000, .states = 6});
  const std::vector<int32_t> tokens = text(200);
  for (int round = 0; round < 20; ++round) {
    Mirrored one = world.start(0), other = world.fork(one);
    world.take_prefix(one, tokens, Phase::kPrefill);
    for (const int count : {5, 3, 9, 1, 1, 4}) {
      ASSERT_TRUE(world.reserve(one, 30));  // more room than is used
      ASSERT_TRUE(
          world.extend(one, std::span(tokens).subspan(one.tokens.size(), static_cast<size_t>(count)), Phase::kPrefill));
      other = world.fork(one);
      ASSERT_TRUE(world.extend(other, std::span(tokens).first(2), Phase::kDecode));
    }
    world.expect_reads_itself(one);
    world.expect_reads_itself(other);
    world.truncate(other, 0);
    ASSERT_TRUE(world.extend(other, tokens, Phase::kPrefill));
    world.expect_reads_itself(other);
    if (HasFatalFailure()) return;
  }
  std::deque<Sequence> all;
  for (int i = 0; i < 6; ++i) {
    all.push_back(world.cache.start());
    EXPECT_TRUE(world.cache.reserve(all.back(), 1));
  }
  all.push_back(world.cache.start());
  EXPECT_FALSE(world.cache.reserve(all.back(), 1));
}

}  // namespace
}  // namespace doppler
