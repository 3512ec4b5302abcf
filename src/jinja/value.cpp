#include "jinja/value.h"

#include <limits>

namespace doppler::jinja {

void Value::drop_reference() {
  if (--object_->references_ == 0) object_->heap_->destroy(object_);
}

Heap::~Heap() {
  for (Object* o = live_; o; o = o->after_) ++o->references_;  // nothing is freed while circles are opened
  for (Object* o = live_; o; o = o->after_) o->release();
  while (live_) {
    Object* next = live_->after_;
    delete live_;
    live_ = next;
  }
}

void Heap::charge(uint64_t bytes) {
  if (bytes > limit_ - used_) {
    fail_at(location_, ErrorCode::kMemory, "the template needs too much memory",
            "at most " + std::to_string(limit_) + " bytes",
            std::to_string(used_) + " and then " + std::to_string(bytes) + " more");
  }
  used_ += bytes;
}

void Heap::track(Object* object, size_t bytes) {
  object->heap_ = this;
  object->bytes_ = bytes;
  object->after_ = live_;
  if (live_) live_->before_ = object;
  live_ = object;
}

void Heap::destroy(Object* object) {
  if (object->before_) object->before_->after_ = object->after_;
  if (object->after_) object->after_->before_ = object->before_;
  if (live_ == object) live_ = object->after_;
  object->after_ = dead_;
  dead_ = object;
  if (destroying_) return;  // we are inside the destructor of another: the loop below comes to this one
  destroying_ = true;
  while (dead_) {
    Object* dead = dead_;
    dead_ = dead->after_;
    used_ -= dead->bytes_;
    delete dead;
  }
  destroying_ = false;
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing: return "missing";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kUndefined: return "Undefined";
    case Kind::kString: return value.is_markup() ? "Markup" : "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kView: {
      const ViewObject::Part part = value.as<ViewObject>().part;
      return part == ViewObject::kKeys ? "dict_keys" : part == ViewObject::kValues ? "dict_values" : "dict_items";
    }
    case Kind::kRange: return "range";
    case Kind::kIterator: return value.as<IteratorObject>().type;
    case Kind::kNamespace: return "Namespace";
    case Kind::kMacro: return "Macro";
    case Kind::kFunction: return "builtin_function_or_method";
    case Kind::kLoop: return "LoopContext";
    case Kind::kScope: return "scope";
  }
  return "object";
}

std::string described_type(const Value& value) {
  const std::string_view name = type_name(value);
  return (std::string_view("aeiouU").find(name[0]) == std::string_view::npos ? "a " : "an ") + std::string(name);
}

Value Runtime::string(std::string text, bool markup) {
  count_bytes(text.size());
  StringObject* object = heap.make<StringObject>(text.size());
  object->text = std::move(text);
  object->markup = markup;
  return Value(Kind::kString, object);
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  step(items.size() / 8);
  ListObject* object = heap.make<ListObject>(items.size() * sizeof(Value));
  object->items = std::move(items);
  return Value(kind, object);
}

Value Runtime::dict(std::vector<std::pair<Value, Value>> items) {
  step(items.size() / 8);
  DictObject* object = heap.make<DictObject>(items.size() * 2 * sizeof(Value));
  object->items = std::move(items);
  return Value(Kind::kDict, object);
}

Value Runtime::undefined(std::string message) {
  UndefinedObject* object = heap.make<UndefinedObject>(message.size());
  object->message = std::move(message);
  return Value(Kind::kUndefined, object);
}

Value Runtime::iterator(std::string_view type, std::function<bool(Value&)> next) {
  IteratorObject* object = heap.make<IteratorObject>(64);
  object->type = type;
  object->next = std::move(next);
  return Value(Kind::kIterator, object);
}

void Runtime::error(std::string what, std::string expected, std::string got) const {
  fail_at(location, ErrorCode::kFormat, std::move(what), std::move(expected), std::move(got));
}

void Runtime::unsupported(std::string what) const {
  fail_at(location, ErrorCode::kUnsupported, std::move(what) + " is not supported in templates");
}

void Runtime::fail_undefined(const Value& undefined) const { error(undefined.as<UndefinedObject>().message); }

void Runtime::too_long() const {
  fail_at(location, ErrorCode::kFormat, "the template runs for too long",
          "at most " + std::to_string(limits.steps) + " steps");
}

void Runtime::too_deep() const {
  fail_at(location, ErrorCode::kFormat, "the template nests too deeply",
          "at most " + std::to_string(limits.depth) + " evaluations within each other");
}

void TextBuilder::add(std::string_view s) {
  rt_.step(1 + s.size() / kBytesPerStep);
  rt_.heap.charge(s.size());
  text_ += s;
}

void TextBuilder::repeat(std::string_view s, int64_t times) {
  if (times <= 0 || s.empty()) return;
  const uint64_t n = static_cast<uint64_t>(times);
  const uint64_t bytes =
      n > std::numeric_limits<uint64_t>::max() / s.size() / 2 ? std::numeric_limits<uint64_t>::max() / 2 : n * s.size();
  rt_.heap.charge(bytes);
  rt_.count_bytes(bytes);
  for (uint64_t i = 0; i < n; ++i) text_ += s;
}

Value TextBuilder::finish(bool markup) { return rt_.string(take(), markup); }

std::string TextBuilder::take() {
  rt_.heap.credit(text_.size());
  std::string text = std::move(text_);
  text_.clear();
  return text;
}

void ListBuilder::add(Value value) {
  rt_.step();
  rt_.heap.charge(sizeof(Value));
  items_.push_back(std::move(value));
}

Value ListBuilder::finish(Kind kind) {
  rt_.heap.credit(items_.size() * sizeof(Value));
  std::vector<Value> items = std::move(items_);
  items_.clear();
  return kind == Kind::kTuple ? rt_.tuple(std::move(items)) : rt_.list(std::move(items));
}

std::vector<Value> bind(const Runtime& rt, const Arguments& arguments, std::string_view function,
                        std::initializer_list<std::string_view> parameters, size_t required) {
  const std::string name = function.empty() ? "this call" : std::string(function) + "()";
  if (arguments.positional.size() > parameters.size()) {
    rt.error(name + " has too many arguments", "at most " + std::to_string(parameters.size()),
             std::to_string(arguments.positional.size()));
  }
  std::vector<Value> bound = arguments.positional;
  bound.resize(parameters.size());
  for (const auto& [key, value] : arguments.named) {
    size_t at = 0;
    while (at < parameters.size() && parameters.begin()[at] != key) ++at;
    if (at == parameters.size()) rt.error(name + " has no argument called '" + key + "'");
    if (!bound[at].is_missing()) rt.error(name + " got two values for its argument '" + key + "'");
    bound[at] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i].is_missing()) {
      std::string_view parameter = parameters.begin()[i];
      if (parameter.front() == '/') parameter.remove_prefix(1);
      rt.error(name + " needs an argument '" + std::string(parameter) + "'");
    }
  }
  return bound;
}

}  // namespace doppler::jinja
