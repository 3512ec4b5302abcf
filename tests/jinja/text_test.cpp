// Python's view of strings.
#include "jinja/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <string>

#include "jinja/lexer.h"
#include "jinja/operations.h"

namespace doppler::jinja {
namespace {

TEST(JinjaText, CountsCodePointsNotBytes) {
  EXPECT_EQ(text::length("größe 😀"), 7);
  EXPECT_EQ(text::offset("größe 😀", 3), 4u);
  EXPECT_EQ(text::offset("größe 😀", 6), 8u);
  EXPECT_EQ(text::offset("größe 😀", 99), 12u);
  EXPECT_EQ(text::length("a\xff\xfe"
                         "b"),
            4);  // a byte that is no UTF-8 is one character
}

TEST(JinjaText, CaseFollowsUnicodesFullMappings) {
  EXPECT_EQ(text::upper("straße ﬁn ŉ"), "STRASSE FIN ʼN");
  EXPECT_EQ(text::lower("ΌΔΟΣ ΣΑΣ. İ"), "όδος σας. i\u0307");
  EXPECT_EQ(text::title("ǆungla they're x1y ßa"), "ǅungla They'Re X1Y Ssa");
  EXPECT_EQ(text::capitalize("éCOLE DES"), "École des");
}

TEST(JinjaText, StripsWhiteSpaceOrASetOfCharacters) {
  EXPECT_EQ(text::strip("\u00a0\u3000 a b \x1f\n", true, true), "a b");
  EXPECT_EQ(text::strip("  a ", true, false), "a ");
  EXPECT_EQ(text::strip("  a ", false, true), "  a");
  EXPECT_EQ(text::strip("ééaéxé", "éx", true, true), "a");
  EXPECT_EQ(text::strip("aaa", "a", true, true), "");
  EXPECT_EQ(text::strip("", true, true), "");
}

TEST(JinjaText, FindsLikeANaiveSearch) {
  std::mt19937 random(7);
  for (int i = 0; i < 5000; ++i) {
    std::string s(random() % 30, 'a'), needle(random() % 4, 'a');
    for (char& c : s) c = static_cast<char>('a' + random() % 2);
    for (char& c : needle) c = static_cast<char>('a' + random() % 2);
    ASSERT_EQ(text::find(s, needle), s.find(needle)) << s << " " << needle;
    ASSERT_EQ(text::rfind(s, needle), s.rfind(needle)) << s << " " << needle;
  }
}

TEST(JinjaText, SearchIsLinearInTheWorstCase) {
  const std::string s(4'000'000, 'a');
  EXPECT_EQ(text::find(s, std::string(1'000'000, 'a') + "b"), std::string_view::npos);
  EXPECT_EQ(text::rfind(s, "b" + std::string(1'000'000, 'a')), std::string_view::npos);
}

TEST(JinjaLiterals, FloatsArePrintedAsPythonPrintsThem) {
  const std::pair<double, const char*> cases[] = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {0.1 + 0.2, "0.30000000000000004"},
      {1e15, "1000000000000000.0"},
      {1e16, "1e+16"},
      {123456789012345680.0, "1.2345678901234568e+17"},
      {1e-4, "0.0001"},
      {1e-5, "1e-05"},
      {5e-324, "5e-324"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {-2.5, "-2.5"},
      {100.0, "100.0"},
      {1.5e-7, "1.5e-07"},
  };
  for (const auto& [value, text] : cases) EXPECT_EQ(float_text(value), text);
}

TEST(JinjaLiterals, APrintedFloatReadsBackTheSame) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<double>(random());
    if (value != value || value - value != 0) continue;  // neither NaN nor infinity
    double back = 0;
    ASSERT_TRUE(parse_real(float_text(value), back)) << float_text(value);
    ASSERT_EQ(back, value) << float_text(value);
  }
}

TEST(JinjaLiterals, IntegersAreReadAsPythonReadsThem) {
  const auto read = [](std::string_view s) -> std::string {
    int64_t out = 0;
    bool too_large = false;
    if (!parse_integer(s, out, too_large)) return "no";
    return too_large ? "too large" : std::to_string(out);
  };
  EXPECT_EQ(read(" -42\n"), "-42");
  EXPECT_EQ(read("1_000"), "1000");
  EXPECT_EQ(read("1__0"), "no");
  EXPECT_EQ(read("_1"), "no");
  EXPECT_EQ(read(""), "no");
  EXPECT_EQ(read("-"), "no");
  EXPECT_EQ(read("0x1F"), "no");
  EXPECT_EQ(read("012"), "12");
  EXPECT_EQ(read("000"), "0");
  EXPECT_EQ(read("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(read("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(read("9223372036854775808"), "too large");
}

}  // namespace
}  // namespace doppler::jinja
