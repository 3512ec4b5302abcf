// What a template computes with: Python's values as far as templates see them, and the Runtime of one rendering, which
// makes them and counts what they cost.
//
// A Value is a number or a counted reference to an Object on the Heap of one rendering. Lists, tuples and dicts never
// change once made (the sandbox that chat templates run in forbids it); only a namespace does.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/limits.h"

namespace doppler::jinja {

enum class Kind : uint8_t {
  kMissing,  // no value at all: an argument not given, a variable not set; templates never see it
  kNone,
  kBool,
  kInt,
  kFloat,
  // From here on the value refers to an Object.
  kUndefined,
  kString,
  kList,
  kTuple,
  kDict,
  kView,  // dict.keys(), .values(), .items()
  kRange,
  kIterator,  // what map, select, reverse and such return: can be walked once
  kNamespace,
  kMacro,
  kFunction,  // a global function or a method with its object
  kLoop,
  kScope,  // the variables of a frame; templates never see it
};

class Heap;

class Object {
 public:
  virtual ~Object() = default;
  // Lets go of everything this refers to, so that circles can be taken apart.
  virtual void release() {}

 private:
  friend class Heap;
  friend class Value;
  Heap* heap_ = nullptr;
  Object *before_ = nullptr, *after_ = nullptr;  // all living objects, in a chain
  size_t bytes_ = 0;
  uint32_t references_ = 0;
};

class Value {
 public:
  Value() : kind_(Kind::kMissing), integer_(0) {}
  Value(Kind kind, Object* object) : kind_(kind), object_(object) { ++object_->references_; }
  Value(const Value& other) : kind_(other.kind_), integer_(other.integer_) {
    if (is_object()) ++object_->references_;
  }
  Value(Value&& other) noexcept : kind_(other.kind_), integer_(other.integer_) { other.kind_ = Kind::kMissing; }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(integer_, other.integer_);
    return *this;
  }
  ~Value() {
    if (is_object()) drop_reference();
  }

  static Value none() { return Value(Kind::kNone, int64_t{0}); }
  static Value boolean(bool b) { return Value(Kind::kBool, int64_t{b}); }
  static Value integer(int64_t i) { return Value(Kind::kInt, i); }
  static Value real(double d) {
    Value v(Kind::kFloat, int64_t{0});
    v.real_ = d;
    return v;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_integer() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // True is 1, as in Python
  bool is_number() const { return is_integer() || kind_ == Kind::kFloat; }

  int64_t as_integer() const { return integer_; }  // of kBool and kInt
  double as_double() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(integer_); }
  const std::string& text() const;          // of kString
  bool is_markup() const;                   // a string from |safe or |escape
  const std::vector<Value>& items() const;  // of kList and kTuple

  template <class T>
  T& as() const {
    return *static_cast<T*>(object_);
  }
  bool same_object(const Value& other) const { return is_object() && other.is_object() && object_ == other.object_; }

 private:
  Value(Kind kind, int64_t i) : kind_(kind), integer_(i) {}
  bool is_object() const { return kind_ >= Kind::kUndefined; }
  void drop_reference();

  Kind kind_;
  union {
    int64_t integer_;
    double real_;
    Object* object_;
  };
};

// Owns every object of one rendering and counts their bytes. Dropping the last reference frees an object at once and
// without recursion, however long the chain behind it; circles (a namespace that holds itself) go with the heap.
class Heap {
 public:
  Heap(uint64_t limit_bytes, const Location& location) : limit_(limit_bytes), location_(location) {}
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // `bytes` is what the object holds beside itself. Fails when that is more than is left.
  template <class T>
  T* make(size_t bytes) {
    charge(sizeof(T) + bytes);
    T* object = new T;
    track(object, sizeof(T) + bytes);
    return object;
  }
  // Room for something that is being built; fails when there is not enough.
  void charge(uint64_t bytes);
  void credit(uint64_t bytes) { used_ -= bytes; }
  uint64_t used() const { return used_; }

 private:
  friend class Value;
  void track(Object* object, size_t bytes);
  void destroy(Object* object);

  const uint64_t limit_;
  const Location& location_;
  uint64_t used_ = 0;
  Object* live_ = nullptr;   // all living objects, in a chain
  Object* dead_ = nullptr;   // those that are to be deleted
  bool destroying_ = false;  // a loop that deletes dead_ is running
};

struct UndefinedObject : Object {
  std::string message;  // what to say when it is used
};

struct StringObject : Object {
  std::string text;     // UTF-8
  bool markup = false;  // adding to it escapes HTML in the other part
  int64_t length = -1;  // code points, once counted
};

struct ListObject : Object {
  std::vector<Value> items;
  void release() override { items.clear(); }
};

struct DictObject : Object {
  std::vector<std::pair<Value, Value>> items;  // in the order they were put in
  void release() override { items.clear(); }
};

struct ViewObject : Object {
  enum Part { kKeys, kValues, kItems };
  Value dict;
  Part part = kKeys;
  void release() override { dict = Value(); }
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t length = 0;
};

struct IteratorObject : Object {
  std::function<bool(Value&)> next;  // false at the end, and ever after
  std::string_view type;             // Python's name for it
  bool running = false;              // next() is on the stack: a template may try to enter it again
  void release() override { next = nullptr; }
};

struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  void release() override { attributes.clear(); }
};

struct ScopeObject : Object {
  std::vector<Value> slots;  // kMissing where nothing is set
  Value parent;              // kScope, or kMissing at the root
  void release() override {
    slots.clear();
    parent = Value();
  }
};

inline const std::string& Value::text() const { return as<StringObject>().text; }
inline bool Value::is_markup() const { return is_string() && as<StringObject>().markup; }
inline const std::vector<Value>& Value::items() const { return as<ListObject>().items; }

// Python's name of the type: "str", "int", "list", "NoneType".
std::string_view type_name(const Value& value);
std::string described_type(const Value& value);  // "a str", "an int"

// strftime_now(format): the time as the template sees it.
using Clock = std::function<std::string(const std::string& format)>;

// One rendering in progress: its heap, what it has spent, where it stands, and how values are made.
class Runtime {
 public:
  Runtime(std::string source, const Limits& allowed, Clock time)
      : location{std::move(source), 1, {}, {}},
        limits(allowed),
        heap(allowed.memory_bytes, location),
        clock(std::move(time)) {}

  Location location;  // kept up to date by the evaluator
  const Limits limits;
  Heap heap;
  Clock clock;

  // Counts work and fails when it is too much.
  void step(uint64_t steps = 1) {
    if ((steps_ += steps) > limits.steps) too_long();
  }
  void count_bytes(uint64_t bytes) { step(bytes / kBytesPerStep); }
  void count_characters(uint64_t count) { step(count / kCharactersPerStep); }

  // Lives on the stack of whatever calls itself.
  class DepthGuard {
   public:
    explicit DepthGuard(Runtime& rt) : rt_(rt) {
      if (++rt_.depth_ > rt_.limits.depth) rt_.too_deep();
    }
    ~DepthGuard() { --rt_.depth_; }
    DepthGuard(const DepthGuard&) = delete;
    DepthGuard& operator=(const DepthGuard&) = delete;

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
  [[noreturn]] void fail_undefined(const Value& undefined) const;

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
