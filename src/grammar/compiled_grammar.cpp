#include "grammar/compiled_grammar.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <span>

#include "base/error.h"

namespace doppler {
namespace {

constexpr uint32_t kNone = Matcher::kNone;
// Work that a text may ask for at once, and what it gets back with every token; see Matcher::work(). All texts wait for
// it. A walk over a large vocabulary is a million.
constexpr uint64_t kMostCredit = 32'000'000, kCreditPerToken = 2'000'000;
constexpr size_t kMostTables = size_t{16} << 20;  // bytes of a walk
constexpr size_t kMostFrames = 1 << 14;           // of an answer, before those that are not needed any more are dropped

// The automaton without its stack's bottom, made deterministic as far as the walk gets: a table per set of places.
class Determined {
 public:
  static constexpr int32_t kDead = 0;
  explicit Determined(Matcher& matcher) : matcher_(matcher) { add({}); }

  int32_t add(const Places& places) {
    const auto [found, fresh] =
        known_.emplace(std::make_pair(places.list, places.exit), static_cast<int32_t>(states_.size()));
    if (fresh) {
      bytes_ += sizeof(State) + 2 * sizeof(Place) * places.list.size() + 128;
      states_.push_back(std::make_unique<State>());
      states_.back()->places = places;
      states_.back()->next.fill(-1);
    }
    return found->second;
  }
  int32_t step(int32_t from, uint8_t byte) {
    const int32_t known = states_[static_cast<size_t>(from)]->next[byte];
    if (known >= 0) return known;
    matcher_.step(states_[static_cast<size_t>(from)]->places, byte, scratch_);
    return states_[static_cast<size_t>(from)]->next[byte] = add(scratch_);
  }
  // Whether the tables are too large; then all but those of `path` are dropped, which are numbered anew.
  void trim(std::span<int32_t> path) {
    if (bytes_ < kMostTables) return;
    std::vector<Places> kept;
    for (const int32_t state : path) kept.push_back(states_[static_cast<size_t>(state)]->places);
    states_.clear();
    known_.clear();
    bytes_ = 0;
    add({});
    for (size_t i = 0; i < path.size(); ++i) path[i] = add(kept[i]);
  }
  bool exits(int32_t state) const { return states_[static_cast<size_t>(state)]->places.exit; }

 private:
  struct State {
    Places places;
    std::array<int32_t, 256> next;  // -1: not known yet
  };
  Matcher& matcher_;
  std::vector<std::unique_ptr<State>> states_;
  std::map<std::pair<std::vector<Place>, bool>, int32_t> known_;
  Places scratch_;
  size_t bytes_ = 0;
};

}  // namespace

CompiledGrammar::CompiledGrammar(Expressions& expressions, Rule root, std::shared_ptr<const TokenTrie> trie)
    : automaton_(expressions, root), trie_(std::move(trie)) {
  warm();
}

CompiledGrammar::Key CompiledGrammar::key(uint32_t state, const Matcher::Frame& frame) const {
  if (frame.body == kNone) return {state, kNone, 0, 0};
  // A token ends no more bodies of a repetition than it has bytes: bounds further away are all the same.
  const auto far = static_cast<uint32_t>(trie_->longest() + 1);
  return {state, frame.body, std::min(frame.least, far), std::min(frame.most, far)};
}

void CompiledGrammar::spend(uint64_t& credit, uint64_t work) {
  if (work > credit) {
    fail({.code = ErrorCode::kUsage,
          .what = "the grammar leaves too many readings of a text open",
          .todo = "Let alternatives and repetitions that follow each other begin with different characters"});
  }
  credit -= work;
}

std::shared_ptr<const CompiledGrammar::Local> CompiledGrammar::local(const Key& key, uint64_t& credit) const {
  const auto lock = [&] {
    while (busy_.test_and_set(std::memory_order_acquire)) {
    }
  };
  lock();
  const auto found = known_.find(key);
  if (found != known_.end()) recent_.splice(recent_.begin(), recent_, found->second);
  const std::shared_ptr<const Local> known = found == known_.end() ? nullptr : found->second->local;
  busy_.clear(std::memory_order_release);
  if (known) return known;
  std::shared_ptr<const Local> made = compute(key, credit);
  const size_t bytes = sizeof(Known) + sizeof(Local) + made->dense.size() * 8 + made->sparse.size() * 4 +
                       (made->exits ? made->exits->nodes().size() * (sizeof(TokenTrie::Node) + 8) : 0);
  std::list<Known> fresh, old;  // old ones are freed when the lock is
  fresh.push_back({key, made, bytes});
  lock();
  if (known_.emplace(key, fresh.begin()).second) {
    recent_.splice(recent_.begin(), fresh);
    known_bytes_ += bytes;
  }
  while (known_bytes_ > kMostKnownBytes) {
    known_bytes_ -= recent_.back().bytes;
    known_.erase(recent_.back().key);
    old.splice(old.begin(), recent_, std::prev(recent_.end()));
  }
  busy_.clear(std::memory_order_release);
  return made;
}

std::shared_ptr<const CompiledGrammar::Local> CompiledGrammar::compute(const Key& key, uint64_t& credit) const {
  const Matcher::Frame bottom = {.body = key[1], .least = key[2], .most = key[3]};
  Matcher matcher(automaton_, bottom);
  Determined determined(matcher);
  Places begin;
  begin.list.push_back({key[0], Matcher::kBottom});
  ByteSet follow = automaton_.follow(automaton_.rule_of(key[0]));
  if (bottom.body != kNone) {
    for (size_t k = 0; k < follow.size(); ++k) follow[k] |= automaton_.follow(bottom.body)[k];
  }

  const std::vector<TokenTrie::Node>& nodes = trie_->nodes();
  std::vector<int32_t> path(trie_->longest() + 1);
  path[0] = determined.add(begin);
  std::vector<int32_t> accepted;
  std::vector<uint32_t> exits;
  for (uint32_t at = 1; at < nodes.size();) {
    const TokenTrie::Node& node = nodes[at];
    const uint64_t before = matcher.work();
    const int32_t state = determined.step(path[node.depth - 1u], node.byte);
    // A step that no table knew is several times what the matcher did: it is looked up and written down.
    spend(credit, 1 + (matcher.work() - before) * 4);
    if (state == Determined::kDead) {
      at = node.end;
      continue;
    }
    path[node.depth] = state;
    const auto [first, last] = trie_->tokens_at(at);
    accepted.insert(accepted.end(), first, last);
    if (node.end > at + 1 && determined.exits(state)) exits.push_back(at);
    determined.trim(std::span(path).first(node.depth + 1u));
    ++at;
  }

  auto local = std::make_shared<Local>();
  TokenMask mask(trie_->vocab_size());
  for (const int32_t token : accepted) mask.add(token);
  std::vector<std::pair<std::string, int32_t>> behind;
  for (const uint32_t exit : exits) {
    for (uint32_t child = exit + 1; child < nodes[exit].end; child = nodes[child].end) {
      if (!has_byte(follow, nodes[child].byte)) continue;
      const int32_t* first = trie_->tokens_at(child).first;
      const int32_t* last = nodes[child].end < nodes.size() ? trie_->tokens_at(nodes[child].end).first
                                                            : trie_->tokens_at(nodes.size() - 1).second;
      for (; first != last; ++first) {
        if (mask.has(*first)) continue;
        spend(credit, 32);
        behind.emplace_back(trie_->bytes_of(*first).substr(nodes[exit].depth), *first);
      }
    }
  }
  if (!behind.empty()) local->exits = std::make_unique<TokenTrie>(std::move(behind));
  if (accepted.size() > static_cast<size_t>(trie_->vocab_size()) / 64) {
    local->dense.assign(mask.words().begin(), mask.words().end());
  } else {
    local->sparse = std::move(accepted);
  }
  return local;
}

// Walks that see most of the trie are done before the first token is wanted: those from places that take many bytes. A
// grammar of which one is too much is refused here.
void CompiledGrammar::warm() const {
  constexpr int kWide = 64, kMost = 32;
  int left = kMost;
  uint64_t all = kMostCredit;
  const auto try_place = [&](uint32_t state, const Matcher::Frame& frame) {
    int wide = 0;
    for (const uint64_t word : automaton_.set(automaton_.state(state))) wide += std::popcount(word);
    if (wide < kWide || left == 0 || all == 0) return;
    --left;
    uint64_t credit = kMostCredit;
    local(key(state, frame), credit);
    all -= std::min(all, kMostCredit - credit);
  };
  Matcher matcher(automaton_, {});
  Places places;
  for (uint32_t at = 0; at < automaton_.size(); ++at) {
    const Automaton::State& state = automaton_.state(at);
    if (state.kind == Automaton::State::Kind::kByte) {
      try_place(at, {});
    } else if (state.kind == Automaton::State::Kind::kRepeat) {
      const Automaton::Repeat& repeat = automaton_.repeat(state.a);
      matcher.enter(automaton_.start(repeat.body), Matcher::kBottom, places);
      for (const Place& place : places.list) {
        if (place.frame != Matcher::kBottom) continue;
        try_place(place.state, {.body = repeat.body, .least = repeat.least, .most = repeat.most});
        try_place(place.state, {.body = repeat.body, .least = 0, .most = repeat.most});
      }
      matcher.forget(1);
    }
  }
}

namespace {

class Constraint : public TokenConstraint {
 public:
  explicit Constraint(std::shared_ptr<const CompiledGrammar> grammar)
      : grammar_(std::move(grammar)), matcher_(grammar_->automaton(), {}), mask_(grammar_->trie().vocab_size()) {
    matcher_.enter(grammar_->automaton().start(grammar_->automaton().root()), Matcher::kBottom, places_);
  }

  bool may_end() const override { return places_.exit; }
  bool must_end() const override { return places_.list.empty(); }

  bool accept(int32_t token) override {
    const std::string bytes = grammar_->trie().bytes_of(token);
    if (bytes.empty()) return false;
    Places now = places_, next;
    for (const char byte : bytes) {
      matcher_.step(now, static_cast<uint8_t>(byte), next);
      std::swap(now, next);
      if (!now.alive()) return false;
    }
    places_ = std::move(now);
    if (matcher_.mark() > kMostFrames) {
      matcher_.compact(places_);
      mask_of_.reset();
    }
    return true;
  }

  const TokenMask& allowed() override {
    // Inside a string most tokens lead back to where they came from.
    if (mask_of_ && mask_of_->list == places_.list) return mask_;
    std::fill(mask_.words().begin(), mask_.words().end(), 0);
    credit_ = std::min(kMostCredit, credit_ + kCreditPerToken);
    const size_t mark = matcher_.mark();
    try {
      fill_mask();
    } catch (const Failure&) {  // the credit is spent: this text cannot go on, those beside it can
      matcher_.forget(mark);
      std::fill(mask_.words().begin(), mask_.words().end(), 0);
    }
    mask_of_ = places_;
    return mask_;
  }

 private:
  void fill_mask() {
    std::vector<std::pair<CompiledGrammar::Key, uint32_t>> by_key;  // and their frames
    for (const Place& place : places_.list) {
      by_key.emplace_back(grammar_->key(place.state, matcher_.frame(place.frame)), place.frame);
    }
    std::sort(by_key.begin(), by_key.end());
    for (size_t i = 0; i < by_key.size();) {
      const CompiledGrammar::Key key = by_key[i].first;
      const std::shared_ptr<const CompiledGrammar::Local> local = grammar_->local(key, credit_);
      CompiledGrammar::spend(credit_, local->dense.size() / 16 + local->sparse.size());
      for (size_t k = 0; k < local->dense.size(); ++k) mask_.words()[k] |= local->dense[k];
      for (const int32_t token : local->sparse) mask_.add(token);
      for (; i < by_key.size() && by_key[i].first == key; ++i) {
        if (local->exits) add_exits(*local->exits, matcher_.frame(by_key[i].second));
      }
    }
  }

  // Of tokens that leave their frame, those whose rest matches behind it.
  void add_exits(const TokenTrie& exits, Matcher::Frame frame) {
    if (frame.back == kNone) return;  // behind the bottom there is nothing
    const size_t mark = matcher_.mark();
    const std::vector<TokenTrie::Node>& nodes = exits.nodes();
    if (walk_.size() < exits.longest() + 1) walk_.resize(exits.longest() + 1);
    matcher_.enter(frame.back, frame.parent, walk_[0]);
    for (uint32_t at = 1; at < nodes.size();) {
      const TokenTrie::Node& node = nodes[at];
      const uint64_t before = matcher_.work();
      matcher_.step(walk_[node.depth - 1u], node.byte, walk_[node.depth]);
      CompiledGrammar::spend(credit_, matcher_.work() - before);
      if (!walk_[node.depth].alive()) {
        at = node.end;
        continue;
      }
      const auto [first, last] = exits.tokens_at(at);
      for (const int32_t* token = first; token != last; ++token) mask_.add(*token);
      ++at;
    }
    matcher_.forget(mark);
  }

  std::shared_ptr<const CompiledGrammar> grammar_;
  Matcher matcher_;
  Places places_;
  TokenMask mask_;
  std::optional<Places> mask_of_;  // the places that mask_ belongs to
  std::vector<Places> walk_;       // by depth
  uint64_t credit_ = kMostCredit;
};

}  // namespace

std::unique_ptr<TokenConstraint> CompiledGrammar::begin() const {
  return std::make_unique<Constraint>(shared_from_this());
}

}  // namespace doppler
