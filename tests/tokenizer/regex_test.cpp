#include "tokenizer/regex.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace doppler {
namespace {

std::vector<std::string> matches(const std::string& expression, const std::string& text) {
  std::vector<std::string> found;
  TextPattern::regex(expression, "test").each_match(text, [&](Span span) {
    found.push_back(text.substr(span.begin, span.end - span.begin));
  });
  return found;
}

using Strings = std::vector<std::string>;

TEST(Regex, ReadsOnigurumasSyntax) {
  EXPECT_EQ(matches("a{,2}b", "aaab"), (Strings{"aab"}));                 // {,2} is {0,2}
  EXPECT_EQ(matches("a{x", "a{x"), (Strings{"a{x"}));                     // not an interval
  EXPECT_EQ(matches("(?:ab){1,2}+", "abababab"), (Strings{"abababab"}));  // a repeated interval, not a possessive one
  EXPECT_EQ(matches("a{1,2}+a", "aaaa"), (Strings{"aaaa"}));
  EXPECT_EQ(matches("ba{2}?", "baab"), (Strings{"baa", "b"}));  // {2}? is optional, not lazy
  EXPECT_EQ(matches("a{1,3}?", "aaa"), (Strings{"a", "a", "a"}));
  EXPECT_EQ(matches("a++a", "aaa"), (Strings{}));
  EXPECT_EQ(matches("\\h+", "face x 42"), (Strings{"face", "42"}));
  EXPECT_EQ(matches("a\\vb", "a\vb a\nb"), (Strings{"a\vb"}));  // VT alone, not every line break
  EXPECT_EQ(matches("\\u00e9|\\x{1f600}", "é😀"), (Strings{"é", "😀"}));
  EXPECT_EQ(matches("^b$", "a\nb\nc"), (Strings{"b"}));  // lines, always
  EXPECT_EQ(matches("[^\\P{L}]+", "ab12"), (Strings{"ab"}));
  EXPECT_EQ(matches("[\\S]+", "a\xE1\xA0\x8E"), (Strings{"a\xE1\xA0\x8E"}));  // U+180E is no space there
  EXPECT_EQ(matches("[a\\-\\]^]+", "a-]^b"), (Strings{"a-]^"}));
  EXPECT_EQ(matches("\\p{^L}+", "ab12"), (Strings{"12"}));
  EXPECT_EQ(matches("(?i:'S|'lL)", "'s 'LL 'x"), (Strings{"'s", "'LL"}));
}

TEST(Regex, LeavesOutEmptyMatchesRightAfterAMatch) {
  EXPECT_EQ(matches("a?", "baab"), (Strings{"", "a", "a", ""}));
  EXPECT_EQ(matches("(?=b)", "ab"), (Strings{""}));
}

TEST(Regex, RefusesWhatItCannotPromiseAndNamesIt) {
  const std::pair<const char*, const char*> cases[] = {{"\\bword", "'\\b'"},
                                                       {"(a)\\1", "'\\1'"},
                                                       {"[[:alpha:]]", "class within a class"},
                                                       {"[a&&b]", "intersection"},
                                                       {"\\p{Greek}", "'Greek'"},
                                                       {"\\p{Mn}", "'Mn'"},
                                                       {"(?<n>a)", "'(?<n'"},
                                                       {"a(?i)b", "'(?i)'"},
                                                       {"(?i:stra\xC3\x9F)", "(?i)"},
                                                       {"(?i:ss)", "ligature"},
                                                       {"(?i:\\p{Lu})", "case"},
                                                       {"\\xe9", "\\x"},
                                                       {"(a", "')'"},
                                                       {"a)", "')'"},
                                                       {"[]", "empty"},
                                                       {"[a", "end"},
                                                       {"[\\D\\s]", "negated set"},
                                                       {"a\\", "end"},
                                                       {"\\p{L", "'}'"},
                                                       {"[z-a]", "range"},
                                                       {"\\x{110000}", "number"},
                                                       {"*a", "quantifier"},
                                                       {"(?<=a+)b", "lookbehind"},
                                                       {"\xFF", "UTF-8"}};
  for (const auto& [expression, part] : cases) {
    try {
      Regex::compile(expression, "test");
      FAIL() << expression << " was accepted";
    } catch (const Failure& failure) {
      EXPECT_NE(std::string(failure.what()).find(part), std::string::npos) << expression << ": " << failure.what();
    }
  }
}

TEST(Regex, GivesUpOnBacktrackingWithoutEnd) {
  EXPECT_THROW(matches("(?:a+)+[bd]", std::string(64, 'a') + "c"), Failure);
}

TEST(Regex, WorksOnTextsOfMegabytes) {
  const std::string text(3'000'000, 'A');
  EXPECT_EQ(matches("[\\p{Lu}]*[\\p{Ll}]+|[\\p{Lu}]+", text).size(), 1u);
  EXPECT_EQ(matches("(?:A|B)+", text.substr(0, 300'000)).size(), 1u);  // more than the matcher's own stack holds
}

}  // namespace
}  // namespace doppler
