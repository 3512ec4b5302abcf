#include "grammar/matcher.h"

#include <algorithm>

namespace doppler {

constexpr uint64_t kFrameWork = 64;  // a frame costs memory, too

Matcher::Matcher(const Automaton& automaton, const Frame& bottom) : automaton_(automaton), frames_{bottom}, seen_(64) {}

size_t Matcher::FrameHash::operator()(const Frame& f) const {
  uint64_t hash = f.back;
  for (const uint32_t part : {f.parent, f.body, f.least, f.most})
    hash = (hash ^ part) * 0x9e3779b97f4a7c15 + (hash >> 29);
  return static_cast<size_t>(hash ^ hash >> 32);
}

uint32_t Matcher::intern(const Frame& frame) {
  const auto [found, added] = known_.emplace(frame, static_cast<uint32_t>(frames_.size()));
  if (added) {
    frames_.push_back(frame);
    work_ += kFrameWork;
  }
  return found->second;
}

void Matcher::forget(size_t mark) {
  for (; frames_.size() > mark; frames_.pop_back()) known_.erase(frames_.back());
}

bool Matcher::fresh(Place place) {
  const uint64_t key = (uint64_t{place.frame} << 32 | place.state) + 1;
  const auto slot_of = [&](uint64_t k) {
    return static_cast<size_t>((k * 0x9e3779b97f4a7c15) >> 32) & (seen_.size() - 1);
  };
  size_t at = slot_of(key);
  for (; seen_[at] != 0; at = (at + 1) & (seen_.size() - 1)) {
    if (seen_[at] == key) return false;
  }
  seen_[at] = key;
  used_.push_back(static_cast<uint32_t>(at));
  if (used_.size() * 2 > seen_.size()) {
    std::vector<uint64_t> keys;
    for (const uint32_t slot : used_) keys.push_back(seen_[slot]);
    seen_.assign(seen_.size() * 2, 0);
    used_.clear();
    for (const uint64_t k : keys) {
      size_t to = slot_of(k);
      while (seen_[to] != 0) to = (to + 1) & (seen_.size() - 1);
      seen_[to] = k;
      used_.push_back(static_cast<uint32_t>(to));
    }
  }
  return true;
}

void Matcher::push(uint32_t state, uint32_t frame) {
  if (fresh({state, frame})) todo_.push_back({state, frame});
}

void Matcher::close(Places& out) {
  using Kind = Automaton::State::Kind;
  while (!todo_.empty()) {
    const Place place = todo_.back();
    todo_.pop_back();
    ++work_;
    const Automaton::State& state = automaton_.state(place.state);
    switch (state.kind) {
      case Kind::kByte:
        if (out.list.size() < kMostPlaces) out.list.push_back(place);
        break;
      case Kind::kSplit:
        work_ += state.b - state.a;
        for (uint32_t i = state.a; i < state.b; ++i) push(automaton_.target(i), place.frame);
        break;
      case Kind::kCall:
        // A call at the end of a rule needs no frame: recursion there costs nothing.
        push(automaton_.start(state.a),
             state.b == Automaton::kEnd ? place.frame : intern({.back = state.b, .parent = place.frame}));
        break;
      case Kind::kRepeat: {
        const Automaton::Repeat& repeat = automaton_.repeat(state.a);
        push(automaton_.start(repeat.body), intern({.back = state.b,
                                                    .parent = place.frame,
                                                    .body = repeat.body,
                                                    .least = repeat.least,
                                                    .most = repeat.most}));
        if (repeat.least == 0) push(state.b, place.frame);
        break;
      }
      case Kind::kEnd: {
        Frame frame = frames_[place.frame];
        if (frame.body != kNone) {
          frame.least -= frame.least > 0;
          frame.most -= 1;
          // The bottom is no frame that intern() knows, but its successors are bottoms all the same.
          if (frame.most > 0) push(automaton_.start(frame.body), intern(frame));
          if (frame.least > 0) break;
        }
        if (frame.back == kNone) {
          out.exit = true;
        } else {
          push(frame.back, frame.parent);
        }
        break;
      }
    }
  }
  for (const uint32_t slot : used_) seen_[slot] = 0;
  used_.clear();
  std::sort(out.list.begin(), out.list.end());
}

void Matcher::enter(uint32_t state, uint32_t frame, Places& out) {
  out.list.clear();
  out.exit = false;
  push(state, frame);
  close(out);
}

void Matcher::step(const Places& from, uint8_t byte, Places& out) {
  out.list.clear();
  out.exit = false;
  work_ += from.list.size();
  for (const Place& place : from.list) {
    const Automaton::State& state = automaton_.state(place.state);
    if (automaton_.takes(state, byte)) push(state.b, place.frame);
  }
  if (!todo_.empty()) close(out);
}

void Matcher::compact(Places& places) {
  std::vector<Frame> old;
  old.swap(frames_);
  known_.clear();
  frames_.push_back(old[kBottom]);
  std::unordered_map<uint32_t, uint32_t> moved = {{kBottom, kBottom}};
  std::vector<uint32_t> chain;
  for (Place& place : places.list) {
    uint32_t at = place.frame;
    for (; moved.count(at) == 0; at = old[at].parent) {
      chain.push_back(at);
      if (old[at].parent == kNone) break;
    }
    for (; !chain.empty(); chain.pop_back()) {
      Frame frame = old[chain.back()];
      if (frame.parent != kNone) frame.parent = moved[frame.parent];
      moved[chain.back()] = intern(frame);
    }
    place.frame = moved[place.frame];
  }
  std::sort(places.list.begin(), places.list.end());
}

}  // namespace doppler
