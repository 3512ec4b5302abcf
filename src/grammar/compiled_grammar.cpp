#include "grammar/compiled_grammar.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

namespace doppler {
namespace {

constexpr uint32_t kNone = Matcher::kNone;
constexpr size_t kMostKnownBytes = size_t{128} << 20;
constexpr size_t kMostFrames = 1 << 14;  // of an answer, before those that are not needed any more are dropped

// The automaton without its stack's bottom, made deterministic as far as the walk gets: a table per set of places.
class Determined {
 public:
  static constexpr int32_t kDead = 0;
  explicit Determined(Matcher& matcher) : matcher_(matcher) { add({}); }

  int32_t add(const Places& places) {
    const auto [found, fresh] =
        known_.emplace(std::make_pair(places.list, places.exit), static_cast<int32_t>(states_.size()));
    if (fresh) {
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
};

}  // namespace

CompiledGrammar::CompiledGrammar(Expressions& expressions, Rule root, std::shared_ptr<const TokenTrie> trie)
    : automaton_(expressions, root), trie_(std::move(trie)) {
  warm();
}

std::shared_ptr<const CompiledGrammar::Local> CompiledGrammar::local(const std::vector<uint32_t>& states,
                                                                     const Matcher::Frame& frame) const {
  // A token ends no more bodies of a repetition than it has bytes: bounds further away are all the same.
  const auto far = static_cast<uint32_t>(trie_->longest() + 1);
  const Matcher::Frame bottom = {.body = frame.body,
                                 .least = frame.body == kNone ? 0 : std::min(frame.least, far),
                                 .most = frame.body == kNone ? 0 : std::min(frame.most, far)};
  std::string key(reinterpret_cast<const char*>(states.data()), states.size() * sizeof(uint32_t));
  for (const uint32_t part : {bottom.body, bottom.least, bottom.most}) {
    key.append(reinterpret_cast<const char*>(&part), sizeof part);
  }
  const auto lock = [&] {
    while (busy_.test_and_set(std::memory_order_acquire)) {
    }
  };
  lock();
  const auto found = known_.find(key);
  const std::shared_ptr<const Local> known = found == known_.end() ? nullptr : found->second;
  busy_.clear(std::memory_order_release);
  if (known) return known;
  std::shared_ptr<const Local> made = compute(states, bottom);
  const size_t bytes = key.size() + made->dense.size() * 8 + made->sparse.size() * 4 +
                       (made->exits ? made->exits->nodes().size() * sizeof(TokenTrie::Node) : 0);
  lock();
  if (known_bytes_ + bytes < kMostKnownBytes && known_.emplace(std::move(key), made).second) known_bytes_ += bytes;
  busy_.clear(std::memory_order_release);
  return made;
}

std::shared_ptr<const CompiledGrammar::Local> CompiledGrammar::compute(const std::vector<uint32_t>& states,
                                                                       const Matcher::Frame& bottom) const {
  Matcher matcher(automaton_, bottom);
  Determined determined(matcher);
  Places begin;
  ByteSet follow{};
  const auto add_follow = [&](Rule rule) {
    for (size_t k = 0; k < follow.size(); ++k) follow[k] |= automaton_.follow(rule)[k];
  };
  for (const uint32_t state : states) {
    begin.list.push_back({state, Matcher::kBottom});
    add_follow(automaton_.rule_of(state));
  }
  if (bottom.body != kNone) add_follow(bottom.body);

  const std::vector<TokenTrie::Node>& nodes = trie_->nodes();
  std::vector<int32_t> path(trie_->longest() + 1);
  path[0] = determined.add(begin);
  std::vector<int32_t> accepted;
  std::vector<uint32_t> exits;
  for (uint32_t at = 1; at < nodes.size();) {
    const TokenTrie::Node& node = nodes[at];
    const int32_t state = determined.step(path[node.depth - 1u], node.byte);
    if (state == Determined::kDead) {
      at = node.end;
      continue;
    }
    path[node.depth] = state;
    const auto [first, last] = trie_->tokens_at(at);
    accepted.insert(accepted.end(), first, last);
    if (node.end > at + 1 && determined.exits(state)) exits.push_back(at);
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
        if (!mask.has(*first)) behind.emplace_back(trie_->bytes_of(*first).substr(nodes[exit].depth), *first);
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

// Walks that see most of the trie are done before the first token is wanted: those from places that take many bytes.
void CompiledGrammar::warm() const {
  constexpr int kWide = 64, kMost = 32;
  int left = kMost;
  Matcher matcher(automaton_, {});
  Places places;
  std::vector<bool> seen(automaton_.size());
  const auto try_state = [&](uint32_t state, const Matcher::Frame& frame) {
    matcher.enter(state, Matcher::kBottom, places);
    std::vector<uint32_t> states;
    int wide = 0;
    for (const Place& place : places.list) {
      if (place.frame != Matcher::kBottom) continue;
      states.push_back(place.state);
      for (const uint64_t word : automaton_.set(automaton_.state(place.state))) wide += std::popcount(word);
    }
    matcher.forget(1);
    if (wide < kWide) return;
    --left;
    local(states, frame);
  };
  for (uint32_t at = 0; at < automaton_.size() && left > 0; ++at) {
    const Automaton::State& state = automaton_.state(at);
    if (state.kind == Automaton::State::Kind::kByte && !seen[state.b]) {
      seen[state.b] = true;
      try_state(state.b, {});
    } else if (state.kind == Automaton::State::Kind::kRepeat) {
      const Automaton::Repeat& repeat = automaton_.repeat(state.a);
      try_state(automaton_.start(repeat.body), {.body = repeat.body, .least = repeat.least, .most = repeat.most});
      try_state(automaton_.start(repeat.body), {.body = repeat.body, .least = 0, .most = repeat.most});
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
    std::vector<Place> by_frame = places_.list;
    std::sort(by_frame.begin(), by_frame.end(), [](const Place& a, const Place& b) {
      return a.frame != b.frame ? a.frame < b.frame : a.state < b.state;
    });
    for (size_t i = 0; i < by_frame.size();) {
      const uint32_t frame = by_frame[i].frame;
      std::vector<uint32_t> states;
      for (; i < by_frame.size() && by_frame[i].frame == frame; ++i) states.push_back(by_frame[i].state);
      const std::shared_ptr<const CompiledGrammar::Local> local = grammar_->local(states, matcher_.frame(frame));
      for (size_t k = 0; k < local->dense.size(); ++k) mask_.words()[k] |= local->dense[k];
      for (const int32_t token : local->sparse) mask_.add(token);
      if (local->exits) add_exits(*local->exits, matcher_.frame(frame));
    }
    mask_of_ = places_;
    return mask_;
  }

 private:
  // Of tokens that leave their frame, those whose rest matches behind it.
  void add_exits(const TokenTrie& exits, Matcher::Frame frame) {
    if (frame.back == kNone) return;  // behind the bottom there is nothing
    const size_t mark = matcher_.mark();
    const std::vector<TokenTrie::Node>& nodes = exits.nodes();
    if (walk_.size() < exits.longest() + 1) walk_.resize(exits.longest() + 1);
    matcher_.enter(frame.back, frame.parent, walk_[0]);
    for (uint32_t at = 1; at < nodes.size();) {
      const TokenTrie::Node& node = nodes[at];
      matcher_.step(walk_[node.depth - 1u], node.byte, walk_[node.depth]);
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
};

}  // namespace

std::unique_ptr<TokenConstraint> CompiledGrammar::begin() const {
  return std::make_unique<Constraint>(shared_from_this());
}

}  // namespace doppler
