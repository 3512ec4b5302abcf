#include "jinja/operations.h"

#include <algorithm>
#include <limits>

#include "jinja/builtins.h"
#include "jinja/text.h"

namespace doppler::jinja {

Value make_function(Runtime& rt, FunctionObject::Call call, Value self) {
  FunctionObject* function = rt.heap.make<FunctionObject>(0);
  function->call = call;
  function->self = std::move(self);
  return Value(Kind::kFunction, function);
}

namespace {

bool is_reversible(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange: return true;
    default: return false;
  }
}

}  // namespace

bool is_iterable(const Value& value) {
  return is_reversible(value) || value.is(Kind::kIterator) || value.is(Kind::kLoop);
}

Cursor::Cursor(Runtime& rt, Value source) : rt_(&rt), source_(std::move(source)) {
  if (!is_iterable(source_)) rt.error(described_type(source_) + " cannot be iterated over");
  if (source_.is(Kind::kLoop)) rt.unsupported("iterating over 'loop'");
}

bool Cursor::next(Value& out) {
  rt_->step();
  switch (source_.kind()) {
    case Kind::kString: {
      const std::string& s = source_.text();
      if (at_ >= s.size()) return false;
      const size_t begin = at_;
      text::decode(s, at_);
      out = rt_->string(s.substr(begin, at_ - begin));  // plain, even of markup
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (at_ >= source_.items().size()) return false;
      out = source_.items()[at_++];
      return true;
    case Kind::kDict:
      if (at_ >= source_.as<DictObject>().items.size()) return false;
      out = source_.as<DictObject>().items[at_++].first;
      return true;
    case Kind::kView:
      if (at_ >= source_.as<ViewObject>().dict.as<DictObject>().items.size()) return false;
      out = view_item(*rt_, source_.as<ViewObject>(), at_++);
      return true;
    case Kind::kRange: {
      const RangeObject& range = source_.as<RangeObject>();
      if (static_cast<int64_t>(at_) >= range.length) return false;
      out = Value::integer(range.start + static_cast<int64_t>(at_++) * range.step);
      return true;
    }
    case Kind::kIterator: {
      const Runtime::DepthGuard guard(*rt_);  // iterators may be stacked on iterators
      IteratorObject& iterator = source_.as<IteratorObject>();
      if (iterator.running) rt_->error("an iterator is used while it is being advanced");
      iterator.running = true;
      const bool more = iterator.next(out);
      iterator.running = false;
      return more;
    }
    default: return false;  // undefined: nothing in it
  }
}

Value view_item(Runtime& rt, const ViewObject& view, size_t index) {
  const auto& [key, value] = view.dict.as<DictObject>().items[index];
  switch (view.part) {
    case ViewObject::kKeys: return key;
    case ViewObject::kValues: return value;
    case ViewObject::kItems: return rt.tuple({key, value});
  }
  return Value();
}

Value to_list(Runtime& rt, const Value& value) {
  ListBuilder out(rt);
  Cursor cursor(rt, value);
  for (Value item; cursor.next(item);) out.add(std::move(item));
  return out.finish();
}

std::optional<int64_t> try_length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: {
      StringObject& string = value.as<StringObject>();
      if (string.length < 0) string.length = text::length(string.text);
      return string.length;
    }
    case Kind::kList:
    case Kind::kTuple: return static_cast<int64_t>(value.items().size());
    case Kind::kDict: return static_cast<int64_t>(value.as<DictObject>().items.size());
    case Kind::kView: return try_length(value.as<ViewObject>().dict);
    case Kind::kRange: return value.as<RangeObject>().length;
    default: return std::nullopt;
  }
}

int64_t length(Runtime& rt, const Value& value) {
  if (value.is_string() && value.as<StringObject>().length < 0) rt.count_characters(value.text().size());
  const std::optional<int64_t> n = try_length(value);
  if (!n) rt.error(described_type(value) + " has no length");
  return *n;
}

std::optional<Value> try_reversed(Runtime& rt, const Value& value) {
  if (!is_reversible(value)) return std::nullopt;
  ListBuilder out(rt);
  Cursor cursor(rt, value);
  for (Value item; cursor.next(item);) out.add(std::move(item));
  std::reverse(out.items().begin(), out.items().end());
  return out.finish();
}

namespace {

// How messages name what has no such attribute: "dict object".
std::string object_name(const Value& value) {
  if (value.is_none()) return "None";
  if (value.is(Kind::kNamespace)) return "jinja2.utils.Namespace object";
  return std::string(type_name(value)) + " object";
}

// Byte offset of character `at` of a string of n characters.
size_t byte_of(Runtime& rt, const std::string& s, int64_t n, int64_t at) {
  if (static_cast<int64_t>(s.size()) == n) return static_cast<size_t>(at);  // all ASCII
  rt.count_characters(static_cast<uint64_t>(at));
  return text::offset(s, at);
}

// object[key] as Python does it, or nothing where that fails.
std::optional<Value> python_item(Runtime& rt, const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    if (!is_hashable(rt, key)) return std::nullopt;
    const Value* value = lookup(rt, object.as<DictObject>(), key);
    return value ? std::optional<Value>(*value) : std::nullopt;
  }
  if (!key.is_integer() || object.is(Kind::kView)) return std::nullopt;
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) return std::nullopt;
  const int64_t n = length(rt, object);
  int64_t at = key.as_integer();
  if (at < 0) at += n;
  if (at < 0 || at >= n) return std::nullopt;
  if (object.is_sequence()) return object.items()[static_cast<size_t>(at)];
  if (object.is(Kind::kRange)) {
    return Value::integer(object.as<RangeObject>().start + at * object.as<RangeObject>().step);
  }
  const std::string& s = object.text();
  const size_t begin = byte_of(rt, s, n, at);
  size_t end = begin;
  text::decode(s, end);
  return rt.string(s.substr(begin, end - begin), object.is_markup());
}

Value no_attribute(Runtime& rt, const Value& object, std::string_view name) {
  return rt.undefined("'" + object_name(object) + "' has no attribute '" + std::string(name) + "'");
}

}  // namespace

Value get_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is_undefined()) rt.fail_undefined(object);
  if (std::optional<Value> attribute = python_attribute(rt, object, name)) return *attribute;
  if (object.is(Kind::kDict)) {
    if (const Value* value = lookup(rt, object.as<DictObject>(), name)) return *value;
  }
  return no_attribute(rt, object, name);
}

Value get_only_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is_undefined()) rt.fail_undefined(object);
  if (std::optional<Value> attribute = python_attribute(rt, object, name)) return *attribute;
  return no_attribute(rt, object, name);
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  if (object.is_undefined()) rt.fail_undefined(object);
  if (std::optional<Value> item = python_item(rt, object, key)) return *item;
  if (key.is_string()) {
    if (std::optional<Value> attribute = python_attribute(rt, object, key.text())) return *attribute;
    return no_attribute(rt, object, key.text());
  }
  return rt.undefined(object_name(object) + " has no element " +
                      (key.is_integer() ? std::to_string(key.as_integer()) : "of type " + std::string(type_name(key))));
}

SliceBounds slice_bounds(Runtime& rt, int64_t length, const Value& start, const Value& stop, const Value& step) {
  const auto number = [&](const Value& value, int64_t otherwise) {
    if (value.is_undefined()) rt.error("a slice needs whole numbers", "", "an undefined value");
    if (value.is_missing() || value.is_none()) return otherwise;
    if (!value.is_integer()) rt.error("a slice needs whole numbers", "", std::string(type_name(value)));
    return value.as_integer();
  };
  SliceBounds bounds;
  bounds.step = number(step, 1);
  if (bounds.step == 0) rt.error("the step of a slice cannot be zero");
  const bool backwards = bounds.step < 0;
  if (bounds.step == std::numeric_limits<int64_t>::min()) ++bounds.step;  // so that it can be negated; reaches as far
  const auto clamp = [&](int64_t at) {
    if (at < 0) at += length;
    return std::clamp(at, backwards ? int64_t{-1} : int64_t{0}, backwards ? length - 1 : length);
  };
  bounds.start = start.is_missing() || start.is_none() ? (backwards ? length - 1 : 0) : clamp(number(start, 0));
  bounds.stop = stop.is_missing() || stop.is_none() ? (backwards ? -1 : length) : clamp(number(stop, 0));
  if (backwards && bounds.stop < bounds.start) {
    bounds.count = (bounds.start - bounds.stop - 1) / -bounds.step + 1;
  } else if (!backwards && bounds.start < bounds.stop) {
    bounds.count = (bounds.stop - bounds.start - 1) / bounds.step + 1;
  }
  return bounds;
}

Value get_slice(Runtime& rt, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) rt.fail_undefined(object);
  if (!object.is_string() && !object.is_sequence() && !object.is(Kind::kRange)) {
    rt.error(described_type(object) + " cannot be sliced");
  }
  const int64_t n = length(rt, object);
  const SliceBounds bounds = slice_bounds(rt, n, start, stop, step);
  if (object.is(Kind::kRange)) {
    const RangeObject& range = object.as<RangeObject>();
    RangeObject* part = rt.heap.make<RangeObject>(0);
    Value result(Kind::kRange, part);
    const auto place = [&](int64_t index, int64_t& out) {
      return __builtin_mul_overflow(index, range.step, &out) || __builtin_add_overflow(range.start, out, &out);
    };
    if (__builtin_mul_overflow(range.step, bounds.step, &part->step) || place(bounds.start, part->start) ||
        place(bounds.stop, part->stop)) {
      rt.unsupported("a whole number beyond 64 bits");
    }
    part->length = bounds.count;
    return result;
  }
  if (object.is_sequence()) {
    ListBuilder out(rt);
    for (int64_t i = 0; i < bounds.count; ++i) {
      out.add(object.items()[static_cast<size_t>(bounds.start + i * bounds.step)]);
    }
    return out.finish(object.kind());
  }
  const std::string& s = object.text();
  if (bounds.step == 1) {
    const size_t begin = byte_of(rt, s, n, bounds.start), end = byte_of(rt, s, n, bounds.start + bounds.count);
    return rt.string(s.substr(begin, end - begin), object.is_markup());
  }
  rt.count_characters(s.size());
  std::vector<uint32_t> offsets;  // of every character
  const uint64_t needed = s.size() * sizeof(uint32_t);
  rt.heap.charge(needed);
  for (size_t at = 0; at < s.size();) {
    offsets.push_back(static_cast<uint32_t>(at));
    text::decode(s, at);
  }
  TextBuilder out(rt);
  for (int64_t i = 0; i < bounds.count; ++i) {
    size_t end = offsets[static_cast<size_t>(bounds.start + i * bounds.step)];
    const size_t begin = end;
    text::decode(s, end);
    out.add(std::string_view(s).substr(begin, end - begin));
  }
  rt.heap.credit(needed);
  return out.finish(object.is_markup());
}

}  // namespace doppler::jinja
