#include "jinja/runtime.h"

#include <limits>

namespace doppler::jinja {

Value Runtime::string(std::string text, bool markup) {
  work(text.size());
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
  fail_at(place, ErrorCode::kFormat, std::move(what), std::move(expected), std::move(got));
}

void Runtime::unsupported(std::string what) const {
  fail_at(place, ErrorCode::kUnsupported, std::move(what) + " is not supported in templates");
}

void Runtime::use_of(const Value& undefined) const { error(undefined.as<UndefinedObject>().message); }

void Runtime::too_long() const {
  fail_at(place, ErrorCode::kFormat, "the template runs for too long",
          "at most " + std::to_string(limits.steps) + " steps");
}

void Runtime::too_deep() const {
  fail_at(place, ErrorCode::kFormat, "the template nests too deeply",
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
  rt_.work(bytes);
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
