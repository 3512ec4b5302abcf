#include "tokenizer/regex.h"

#include <gmock/gmock.h>

#include <random>

#include "base/error.h"
#include "support/scratch.h"

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
                                                       {"a{1001}", "1000 times"},
                                                       {"a{2,65535}", "1000 times"},
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

using ::testing::HasSubstr;

TEST(Regex, GivesUpOnBacktrackingWithoutEnd) {
  EXPECT_THAT(message_of([] { matches("(?:a+)+[bd]", std::string(64, 'a') + "c"); }),
              HasSubstr("at most 1033280 steps for all of the text, got more with '(?:a+)+[bd]'"));
}

TEST(Regex, PassingOverTextCountsToo) {
  // 200,000 tries that each look at all that is left, without ever backtracking.
  EXPECT_THAT(message_of([] { matches("a+b", std::string(200'000, 'a') + " b"); }), HasSubstr("gave up"));
  EXPECT_THAT(message_of([] { matches("(?:a(?!a++b))*+c", std::string(200'000, 'a') + "d c"); }), HasSubstr("gave up"));
}

TEST(Regex, AllPiecesOfATextShareOneEffort) {
  const std::string piece = std::string(18, 'a') + "c";  // takes some 2^18 steps
  TextEffort effort(1000 * piece.size());
  const TextPattern pattern = TextPattern::regex("(?:a+)+[bd]", "test");
  int done = 0;
  EXPECT_THAT(message_of([&] {
                for (; done < 1000; ++done) pattern.each_match(piece, effort, [](Span) {});
              }),
              HasSubstr("gave up"));
  EXPECT_LT(done, 50);
}

TEST(Regex, LongMatchesAreLeftWhenNobodyWantsThem) {
  int asked = 0;
  TextEffort effort(1 << 20, [&] { return ++asked == 1; });
  EXPECT_THAT(message_of([&] {
                TextPattern::regex("(?:a|a)+b", "test").each_match(std::string(4096, 'a') + "cb", effort, [](Span) {});
              }),
              HasSubstr("interrupted"));
  EXPECT_EQ(asked, 1);
  TextEffort many(1 << 20, [&] { return true; });
  int found = 0;
  EXPECT_THAT(message_of([&] {
                TextPattern::regex("a", "test").each_match(std::string(4096, 'a'), many, [&](Span) { ++found; });
              }),
              HasSubstr("interrupted"));
  EXPECT_EQ(found, 255);
  TextEffort literal(1 << 20, [&] { return true; });
  EXPECT_THAT(message_of([&] { TextPattern::literal("a").each_match(std::string(4096, 'a'), literal, [&](Span) {}); }),
              HasSubstr("interrupted"));
}

// A find looks at a window of the text first. Whatever lies before the text moves the windows, and changes nothing.
TEST(Regex, WhereWindowsEndMakesNoDifference) {
  const char* const expressions[] = {
      "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+| ?[^\\s\\p{L}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      "a?",
      "x*$",
      "^.*$",
      "\\z|b",
      "(?<=a)b|c",
      "(?<!a)[bc]*",
      "a+b",
      "(?:ab|a)+c",
      "a*?b",
      "(?:a|b)*(?!c)",
      "\\s+$",
      ".{100}",
      "(?=.*z)a"};
  const char* const letters[] = {"a", "b", "c", " ", "\n", "A", "é", "🙂", "z"};
  std::mt19937 random(3);
  for (const char* expression : expressions) {
    const TextPattern pattern = TextPattern::regex("#|(?:" + std::string(expression) + ")", "test");
    for (int round = 0; round < 40; ++round) {
      std::string text = "\n";
      while (text.size() < 400) {
        const char* letter = letters[random() % (round % 2 ? 9 : 3)];
        for (unsigned n = random() % 12 ? 1 : random() % 150; n > 0; --n) text += letter;
      }
      std::vector<size_t> expected;
      for (const size_t before : {0, 1, 31, 64, 100, 126, 127, 128, 129}) {
        std::vector<size_t> ends;
        pattern.each_match(std::string(before, '#') + text, [&](Span span) {
          if (span.end <= before) return;
          ends.push_back(span.begin - before);
          ends.push_back(span.end - before);
        });
        if (before == 0) expected = ends;
        ASSERT_EQ(ends, expected) << expression << " after " << before << " in " << ::testing::PrintToString(text);
      }
    }
  }
}

TEST(Regex, WorksOnTextsOfMegabytes) {
  const std::string text(3'000'000, 'A');
  EXPECT_EQ(matches("[\\p{Lu}]*[\\p{Ll}]+|[\\p{Lu}]+", text).size(), 1u);
  EXPECT_EQ(matches("(?:A|B)+", text.substr(0, 300'000)).size(), 1u);  // more than the matcher's own stack holds
}

}  // namespace
}  // namespace doppler
