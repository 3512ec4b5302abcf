#include "jinja/builtins.h"

#include <initializer_list>

#include "jinja/evaluator.h"
#include "jinja/operations.h"

namespace doppler::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) {
  for (const std::string_view each : names) {
    if (name == each) return true;
  }
  return false;
}

Value dict_get(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "get", {"/key", "/default"}, 1);
  if (!is_hashable(rt, args[0])) rt.error(described_type(args[0]) + " cannot be the key of a dict");
  if (const Value* value = lookup(rt, self.as<DictObject>(), args[0])) return *value;
  return args[1].is_missing() ? Value::none() : args[1];
}

template <ViewObject::Part kPart>
Value dict_view(Runtime& rt, const Value& self, const Arguments& arguments) {
  bind(rt, arguments, "", {}, 0);
  ViewObject* view = rt.heap.make<ViewObject>(0);
  view->dict = self;
  view->part = kPart;
  return Value(Kind::kView, view);
}

// Nothing can change a list or dict, so that a copy is the thing itself.
Value copy(Runtime& rt, const Value& self, const Arguments& arguments) {
  bind(rt, arguments, "copy", {}, 0);
  return self;
}

Value sequence_count(Runtime& rt, const Value& self, const Arguments& arguments) {
  const Value wanted = bind(rt, arguments, "count", {"/value"}, 1)[0];
  int64_t hits = 0;
  Cursor cursor(rt, self);
  for (Value item; cursor.next(item);) hits += equal(rt, item, wanted);
  return Value::integer(hits);
}

Value sequence_index(Runtime& rt, const Value& self, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "index", {"/value", "/start", "/stop"}, 1);
  const int64_t n = length(rt, self);
  const SliceBounds bounds = slice_bounds(rt, n, args[1], args[2], Value());
  Cursor cursor(rt, self);
  int64_t at = 0;
  for (Value item; cursor.next(item); ++at) {
    if (at >= bounds.start && at < bounds.stop && equal(rt, item, args[0])) return Value::integer(at);
  }
  rt.error("the value that index() looks for is not there");
}

constexpr Method kDictMethods[] = {{"get", dict_get},
                                   {"items", dict_view<ViewObject::kItems>},
                                   {"keys", dict_view<ViewObject::kKeys>},
                                   {"values", dict_view<ViewObject::kValues>},
                                   {"copy", copy}};
constexpr Method kListMethods[] = {{"count", sequence_count}, {"index", sequence_index}, {"copy", copy}};
constexpr Method kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};

template <size_t N>
const Method* among(const Method (&methods)[N], std::string_view name) {
  for (const Method& method : methods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

const Method* find_method(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString: return find_string_method(name);
    case Kind::kDict: return among(kDictMethods, name);
    case Kind::kList: return among(kListMethods, name);
    case Kind::kTuple:
    case Kind::kRange: return among(kTupleMethods, name);
    default: return nullptr;
  }
}

// What changes a list or dict.
bool is_forbidden(const Value& object, std::string_view name) {
  if (object.is(Kind::kList)) {
    return is_one_of(name, {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"});
  }
  return object.is(Kind::kDict) && is_one_of(name, {"clear", "pop", "popitem", "setdefault", "update"});
}

// Attributes that every Python object has.
bool is_internal(std::string_view name) {
  return is_one_of(name,
                   {"__class__", "__delattr__",      "__dir__",    "__doc__",  "__eq__",          "__format__",
                    "__ge__",    "__getattribute__", "__gt__",     "__hash__", "__init__",        "__init_subclass__",
                    "__le__",    "__lt__",           "__ne__",     "__new__",  "__reduce__",      "__reduce_ex__",
                    "__repr__",  "__setattr__",      "__sizeof__", "__str__",  "__subclasshook__"});
}

// What Python has and we do not.
bool is_unsupported(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      return is_one_of(name, {"casefold", "center", "encode", "expandtabs", "format_map", "isascii", "isdecimal",
                              "isidentifier", "isnumeric", "ljust", "rjust", "swapcase", "zfill", "isprintable",
                              "istitle", "maketrans", "translate"});
    case Kind::kDict: return name == "fromkeys";
    case Kind::kBool:
    case Kind::kInt:
      return is_one_of(name, {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes",
                              "imag", "numerator", "real", "to_bytes"});
    case Kind::kFloat:
      return is_one_of(name, {"as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"});
    case Kind::kView: return is_one_of(name, {"isdisjoint", "mapping"});
    case Kind::kRange: return is_one_of(name, {"start", "step", "stop"});
    case Kind::kMacro: return is_one_of(name, {"caller", "catch_kwargs", "catch_varargs", "explicit_caller"});
    case Kind::kIterator: return is_one_of(name, {"close", "send", "throw"});
    default: return false;
  }
}

std::optional<Value> own_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is(Kind::kLoop)) return loop_attribute(rt, object, name);
  if (object.is(Kind::kMacro)) {
    const MacroDefinition& macro = *object.as<MacroObject>().definition;
    if (name == "name") return macro.name.empty() ? Value::none() : rt.string(macro.name);
    if (name == "arguments") {
      ListBuilder names(rt);
      for (const std::string& parameter : macro.parameters) names.add(rt.string(parameter));
      return names.finish(Kind::kTuple);
    }
  }
  return std::nullopt;
}

Value forbidden(Runtime& rt, const Value& object, std::string_view name) {
  return rt.undefined("access to attribute '" + std::string(name) + "' of " + described_type(object) +
                      " is unsafe: templates may not change lists and dicts, or look into Python");
}

}  // namespace

std::optional<Value> python_attribute(Runtime& rt, const Value& object, std::string_view name) {
  if (object.is(Kind::kNamespace)) {
    for (const auto& [key, value] : object.as<NamespaceObject>().attributes) {
      if (key != name) continue;
      if (name.starts_with('_')) return forbidden(rt, object, name);
      return value;
    }
    if (name == "__class__") return forbidden(rt, object, name);
    return std::nullopt;
  }
  if (const Method* method = find_method(object, name)) return make_function(rt, method->name, method->call, object);
  if (std::optional<Value> attribute = own_attribute(rt, object, name)) return attribute;
  if (is_forbidden(object, name) || is_internal(name)) return forbidden(rt, object, name);
  if (is_unsupported(object, name)) {
    rt.unsupported("the attribute '" + std::string(name) + "' of " + described_type(object));
  }
  return std::nullopt;
}

}  // namespace doppler::jinja
