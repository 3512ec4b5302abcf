#include "jinja/arithmetic.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

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
  if (a.is_whole() && b.is_whole() && b.whole() >= 0) {
    int64_t result = 1, base = a.whole();
    for (int64_t exponent = b.whole(); exponent > 0; exponent >>= 1) {
      if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) too_large(rt);
      if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) too_large(rt);
    }
    return Value::integer(result);
  }
  const double x = a.number(), y = b.number();
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
  const bool both_whole = a.is_whole() && b.is_whole();
  if (op == "**") return power(rt, a, b);
  if (op == "/") {
    require_nonzero(rt, b.number() == 0);
    return Value::real(a.number() / b.number());
  }
  if (op == "//" || op == "%") {
    return both_whole ? divide_whole(rt, a.whole(), b.whole(), op == "%")
                      : divide_real(rt, a.number(), b.number(), op == "%");
  }
  if (both_whole) return whole(rt, op, a.whole(), b.whole());
  const double x = a.number(), y = b.number();
  return Value::real(op == "+" ? x + y : op == "-" ? x - y : x * y);
}

Value round_to(Runtime& rt, const Value& number, int64_t digits) {
  if (number.is_whole()) {
    if (digits >= 0) return Value::integer(number.whole());
    if (digits < -18) return Value::integer(0);
    int64_t unit = 1;
    for (int64_t i = 0; i < -digits; ++i) unit *= 10;
    const int64_t rest = divide_whole(rt, number.whole(), unit, true).whole();
    const Value below = whole(rt, "-", number.whole(), rest);
    const bool up =
        rest > unit / 2 || (rest == unit / 2 && divide_whole(rt, below.whole(), unit, false).whole() % 2 != 0);
    return up ? whole(rt, "+", below.whole(), unit) : below;
  }
  const double value = number.number();
  if (!std::isfinite(value) || digits > 330) return number;  // more digits than any double has
  if (digits < 0) rt.unsupported("rounding a float to tens or more");
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

}  // namespace doppler::jinja
