// Filters that give numbers.
#include <cmath>

#include "jinja/arithmetic.h"
#include "jinja/convert.h"
#include "jinja/filters.h"
#include "jinja/literals.h"

namespace doppler::jinja {
namespace {

Value absolute(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "abs", {}, 0);
  if (value.is_undefined()) rt.use_of(value);
  if (value.is(Kind::kFloat)) return Value::real(std::fabs(value.number()));
  if (!value.is_whole()) rt.error("abs needs a number", "", std::string(type_name(value)));
  return value.whole() < 0 ? negate(rt, value) : Value::integer(value.whole());
}

Value to_int(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "int", {"default", "base"}, 0);
  const Value otherwise = args[0].is_missing() ? Value::integer(0) : args[0];
  if (value.is_undefined()) rt.use_of(value);
  if (value.is_whole()) return Value::integer(value.whole());
  if (value.is(Kind::kFloat)) return std::isnan(value.number()) ? otherwise : truncate(rt, value.number());
  if (!value.is_string()) return otherwise;
  const int64_t base = whole_or(rt, args[1], 10, "the base of int");
  int64_t integer = 0;
  bool too_large = false;
  rt.work(value.text().size());
  if ((base == 0 || (base >= 2 && base <= 36)) &&
      parse_integer(value.text(), static_cast<int>(base), integer, too_large)) {
    if (too_large) rt.unsupported("a whole number beyond 64 bits");
    return Value::integer(integer);
  }
  double real = 0;
  if (!parse_real(value.text(), real) || !std::isfinite(real)) return otherwise;
  return truncate(rt, real);
}

Value to_float(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Value otherwise = bind(rt, arguments, "float", {"default"}, 0)[0];
  if (value.is_undefined()) rt.use_of(value);
  if (value.is_number()) return Value::real(value.number());
  double real = 0;
  if (value.is_string() && parse_real(value.text(), real)) return Value::real(real);
  return otherwise.is_missing() ? Value::real(0.0) : otherwise;
}

Value round(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "round", {"precision", "method"}, 0);
  const int64_t precision = args[0].is_missing() ? 0 : need_whole(rt, args[0], "the precision of round");
  const std::string method = args[1].is_missing() ? "common" : need_text(rt, args[1], "the method of round");
  if (value.is_undefined()) rt.use_of(value);
  if (!value.is_number()) rt.error("round needs a number", "", std::string(type_name(value)));
  if (method == "common") return round_to(rt, value, precision);
  if (method != "ceil" && method != "floor") rt.error("round knows the methods common, ceil and floor");
  const Value unit = arithmetic(rt, "**", Value::integer(10), Value::integer(precision));
  const Value scaled = arithmetic(rt, "*", value, unit);
  const Value whole = scaled.is_whole()
                          ? scaled
                          : truncate(rt, method == "ceil" ? std::ceil(scaled.number()) : std::floor(scaled.number()));
  return arithmetic(rt, "/", whole, unit);
}

constexpr Filter kFilters[] = {{"abs", absolute}, {"float", to_float}, {"int", to_int}, {"round", round}};

}  // namespace

const Filter* find_number_filter(std::string_view name) { return find_among(kFilters, name); }

}  // namespace doppler::jinja
