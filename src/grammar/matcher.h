// Runs an automaton over bytes: all the places where a text so far may stand, each with its stack. Stacks share what
// they have in common, and equal ones are one.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "grammar/automaton.h"

namespace doppler {

// A place in a grammar: a state that waits for a byte, and the top of its stack.
struct Place {
  uint32_t state = 0, frame = 0;
  friend bool operator==(const Place&, const Place&) = default;
  friend auto operator<=>(const Place&, const Place&) = default;
};

struct Places {
  std::vector<Place> list;  // sorted, each once
  bool exit = false;        // the stack's bottom was left: the text may end here
  bool alive() const { return exit || !list.empty(); }
  friend bool operator==(const Places&, const Places&) = default;
};

class Matcher {
 public:
  static constexpr uint32_t kBottom = 0, kNone = 0xFFFFFFFF;

  // What a call or a repetition left on the stack.
  struct Frame {
    uint32_t back = kNone;         // the state to go on with; kNone: the bottom
    uint32_t parent = kNone;       // the frame below
    Rule body = kNone;             // of a repetition: what is repeated,
    uint32_t least = 0, most = 0;  // and how often it must and may still end
    friend bool operator==(const Frame&, const Frame&) = default;
  };

  // `bottom` is frame 0. The automaton must outlive the matcher.
  Matcher(const Automaton& automaton, const Frame& bottom);

  // The places that can be reached from a state without a byte.
  void enter(uint32_t state, uint32_t frame, Places& out);
  void step(const Places& from, uint8_t byte, Places& out);

  const Frame& frame(uint32_t index) const { return frames_[index]; }
  // Frames made after a mark can be forgotten again.
  size_t mark() const { return frames_.size(); }
  void forget(size_t mark);
  // What all this has cost so far: about 5 ns each.
  uint64_t work() const { return work_; }
  // Drops every frame that `places` do not need; their numbers change.
  void compact(Places& places);

 private:
  // Places at once at most. Grammars of which more than this many readings stay open lose the later ones.
  static constexpr size_t kMostPlaces = 4096;

  struct FrameHash {
    size_t operator()(const Frame& f) const;
  };
  uint32_t intern(const Frame& frame);
  void push(uint32_t state, uint32_t frame);
  void close(Places& out);
  bool fresh(Place place);

  const Automaton& automaton_;
  std::vector<Frame> frames_;
  std::unordered_map<Frame, uint32_t, FrameHash> known_;
  std::vector<Place> todo_;
  uint64_t work_ = 0;
  std::vector<uint64_t> seen_;  // open addressing: the places that were reached in this step, + 1
  std::vector<uint32_t> used_;  // its slots in use
};

}  // namespace doppler
