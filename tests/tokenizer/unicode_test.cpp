#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/regex.h"

namespace doppler {
namespace {

// Every character that is or could be assigned outside of private use.
const std::vector<char32_t>& characters() {
  static const std::vector<char32_t> all = [] {
    std::vector<char32_t> list;
    for (char32_t c = 3; c < 0xE1000; ++c) {
      if ((c >= 0xD800 && c < 0xE000) || (c >= 0x32500 && c < 0xE0000)) continue;
      list.push_back(c);
    }
    return list;
  }();
  return all;
}

std::string utf8(char32_t code) {
  std::string text;
  append_utf8(text, code);
  return text;
}

std::string sha256(const std::string& text) { return sha256_hex(std::as_bytes(std::span(text.data(), text.size()))); }

const Json& expected() {
  static const std::string file = std::string(DOPPLER_TEST_DATA) + "/tokens/unicode.json";
  static const Json json = parse_json(read_text_file(file), file);
  return json;
}

// For each character 1 if the expression matches it, else 0.
std::string members(const std::string& expression) {
  const TextPattern pattern = TextPattern::regex(expression, "test");
  std::string list;
  for (const char32_t c : characters()) {
    bool matches = false;
    pattern.each_match(utf8(c), [&](Span) { matches = true; });
    list += matches ? '1' : '0';
  }
  return list;
}

TEST(Unicode, CharacterClassesHoldTheSameCharactersAsInHuggingFace) {
  for (const auto& [expression, hash] : require_object(expected(), "classes", "unicode.json").items()) {
    EXPECT_EQ(sha256(members(expression)), hash.get<std::string>()) << expression;
  }
}

TEST(Unicode, NormalFormsAreThoseOfHuggingFaceForEveryCharacter) {
  std::string text;
  for (const char32_t c : characters()) {
    const std::string x = utf8(c);
    text += x + "\na\xCC\x81" + x + "\xCC\xA3\xCC\xB4\n\xE1\x84\x80" + x + "\xE1\x86\xA8\n";
  }
  const Json& forms = require_object(expected(), "forms", "unicode.json");
  EXPECT_EQ(sha256(normalize(text, NormalForm::kNfc)), require_string(forms, "NFC", ""));
  EXPECT_EQ(sha256(normalize(text, NormalForm::kNfd)), require_string(forms, "NFD", ""));
  EXPECT_EQ(sha256(normalize(text, NormalForm::kNfkc)), require_string(forms, "NFKC", ""));
  EXPECT_EQ(sha256(normalize(text, NormalForm::kNfkd)), require_string(forms, "NFKD", ""));
  EXPECT_EQ(sha256(lowercase(text)), require_string(forms, "Lowercase", ""));
}

TEST(Unicode, PropertiesAreThoseOfHuggingFace) {
  std::string space, word, number;
  for (const char32_t c : characters()) {
    space += is_whitespace(c) ? '1' : '0';
    word += is_word(c) ? '1' : '0';
    number += is_numeric(c) ? '1' : '0';
  }
  const Json& properties = require_object(expected(), "properties", "unicode.json");
  EXPECT_EQ(sha256(space), require_string(properties, "whitespace", ""));
  EXPECT_EQ(sha256(word), require_string(properties, "word", ""));
  EXPECT_EQ(sha256(number), require_string(properties, "numeric", ""));
}

// Sorting marks by moving each one past all others would take hours here.
TEST(Unicode, NormalizesHundredsOfThousandsOfMarksOnOneCharacter) {
  std::string text = "q", sorted = "q";
  constexpr int kPairs = 200'000;
  for (int i = 0; i < kPairs; ++i) text += "\xCC\x81\xCC\xA3";
  for (int i = 0; i < kPairs; ++i) sorted += "\xCC\xA3";
  for (int i = 0; i < kPairs; ++i) sorted += "\xCC\x81";
  EXPECT_EQ(normalize(text, NormalForm::kNfd), sorted);
}

TEST(Utf8, EveryCharacterIsReadAsItWasWritten) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const std::string text = utf8(c);
    const Utf8Unit unit = read_utf8(text, 0);
    uint32_t length = 0, last_length = 0;
    ASSERT_TRUE(unit.valid);
    ASSERT_EQ(unit.code, c);
    ASSERT_EQ(unit.length, text.size());
    ASSERT_EQ(read_valid_utf8(text, 0, length), c);
    ASSERT_EQ(read_last_utf8("x" + text, last_length), c);
    ASSERT_EQ(last_length, length);
  }
}

TEST(Utf8, EachMaximalInvalidSequenceBecomesOneReplacement) {
  const std::pair<std::string, std::string> cases[] = {
      {"a\x80z", "a\uFFFDz"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},            // an overlong slash: neither byte can begin anything
      {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},  // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},  // a surrogate
      {"\xE2\x82", "\uFFFD"},                  // the beginning of €
      {"\xE2\x82x", "\uFFFDx"},
      {"\xF0\x9F\x98", "\uFFFD"},
      {"\xF0\x9F\x98\xF0\x9F\x98\x80", "\uFFFD\U0001F600"},
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // past U+10FFFF
      {"\xFF\xFE", "\uFFFD\uFFFD"},
      {"", ""}};
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(replace_invalid_utf8(bytes), text);
    EXPECT_EQ(find_invalid_utf8(text), text.size());
  }
  EXPECT_EQ(find_invalid_utf8("0123456789\xFF"), 10u);
}

}  // namespace
}  // namespace doppler
