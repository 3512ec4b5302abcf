// One rendering in progress: its heap, what it has spent, where it stands, and how values are made.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/limits.h"
#include "jinja/value.h"

namespace doppler::jinja {

// strftime_now(format): the time as the template sees it.
using Clock = std::function<std::string(const std::string& format)>;

class Runtime {
 public:
  Runtime(std::string source, const Limits& allowed, Clock time)
      : place{std::move(source), 1, {}, {}},
        limits(allowed),
        heap(allowed.memory_bytes, place),
        clock(std::move(time)) {}

  Place place;  // kept up to date by the evaluator
  const Limits limits;
  Heap heap;
  Clock clock;

  // Counts work and fails when it is too much.
  void step(uint64_t steps = 1) {
    if ((steps_ += steps) > limits.steps) too_long();
  }
  void work(uint64_t bytes) { step(bytes / kBytesPerStep); }
  void characters(uint64_t count) { step(count / kCharactersPerStep); }

  // Lives on the stack of whatever calls itself.
  class Nest {
   public:
    explicit Nest(Runtime& rt) : rt_(rt) {
      if (++rt_.depth_ > rt_.limits.depth) rt_.too_deep();
    }
    ~Nest() { --rt_.depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    Runtime& rt_;
  };

  Value string(std::string text, bool markup = false);
  Value list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  Value dict(std::vector<std::pair<Value, Value>> items);
  Value undefined(std::string message);
  Value iterator(std::string_view type, std::function<bool(Value&)> next);

  // A fault in what the template does. Ends the rendering.
  [[noreturn]] void error(std::string what, std::string expected = "", std::string got = "") const;
  // Something jinja2 knows and we do not.
  [[noreturn]] void unsupported(std::string what) const;
  // Using an undefined value.
  [[noreturn]] void use_of(const Value& undefined) const;

 private:
  Value sequence(Kind kind, std::vector<Value> items);
  [[noreturn]] void too_long() const;
  [[noreturn]] void too_deep() const;

  uint64_t steps_ = 0;
  int depth_ = 0;
};

// Text being put together. Every byte is charged before it is there, so that no template can outgrow its memory.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& rt) : rt_(rt) {}
  ~TextBuilder() { rt_.heap.credit(text_.size()); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void add(std::string_view s);
  void add(char c) { add(std::string_view(&c, 1)); }
  void repeat(std::string_view s, int64_t times);
  size_t size() const { return text_.size(); }
  const std::string& text() const { return text_; }
  Value finish(bool markup = false);  // empties the builder
  std::string take();

 private:
  Runtime& rt_;
  std::string text_;
};

// The same for lists.
class ListBuilder {
 public:
  explicit ListBuilder(Runtime& rt) : rt_(rt) {}
  ~ListBuilder() { rt_.heap.credit(items_.size() * sizeof(Value)); }
  ListBuilder(const ListBuilder&) = delete;
  ListBuilder& operator=(const ListBuilder&) = delete;

  void add(Value value);
  std::vector<Value>& items() { return items_; }  // to reorder, not to grow
  Value finish(Kind kind = Kind::kList);

 private:
  Runtime& rt_;
  std::vector<Value> items_;
};

// What a call passes.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments in the order of `parameters`, kMissing where not given. A name that begins with '/' can only be given
// by position. The first `required` must be there. `function` is its name for messages, or nothing.
std::vector<Value> bind(const Runtime& rt, const Arguments& arguments, std::string_view function,
                        std::initializer_list<std::string_view> parameters, size_t required);

}  // namespace doppler::jinja
