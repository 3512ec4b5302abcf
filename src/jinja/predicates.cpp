#include "jinja/predicates.h"

#include "jinja/access.h"
#include "jinja/convert.h"
#include "jinja/filters.h"
#include "jinja/methods.h"
#include "jinja/print.h"

namespace doppler::jinja {
namespace {

using Test = bool (*)(Runtime& rt, const Value& value, const Arguments& arguments);
struct NamedTest {
  std::string_view name;
  Test call;
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
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.whole() != 0; }
bool is_false(const Value& v) { return v.is(Kind::kBool) && v.whole() == 0; }
bool integer(const Value& v) { return v.is(Kind::kInt); }
bool real(const Value& v) { return v.is(Kind::kFloat); }
bool number(const Value& v) { return v.is_number(); }
bool string(const Value& v) { return v.is_string(); }
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
  rt.characters(text.size());
  return has_case(text, kUpper);
}

bool same(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Value other = bind(rt, arguments, "sameas", {"other"}, 1)[0];
  if (value.kind() != other.kind()) return false;
  if (value.is_none()) return true;
  if (value.is(Kind::kBool)) return value.whole() == other.whole();
  if (value.is_number()) rt.unsupported("'sameas' between numbers");
  if (value.is_string() && !value.same_object(other)) rt.unsupported("'sameas' between strings");
  return value.same_object(other);
}

bool in(Runtime& rt, const Value& value, const Arguments& arguments) {
  return contains(rt, bind(rt, arguments, "in", {"seq"}, 1)[0], value);
}

bool names_filter(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "filter", {}, 0);
  return value.is_string() && is_filter(value.text());
}
bool names_test(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "test", {}, 0);
  return value.is_string() && is_test(value.text());
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
    {"string", simple<string>},
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
    {"filter", names_filter},
    {"test", names_test},
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
    if (test.name == name) return test.call(rt, value, arguments);
  }
  rt.error("there is no test called '" + std::string(name) + "'");
}

}  // namespace doppler::jinja
