// Tests ({{ value is name(arguments) }}), the functions that every template can call, and the attributes of values that
// are not strings.
#include <ctime>
#include <initializer_list>

#include "jinja/builtins.h"
#include "jinja/evaluator.h"
#include "jinja/operations.h"

namespace doppler::jinja {
namespace {

using Test = bool (*)(Runtime& rt, const Value& value, const Arguments& arguments);
struct NamedTest {
  std::string_view name;
  Test call;  // null: jinja2 has it and we do not
};

// A test that looks at the value only.
template <bool (*F)(const Value&)>
bool simple(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "", {}, 0);
  return F(value);
}

bool defined(const Value& v) { return !v.is_undefined(); }
bool undefined(const Value& v) { return v.is_undefined(); }
bool none(const Value& v) { return v.is_none(); }
bool boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_integer() != 0; }
bool is_false(const Value& v) { return v.is(Kind::kBool) && v.as_integer() == 0; }
bool integer(const Value& v) { return v.is(Kind::kInt); }
bool real(const Value& v) { return v.is(Kind::kFloat); }
bool number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool mapping(const Value& v) { return v.is(Kind::kDict); }
bool escaped(const Value& v) { return v.is_markup(); }
bool callable(const Value& v) {
  return v.is(Kind::kFunction) || v.is(Kind::kMacro) || v.is(Kind::kLoop) || v.is_undefined();
}
bool sequence(const Value& v) {
  return v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange) || v.is_undefined();
}

// value % divisor == remainder
bool divides(Runtime& rt, const Value& value, const Value& divisor, int64_t remainder) {
  return equal(rt, binary(rt, "%", value, divisor), Value::integer(remainder));
}
bool odd(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "odd", {}, 0);
  return divides(rt, value, Value::integer(2), 1);
}
bool even(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "even", {}, 0);
  return divides(rt, value, Value::integer(2), 0);
}
bool divisible(Runtime& rt, const Value& value, const Arguments& arguments) {
  return divides(rt, value, bind(rt, arguments, "divisibleby", {"num"}, 1)[0], 0);
}

template <bool kUpper>
bool in_case(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "", {}, 0);
  const std::string text = to_text(rt, value);
  rt.count_characters(text.size());
  return has_case(text, kUpper);
}

bool same(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Value other = bind(rt, arguments, "sameas", {"other"}, 1)[0];
  if (value.kind() != other.kind()) return false;
  if (value.is_none()) return true;
  if (value.is(Kind::kBool)) return value.as_integer() == other.as_integer();
  if (value.is_number()) rt.unsupported("'sameas' between numbers");
  if (value.is_string() && !value.same_object(other)) rt.unsupported("'sameas' between strings");
  return value.same_object(other);
}

bool in(Runtime& rt, const Value& value, const Arguments& arguments) {
  return contains(rt, bind(rt, arguments, "in", {"seq"}, 1)[0], value);
}

bool iterable(const Value& v) { return is_iterable(v); }

enum class Op { kEq, kNe, kLt, kLe, kGt, kGe };
template <Op kOp>
bool compares(Runtime& rt, const Value& value, const Arguments& arguments) {
  constexpr std::string_view kNames[] = {"==", "!=", "<", "<=", ">", ">="};
  return compare(rt, kNames[static_cast<int>(kOp)], value, bind(rt, arguments, "", {"/other"}, 1)[0]);
}

constexpr NamedTest kTests[] = {
    {"defined", simple<defined>},
    {"undefined", simple<undefined>},
    {"none", simple<none>},
    {"string", simple<is_string>},
    {"mapping", simple<mapping>},
    {"iterable", simple<iterable>},
    {"sequence", simple<sequence>},
    {"number", simple<number>},
    {"integer", simple<integer>},
    {"float", simple<real>},
    {"boolean", simple<boolean>},
    {"true", simple<is_true>},
    {"false", simple<is_false>},
    {"callable", simple<callable>},
    {"escaped", simple<escaped>},
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisible},
    {"lower", in_case<false>},
    {"upper", in_case<true>},
    {"sameas", same},
    {"in", in},
    {"filter", nullptr},
    {"test", nullptr},
    {"==", compares<Op::kEq>},
    {"eq", compares<Op::kEq>},
    {"equalto", compares<Op::kEq>},
    {"!=", compares<Op::kNe>},
    {"ne", compares<Op::kNe>},
    {"<", compares<Op::kLt>},
    {"lt", compares<Op::kLt>},
    {"lessthan", compares<Op::kLt>},
    {"<=", compares<Op::kLe>},
    {"le", compares<Op::kLe>},
    {">", compares<Op::kGt>},
    {"gt", compares<Op::kGt>},
    {"greaterthan", compares<Op::kGt>},
    {">=", compares<Op::kGe>},
    {"ge", compares<Op::kGe>},
};

}  // namespace

bool is_test(std::string_view name) {
  for (const NamedTest& test : kTests) {
    if (test.name == name) return true;
  }
  return false;
}

bool call_test(Runtime& rt, std::string_view name, const Value& value, const Arguments& arguments) {
  rt.step();
  for (const NamedTest& test : kTests) {
    if (test.name != name) continue;
    if (!test.call) rt.unsupported("the test '" + std::string(name) + "'");
    return test.call(rt, value, arguments);
  }
  rt.error("there is no test called '" + std::string(name) + "'");
}

namespace {

Value range(Runtime& rt, const Value&, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "range", {"/start", "/stop", "/step"}, 1);
  const bool one = args[1].is_missing();
  const int64_t first = need_integer(rt, args[0], "an end of range()");
  const int64_t start = one ? 0 : first, stop = one ? first : need_integer(rt, args[1], "an end of range()");
  const int64_t step = args[2].is_missing() ? 1 : need_integer(rt, args[2], "the step of range()");
  if (step == 0) rt.error("the step of range() cannot be zero");
  // In unsigned numbers, where the distance between any two 64-bit numbers fits.
  const uint64_t up = static_cast<uint64_t>(stop) - static_cast<uint64_t>(start);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  uint64_t count = 0;
  if (step > 0 && start < stop) count = (up - 1) / stride + 1;
  if (step < 0 && start > stop) count = (0 - up - 1) / stride + 1;
  if (count > static_cast<uint64_t>(kMaxRange)) {
    rt.error("a range is too long", "at most " + std::to_string(kMaxRange) + " numbers", std::to_string(count));
  }
  RangeObject* object = rt.heap.make<RangeObject>(0);
  object->start = start;
  object->stop = stop;
  object->step = step;
  object->length = static_cast<int64_t>(count);
  return Value(Kind::kRange, object);
}

// What dict() and namespace() build from: a dict or pairs, then named values.
std::vector<std::pair<Value, Value>> items_from(Runtime& rt, std::string_view function, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> items;
  if (arguments.positional.size() > 1) rt.error(std::string(function) + "() takes one argument and named ones");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      items = source.as<DictObject>().items;
    } else {
      Cursor cursor(rt, source);
      for (Value item; cursor.next(item);) {
        const Value pair = to_list(rt, item);
        if (pair.items().size() != 2) rt.error(std::string(function) + "() needs pairs of a key and a value");
        insert_or_assign(rt, items, pair.items()[0], pair.items()[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) insert_or_assign(rt, items, rt.string(name), value);
  return items;
}

Value dict(Runtime& rt, const Value&, const Arguments& arguments) { return rt.dict(items_from(rt, "dict", arguments)); }

Value make_namespace(Runtime& rt, const Value&, const Arguments& arguments) {
  const std::vector<std::pair<Value, Value>> items = items_from(rt, "namespace", arguments);
  size_t bytes = 0;
  for (const auto& [key, value] : items)
    bytes += sizeof(key) + sizeof(value) + (key.is_string() ? key.text().size() : 0);
  NamespaceObject* space = rt.heap.make<NamespaceObject>(bytes);
  Value result(Kind::kNamespace, space);
  for (const auto& [key, value] : items) {
    if (!key.is_string()) rt.unsupported("a namespace with " + described_type(key) + " as a name");
    space->attributes.emplace_back(key.text(), value);
  }
  return result;
}

Value raise_exception(Runtime& rt, const Value&, const Arguments& arguments) {
  const Value message = bind(rt, arguments, "raise_exception", {"message"}, 1)[0];
  fail({.code = ErrorCode::kUsage,
        .what = to_text(rt, message),
        .where = rt.location.text(),
        .todo = "The model's chat template refuses this conversation"});
}

Value strftime_now(Runtime& rt, const Value&, const Arguments& arguments) {
  const Value format = bind(rt, arguments, "strftime_now", {"format"}, 1)[0];
  const std::string& text = need_string(rt, format, "the format of strftime_now()");
  return rt.string(rt.clock ? rt.clock(text) : local_time(text));
}

Value unsupported(Runtime& rt, const Value&, const Arguments&) { rt.unsupported("this function"); }

constexpr Builtin kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"lipsum", unsupported},
    {"cycler", unsupported},
    {"joiner", unsupported},
};

std::string time_text(const std::string& format, const std::tm& time) {
  if (format.empty()) return "";
  constexpr size_t kLongest = 1 << 16;
  const std::string marked = format + "#";  // so that an empty result can be told from a full buffer
  for (std::string out(256, '\0'); out.size() <= kLongest; out.resize(out.size() * 4)) {
    const size_t n = std::strftime(out.data(), out.size(), marked.c_str(), &time);
    if (n > 0) return out.substr(0, n - 1);
  }
  fail({.code = ErrorCode::kFormat, .what = "the format of strftime_now() gives too long a text"});
}

}  // namespace

Value global_function(Runtime& rt, std::string_view name) {
  if (const Builtin* global = find_builtin(kGlobals, name)) return make_function(rt, global->call);
  return Value();
}

std::string local_time(const std::string& format) {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  localtime_r(&now, &time);
  return time_text(format, time);
}

std::string utc_time(const std::string& format, int64_t seconds) {
  const auto when = static_cast<std::time_t>(seconds);
  std::tm time{};
  gmtime_r(&when, &time);
  return time_text(format, time);
}

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

constexpr Builtin kDictMethods[] = {{"get", dict_get},
                                    {"items", dict_view<ViewObject::kItems>},
                                    {"keys", dict_view<ViewObject::kKeys>},
                                    {"values", dict_view<ViewObject::kValues>},
                                    {"copy", copy}};
constexpr Builtin kListMethods[] = {{"count", sequence_count}, {"index", sequence_index}, {"copy", copy}};
constexpr Builtin kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};

std::span<const Builtin> methods_of(const Value& object) {
  switch (object.kind()) {
    case Kind::kString: return string_methods();
    case Kind::kDict: return kDictMethods;
    case Kind::kList: return kListMethods;
    case Kind::kTuple:
    case Kind::kRange: return kTupleMethods;
    default: return {};
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
  if (const Builtin* method = find_builtin(methods_of(object), name)) return make_function(rt, method->call, object);
  if (std::optional<Value> attribute = own_attribute(rt, object, name)) return attribute;
  if (is_forbidden(object, name) || is_internal(name)) return forbidden(rt, object, name);
  if (is_unsupported(object, name)) {
    rt.unsupported("the attribute '" + std::string(name) + "' of " + described_type(object));
  }
  return std::nullopt;
}

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name) {
  for (const Builtin& builtin : table) {
    if (builtin.name == name) return &builtin;
  }
  return nullptr;
}

}  // namespace doppler::jinja
