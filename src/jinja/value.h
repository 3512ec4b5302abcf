// What a template computes with: Python's values, as far as templates see them.
//
// A Value is a number or a counted reference to an Object on the Heap of one rendering. Lists, tuples and dicts never
// change once made (the sandbox that chat templates run in forbids it); only a namespace does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/place.h"

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
    if (is_object()) let_go();
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
  bool is_whole() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // True is 1, as in Python
  bool is_number() const { return is_whole() || kind_ == Kind::kFloat; }

  int64_t whole() const { return integer_; }  // of kBool and kInt
  double number() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(integer_); }
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
  void let_go();

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
  Heap(uint64_t limit_bytes, const Place& place) : limit_(limit_bytes), place_(place) {}
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // `bytes` is what the object holds beside itself. Fails when that is more than is left.
  template <class T>
  T* make(size_t bytes) {
    charge(sizeof(T) + bytes);
    T* object = new T;
    adopt(object, sizeof(T) + bytes);
    return object;
  }
  // Room for something that is being built; fails when there is not enough.
  void charge(uint64_t bytes);
  void credit(uint64_t bytes) { used_ -= bytes; }
  uint64_t used() const { return used_; }

 private:
  friend class Value;
  void adopt(Object* object, size_t bytes);
  void bury(Object* object);

  const uint64_t limit_;
  const Place& place_;
  uint64_t used_ = 0;
  Object* living_ = nullptr;
  Object* graves_ = nullptr;
  bool burying_ = false;
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
std::string a_type(const Value& value);  // "a str", "an int"

}  // namespace doppler::jinja
