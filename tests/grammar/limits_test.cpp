// What a grammar may cost: time of the thread that all texts share, and memory.
#include <fmt/format.h>

#include <ctime>

#include "grammar/compiled_grammar.h"
#include "grammar/support.h"

namespace doppler {
namespace {

std::vector<std::string> random_words(size_t count, size_t letters) {
  std::mt19937 random(1);
  std::vector<std::string> words(count);
  for (std::string& word : words) {
    for (size_t i = 0; i < letters; ++i) word += static_cast<char>('a' + random() % 26);
  }
  return words;
}

TEST(GrammarLimits, MasksAreKeptByPlaceNotBySetOfPlaces) {
  // Which of the last 41 characters were vowels: 2^41 sets of 42 places.
  const auto trie = byte_trie(random_words(5000, 6));
  const auto grammar = grammar_from_gbnf("root ::= [a-z ]* [aeiou] [a-z ]{40}", "test.gbnf", trie);
  const auto& compiled = dynamic_cast<const CompiledGrammar&>(*grammar);
  const auto constraint = grammar->begin();
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const std::vector<int32_t> tokens = allowed_tokens(constraint->allowed());
    ASSERT_EQ(tokens.size(), 5027u);
    ASSERT_TRUE(constraint->accept(tokens[random() % tokens.size()]));
  }
  const size_t mask = static_cast<size_t>(trie->vocab_size()) / 8 + 500;
  EXPECT_LE(compiled.known_bytes(), 42 * mask);
}

TEST(GrammarLimits, TheLongestUnusedMasksAreForgotten) {
  // 180 places, of which each has a mask of 131,000 ids: more than is kept.
  std::vector<std::pair<std::string, int32_t>> tokens;
  for (int i = 0; i < 131'000; ++i) {
    std::string word;
    for (int k = 0, rest = i; k < 4; ++k, rest /= 26) word += static_cast<char>('a' + rest % 26);
    tokens.emplace_back(std::move(word), i + 256);
  }
  tokens.emplace_back("a", 0);
  tokens.emplace_back("1", 1);
  tokens.emplace_back("far", 64 * 132'000);
  const auto trie = std::make_shared<TokenTrie>(std::move(tokens), true);
  const auto grammar = grammar_from_gbnf(R"(root ::= [a-z]{60} "1" [a-z]{60} "1" [a-z]{60})", "test.gbnf", trie);
  const auto& compiled = dynamic_cast<const CompiledGrammar&>(*grammar);
  const auto constraint = grammar->begin();
  for (int i = 0; i < 182; ++i) {
    const int32_t token = i % 61 == 60;
    ASSERT_TRUE(constraint->allowed().has(token)) << i;
    ASSERT_FALSE(constraint->allowed().has(1 - token)) << i;
    ASSERT_TRUE(constraint->accept(token));
    ASSERT_LE(compiled.known_bytes(), CompiledGrammar::kMostKnownBytes);
  }
  EXPECT_TRUE(constraint->must_end());
  EXPECT_GT(compiled.known_bytes(), CompiledGrammar::kMostKnownBytes / 2);
  EXPECT_TRUE(grammar->begin()->allowed().has(256)) << "what was forgotten is found again";
}

TEST(GrammarLimits, AWalkWithoutEndEndsItsOwnText) {
  std::string text = "root ::= [a-z]* (";
  for (char c = 'a'; c <= 'z'; ++c) text += fmt::format("{}[aeiou{}] [a-z]{{40}} \"{}\"", c == 'a' ? "" : " | ", c, c);
  const auto trie = byte_trie(random_words(60'000, 14));
  const auto constraint = grammar_from_gbnf(text + ")", "test.gbnf", trie)->begin();
  EXPECT_TRUE(allowed_tokens(constraint->allowed()).empty());
  EXPECT_TRUE(allowed_tokens(constraint->allowed()).empty());
  EXPECT_FALSE(constraint->may_end());
}

TEST(GrammarLimits, ComparedEnumsAreCharged) {
  const auto schema = [](int size) {
    std::string lists[2];
    for (int i = 0; i < 2 * size; ++i) lists[i / size] += fmt::format("{}\"v{}\"", i % size ? "," : "", i);
    return fmt::format(R"({{"oneOf":[{{"enum":[{}]}},{{"enum":[{}]}}]}})", lists[0], lists[1]);
  };
  const auto compiled = [&](int size) {
    return message_of([&] { grammar_from_json_schema(schema(size), "schema", byte_trie()); });
  };
  EXPECT_EQ(compiled(1000), "");
  EXPECT_NE(compiled(4000).find("takes too long to compile"), std::string::npos) << compiled(4000);
}

TEST(GrammarLimits, RulesThatEachWaitForTheOneBeforeTakeLinearTime) {
  std::string text = "r0 ::= \"a\"?\n";
  for (int i = 1; i < 9900; ++i) text += fmt::format("r{} ::= \"b\" r{} | r{} [cd] \"{}\"\n", i, i - 1, i - 1, i);
  const std::clock_t begin = std::clock();  // of this process, whatever else the machine does
  const auto grammar = grammar_from_gbnf(text + "root ::= \"<\" r3 \">\" r9899?", "test.gbnf", byte_trie());
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 6)
      << "0.3 s are usual, 20 s once for each rule";
  EXPECT_TRUE(testing::matches(*grammar, "<bbba>"));
  EXPECT_TRUE(testing::matches(*grammar, "<bac1d3>"));
  EXPECT_FALSE(testing::matches(*grammar, "<bac1d4>"));
}

}  // namespace
}  // namespace doppler
