// JSON as expressions: strings, numbers in ranges, any value. White space is what people and models write: none, one
// space, or a new line with up to 20 spaces or tabs, after { [ , : and before } ].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/expression.h"

namespace doppler {

constexpr uint32_t kForever = Expressions::kForever;

class JsonText {
 public:
  explicit JsonText(Expressions& expressions) : e_(expressions) {}

  Expression space();
  Expression literal(const Json& value) { return e_.text(value.dump()); }
  Expression string();  // any
  Expression string(uint32_t least, uint32_t most);
  Expression quoted(Expression content) { return e_.sequence({e_.text("\""), content, e_.text("\"")}); }
  Expression any_character();  // one character of a string, as it is or escaped
  // One character of a string out of these ranges, escaped where it must be.
  Expression character(const std::vector<CodeRange>& ranges);
  // A string without escapes that is none of these.
  Expression string_but(const std::vector<std::string>& names);

  // Whole numbers of at most 15 digits, which a double holds exactly.
  static constexpr int64_t kLargest = 999'999'999'999'999;
  Expression integer(int64_t least, int64_t most);
  Expression number();  // finite: at most 15 digits on each side of the point and an exponent of two
  // Bounds are decimals of at most nine places, below 10⁶ · 10⁹ in size. Empty: none.
  struct Bound {
    double value = 0;
    bool exclusive = false;
  };
  Expression number(const std::optional<Bound>& least, const std::optional<Bound>& most, const std::string& where);

  Expression value();
  Expression object();
  Expression array();

  // [ first rest… ], where `content` has no white space around it and may be empty.
  Expression bracketed(char open, Expression content, bool may_be_empty, char close);
  Expression separated(Expression part);  // , and white space before it

 private:
  Expression digits(int least, int most);
  Expression digit_range(char first, char last);
  // Decimals between two of the same length, leading zeros included. Behind a point, zeros at the end may be left out.
  Expression same_length(std::string_view least, std::string_view most, bool behind_point = false);
  Expression natural(uint64_t least, uint64_t most);
  Expression fraction(uint64_t least, uint64_t most, int places);
  Expression but(std::vector<std::u32string> names);
  void declare_values();

  Expressions& e_;
  std::optional<Expression> space_, string_, value_, object_, array_, key_rest_;
};

}  // namespace doppler
