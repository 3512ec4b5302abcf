// Comparison, arithmetic and the other operators. Whole numbers have 64 bits: more is an error, never a wrong answer.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "jinja/operations.h"
#include "jinja/text.h"

namespace doppler::jinja {
namespace {

[[noreturn]] void too_large(Runtime& rt) { rt.unsupported("a whole number beyond 64 bits"); }

void require_nonzero(Runtime& rt, bool is_zero) {
  if (is_zero) rt.error("division by zero");
}

// Rounds towards minus infinity; the remainder has the sign of b.
Value divide_whole(Runtime& rt, int64_t a, int64_t b, bool remainder) {
  require_nonzero(rt, b == 0);
  if (b == -1) {
    int64_t negated;
    if (remainder) return Value::integer(0);
    if (__builtin_sub_overflow(int64_t{0}, a, &negated)) too_large(rt);
    return Value::integer(negated);
  }
  int64_t quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return Value::integer(remainder ? rest : quotient);
}

Value divide_real(Runtime& rt, double a, double b, bool remainder) {
  require_nonzero(rt, b == 0);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (remainder) return Value::real(rest);
  if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1;
  return Value::real(whole);
}

Value power(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer() && b.as_integer() >= 0) {
    int64_t result = 1, base = a.as_integer();
    for (int64_t exponent = b.as_integer(); exponent > 0; exponent >>= 1) {
      if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) too_large(rt);
      if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) too_large(rt);
    }
    return Value::integer(result);
  }
  const double x = a.as_double(), y = b.as_double();
  if (x == 0 && y < 0) rt.error("zero cannot be raised to a negative power");
  const double result = std::pow(x, y);
  if (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y)) rt.unsupported("a complex number");
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) rt.error("the result of '**' is too large");
  return Value::real(result);
}

Value whole(Runtime& rt, std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op[0]) {
    case '+': overflow = __builtin_add_overflow(a, b, &result); break;
    case '-': overflow = __builtin_sub_overflow(a, b, &result); break;
    default: overflow = __builtin_mul_overflow(a, b, &result); break;
  }
  if (overflow) too_large(rt);
  return Value::integer(result);
}

}  // namespace

Value arithmetic(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  const bool both_whole = a.is_integer() && b.is_integer();
  if (op == "**") return power(rt, a, b);
  if (op == "/") {
    require_nonzero(rt, b.as_double() == 0);
    return Value::real(a.as_double() / b.as_double());
  }
  if (op == "//" || op == "%") {
    return both_whole ? divide_whole(rt, a.as_integer(), b.as_integer(), op == "%")
                      : divide_real(rt, a.as_double(), b.as_double(), op == "%");
  }
  if (both_whole) return whole(rt, op, a.as_integer(), b.as_integer());
  const double x = a.as_double(), y = b.as_double();
  return Value::real(op == "+" ? x + y : op == "-" ? x - y : x * y);
}

Value round_to(Runtime& rt, const Value& number, int64_t digits) {
  if (digits < 0) rt.unsupported("rounding to tens or more");
  if (number.is_integer()) return Value::integer(number.as_integer());
  const double value = number.as_double();
  if (!std::isfinite(value) || digits > 330) return number;  // more digits than any double has
  // printf rounds the exact decimal value half to even, as Python does.
  std::array<char, 700> buffer;
  std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(digits), value);
  return Value::real(std::strtod(buffer.data(), nullptr));
}

Value truncate(Runtime& rt, double value) {
  if (std::isnan(value)) rt.error("NaN has no whole number");
  if (std::isinf(value)) rt.error("infinity has no whole number");
  const double whole_part = std::trunc(value);
  if (!(whole_part >= -0x1p63 && whole_part < 0x1p63)) too_large(rt);
  return Value::integer(static_cast<int64_t>(whole_part));
}

namespace {

enum class Order { kLess, kEqual, kGreater, kNone };

Order order_of(double a, double b) {
  return a < b ? Order::kLess : a > b ? Order::kGreater : a == b ? Order::kEqual : Order::kNone;
}

// Exact where converting the integer to double would round.
Order order_of(int64_t a, double b) {
  if (std::isnan(b)) return Order::kNone;
  if (b >= 0x1p63) return Order::kLess;
  if (b < -0x1p63) return Order::kGreater;
  const double whole = std::trunc(b);
  const auto integer = static_cast<int64_t>(whole);
  if (a != integer) return a < integer ? Order::kLess : Order::kGreater;
  return b > whole ? Order::kLess : b < whole ? Order::kGreater : Order::kEqual;
}

Order order_of_numbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) {
    return a.as_integer() < b.as_integer()   ? Order::kLess
           : a.as_integer() > b.as_integer() ? Order::kGreater
                                             : Order::kEqual;
  }
  if (a.is_integer()) return order_of(a.as_integer(), b.as_double());
  if (b.is_integer()) {
    const Order order = order_of(b.as_integer(), a.as_double());
    return order == Order::kLess ? Order::kGreater : order == Order::kGreater ? Order::kLess : order;
  }
  return order_of(a.as_double(), b.as_double());
}

bool satisfies(std::string_view op, Order order) {
  if (op == "<") return order == Order::kLess;
  if (op == ">") return order == Order::kGreater;
  if (op == "<=") return order == Order::kLess || order == Order::kEqual;
  return order == Order::kGreater || order == Order::kEqual;
}

bool equal_items(Runtime& rt, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(rt, a[i], b[i])) return false;
  }
  return true;
}

bool equal_dicts(Runtime& rt, const DictObject& a, const DictObject& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = lookup(rt, b, key);
    if (!other || !equal(rt, value, *other)) return false;
  }
  return true;
}

Value repeat(Runtime& rt, const Value& value, int64_t times) {
  if (value.is_string()) {
    TextBuilder out(rt);
    out.repeat(value.text(), times);
    return out.finish(value.is_markup());
  }
  ListBuilder out(rt);
  for (int64_t i = 0; i < times && !value.items().empty(); ++i) {
    for (const Value& item : value.items()) out.add(item);
  }
  return out.finish(value.kind());
}

Value add_texts(Runtime& rt, const Value& a, const Value& b) {
  TextBuilder out(rt);
  const bool markup = a.is_markup() || b.is_markup();
  for (const Value* part : {&a, &b}) {
    if (markup && !part->is_markup()) {
      out.add(escape_html(part->text()));
    } else {
      out.add(part->text());
    }
  }
  return out.finish(markup);
}

}  // namespace

bool is_truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kNone:
    case Kind::kUndefined: return false;
    case Kind::kBool:
    case Kind::kInt: return value.as_integer() != 0;
    case Kind::kFloat: return value.as_double() != 0;
    case Kind::kString: return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple: return !value.items().empty();
    case Kind::kDict: return !value.as<DictObject>().items.empty();
    case Kind::kView: return is_truthy(value.as<ViewObject>().dict);
    case Kind::kRange: return value.as<RangeObject>().length > 0;
    default: return true;
  }
}

bool equal(Runtime& rt, const Value& a, const Value& b) {
  rt.step();
  if (a.is_number() && b.is_number()) return order_of_numbers(a, b) == Order::kEqual;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kNone:
    case Kind::kUndefined: return true;
    case Kind::kString:
      if (a.text().size() == b.text().size()) rt.count_bytes(a.text().size());
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple: {
      const Runtime::DepthGuard guard(rt);
      return a.same_object(b) || equal_items(rt, a.items(), b.items());
    }
    case Kind::kDict: {
      const Runtime::DepthGuard guard(rt);
      return a.same_object(b) || equal_dicts(rt, a.as<DictObject>(), b.as<DictObject>());
    }
    case Kind::kRange: {
      const RangeObject &x = a.as<RangeObject>(), &y = b.as<RangeObject>();
      return x.length == y.length && (x.length == 0 || (x.start == y.start && (x.length == 1 || x.step == y.step)));
    }
    default: return a.same_object(b);
  }
}

bool ordered(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  rt.step();
  if (a.is_undefined()) rt.fail_undefined(a);
  if (b.is_undefined()) rt.fail_undefined(b);
  if (a.is_number() && b.is_number()) return satisfies(op, order_of_numbers(a, b));
  if (a.is_string() && b.is_string()) {
    rt.count_bytes(std::min(a.text().size(), b.text().size()));
    const int order = a.text().compare(b.text());  // UTF-8 sorts as its code points do
    return satisfies(op, order < 0 ? Order::kLess : order > 0 ? Order::kGreater : Order::kEqual);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const Runtime::DepthGuard guard(rt);
    const std::vector<Value>&x = a.items(), &y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(rt, x[i], y[i])) return ordered(rt, op, x[i], y[i]);
    }
    return satisfies(op, x.size() < y.size() ? Order::kLess : x.size() > y.size() ? Order::kGreater : Order::kEqual);
  }
  rt.error("'" + std::string(op) + "' has no meaning between " + std::string(type_name(a)) + " and " +
           std::string(type_name(b)));
}

bool compare(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equal(rt, a, b);
  if (op == "!=") return !equal(rt, a, b);
  if (op == "in") return contains(rt, b, a);
  if (op == "not in") return !contains(rt, b, a);
  return ordered(rt, op, a, b);
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is_string()) {
        rt.error("'in' a string needs a string before it", "", std::string(type_name(item)));
      }
      rt.count_bytes(container.text().size() + item.text().size());
      return text::find(container.text(), item.text()) != std::string_view::npos;
    case Kind::kDict:
      if (!is_hashable(rt, item)) rt.error(described_type(item) + " cannot be the key of a dict");
      return lookup(rt, container.as<DictObject>(), item) != nullptr;
    case Kind::kUndefined: return false;
    default: break;
  }
  Cursor cursor(rt, container);
  for (Value each; cursor.next(each);) {
    if (equal(rt, each, item)) return true;
  }
  return false;
}

Value binary(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  if (a.is_string() && op == "%") return format_percent(rt, a, b);
  if (a.is_undefined()) rt.fail_undefined(a);
  if (b.is_undefined()) rt.fail_undefined(b);
  if (a.is_number() && b.is_number()) return arithmetic(rt, op, a, b);
  if (op == "+") {
    if (a.is_string() && b.is_string()) return add_texts(rt, a, b);
    if (a.is_sequence() && a.kind() == b.kind()) {
      ListBuilder out(rt);
      for (const Value& item : a.items()) out.add(item);
      for (const Value& item : b.items()) out.add(item);
      return out.finish(a.kind());
    }
  }
  if (op == "*") {
    if (b.is_integer() && (a.is_string() || a.is_sequence())) return repeat(rt, a, b.as_integer());
    if (a.is_integer() && (b.is_string() || b.is_sequence())) return repeat(rt, b, a.as_integer());
  }
  rt.error("'" + std::string(op) + "' has no meaning between " + std::string(type_name(a)) + " and " +
           std::string(type_name(b)));
}

Value negate(Runtime& rt, const Value& value) {
  if (value.is_undefined()) rt.fail_undefined(value);
  if (value.is(Kind::kFloat)) return Value::real(-value.as_double());
  if (value.is_integer()) return arithmetic(rt, "-", Value::integer(0), value);
  rt.error("'-' has no meaning before " + described_type(value));
}

Value plus(Runtime& rt, const Value& value) {
  if (value.is_undefined()) rt.fail_undefined(value);
  if (value.is(Kind::kFloat)) return value;
  if (value.is_integer()) return Value::integer(value.as_integer());
  rt.error("'+' has no meaning before " + described_type(value));
}

const Value* lookup(Runtime& rt, const DictObject& dict, const Value& key) {
  for (const auto& [each, value] : dict.items) {
    if (equal(rt, each, key)) return &value;
  }
  return nullptr;
}

const Value* lookup(Runtime& rt, const DictObject& dict, std::string_view key) {
  rt.step(1 + dict.items.size() / 16);
  for (const auto& [each, value] : dict.items) {
    if (each.is_string() && each.text() == key) return &value;
  }
  return nullptr;
}

bool is_hashable(Runtime& rt, const Value& value) {
  const Runtime::DepthGuard guard(rt);
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView: return false;
    case Kind::kTuple:
      for (const Value& item : value.items()) {
        rt.step();
        if (!is_hashable(rt, item)) return false;
      }
      return true;
    default: return true;
  }
}

void insert_or_assign(Runtime& rt, std::vector<std::pair<Value, Value>>& items, Value key, Value value) {
  if (!is_hashable(rt, key)) rt.error(described_type(key) + " cannot be the key of a dict");
  for (auto& [each, old] : items) {
    if (equal(rt, each, key)) {
      old = std::move(value);
      return;
    }
  }
  items.emplace_back(std::move(key), std::move(value));
}

std::string escape_html(std::string_view s) {
  std::string out;
  for (const char c : s) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace doppler::jinja
