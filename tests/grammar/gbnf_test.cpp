// GBNF: what grammars match, and what is refused with which sentence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "grammar/support.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const TokenGrammar> gbnf(const std::string& text, std::shared_ptr<const TokenTrie> trie = byte_trie()) {
  return grammar_from_gbnf(text, "test.gbnf", std::move(trie));
}

struct Case {
  const char* grammar;
  std::vector<std::string> good, bad;
};

TEST(Gbnf, MatchesWhatTheLanguageSays) {
  const Case cases[] = {
      {R"(root ::= "a" | "bc" "d"?)", {"a", "bc", "bcd"}, {"", "b", "ad", "bcdd"}},
      {"root ::= [a-c]+ [^x\\]]*  # a comment\n", {"a", "abcd", "aé😀\n"}, {"", "d", "ax", "a]"}},
      {"root ::= x{2} \"-\" x{1,3} \"-\" x{2,} \"-\" x{,1}\nx ::= [0-9]",
       {"12-3-45-", "12-345-4567-8"},
       {"1-3-45-", "12-3456-45-"}},
      {R"(root ::= "\x41\u00e9\U0001F600\n\"\\")", {"Aé😀\n\"\\"}, {"A"}},
      {"root ::= . .", {"éa", "😀😀"}, {"a", "\xff", "aaa"}},
      {"root ::= (\n  \"a\"\n  | \"b\"\n)* end\nend ::= \"!\"", {"!", "abba!"}, {"ab", "c!"}},
      {"root ::= \"a\"\n  | \"b\"", {"a", "b"}, {"ab"}},
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "(()"}},
      {"root ::= \"a\" root | \"b\"", {"b", "aaaab"}, {"", "a"}},
      {"root ::= (\"a\"? \"b\"?){0,200} \"c\"", {"c", "abababc", "bbbc"}, {"abab"}},
      {"root ::= [-a] [a-]", {"--", "aa"}, {"b-"}},
      {"root ::= \"x\"{0}", {""}, {"x"}},
  };
  for (const Case& each : cases) {
    const auto grammar = gbnf(each.grammar);
    for (const std::string& text : each.good) EXPECT_TRUE(matches(*grammar, text)) << each.grammar << " and " << text;
    for (const std::string& text : each.bad) EXPECT_FALSE(matches(*grammar, text)) << each.grammar << " and " << text;
  }
}

TEST(Gbnf, CountsInsteadOfCopying) {
  const auto grammar = gbnf("root ::= ([a-z] | \"é\"){3,1000000} \".\"");
  EXPECT_FALSE(matches(*grammar, "ab."));
  EXPECT_TRUE(matches(*grammar, "abé."));
  EXPECT_TRUE(matches(*grammar, std::string(5000, 'a') + "."));
  const auto nested = gbnf("root ::= ((\"ab\"{2,100} \";\"){2,100} \"|\"){2,300}");
  EXPECT_TRUE(matches(*nested, "abab;ababab;|abab;abab;|"));
  EXPECT_FALSE(matches(*nested, "abab;ab;|abab;abab;|"));
  EXPECT_FALSE(matches(*nested, "abab;abab;|"));
}

TEST(Gbnf, RefusesWithTheLineAndTheReason) {
  const std::pair<const char*, const char*> cases[] = {
      {"root ::= a\n", "the rule 'a' is used and not defined"},
      {"a ::= \"x\"\n", "no rule named root"},
      {"root ::= \"x", "not closed on its line"},
      {"root ::= \"x\"\nroot ::= \"y\"", "defined twice"},
      {"root ::= (\"x\"", "a group is not closed"},
      {"root ::= [b-a]", "runs backwards"},
      {"root ::= \"\\q\"", "no such escape"},
      {"root ::= \"\\uD800\"", "names no character"},
      {"root ::= \"x\"{3,2}", "above its most"},
      {"root ::= \"x\"{99999999999}", "too large"},
      {"root ::= <think>", "tokens in a grammar"},
      {"root ::= root \"x\" | \"y\"", "the rule 'root' can begin with itself"},
      {"root ::= a\na ::= b? c\nb ::= \"x\"\nc ::= a | \"y\"", "can begin with itself"},
      {"root ::= \"x\" a\na ::= \"y\" a", "no text can match"},
      {"root ::= [^\\x00-\\U0010FFFF]", "no text can match"},
      {"root = \"x\"", "::="},
      {"\xff", "not UTF-8"},
      {"", "no rule named root"},
  };
  for (const auto& [grammar, sentence] : cases) {
    EXPECT_THAT(message_of([&, text = grammar] { gbnf(text); }), HasSubstr(sentence)) << grammar;
  }
  std::string deep = "root ::= ";
  for (int i = 0; i < 100'000; ++i) deep += "(";
  EXPECT_THAT(message_of([&] { gbnf(deep); }), HasSubstr("nested too deep"));
  std::string large = "root ::= ";
  for (int i = 0; i < 100'000; ++i) large += "\"" + std::to_string(i) + "xyzuvw\" [ab] ";
  EXPECT_THAT(message_of([&] { gbnf(large); }), HasSubstr("too l"));
}

TEST(Gbnf, TokensThatCrossRulesAreSeen) {
  const auto trie = byte_trie({"ab", "b\"", "\",", "\",\"", "a\",\"b", "x\",\"y\"z"});
  const auto grammar = gbnf("root ::= s (\",\" s)*\ns ::= \"\\\"\" [a-z]* \"\\\"\"", trie);
  const auto constraint = grammar->begin();
  ASSERT_TRUE(constraint->accept('"'));
  const std::vector<int32_t> tokens = testing::allowed_tokens(constraint->allowed());
  for (const int32_t token : {256, 257, 258, 259, 260, int('"'), int('q')}) {
    EXPECT_THAT(tokens, ::testing::Contains(token));
  }
  EXPECT_THAT(tokens, ::testing::Not(::testing::Contains(261)));
  EXPECT_FALSE(constraint->may_end());
  ASSERT_TRUE(constraint->accept(260));
  ASSERT_TRUE(constraint->accept('"'));
  EXPECT_TRUE(constraint->may_end());
  EXPECT_FALSE(constraint->must_end());
  EXPECT_FALSE(constraint->accept('"'));
  EXPECT_TRUE(constraint->may_end()) << "a refused token changes nothing";
}

TEST(Gbnf, AGrammarIsSharedByThreads) {
  const auto trie = testing::trie_of("tiny");
  const auto grammar = grammar_of_json_object(trie);
  std::vector<std::optional<std::string>> texts(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<uint32_t>(i / 2));
      texts[i] = testing::random_text(*grammar, *trie, random, 200);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < texts.size(); i += 2) EXPECT_EQ(texts[i], texts[i + 1]);
}

TEST(Gbnf, BytesOfTokens) {
  const Tokenizer tiny = Tokenizer::load(testing::tokenizer_folder("tiny"));
  EXPECT_EQ(tiny.token_bytes(tiny.token_id("<0x0A>")), "\n");
  EXPECT_EQ(tiny.token_bytes(tiny.token_id("<0xE2>")), "\xE2");
  EXPECT_EQ(tiny.token_bytes(tiny.token_id("▁the")), " the");
  EXPECT_EQ(tiny.token_bytes(1 << 22), "");
  EXPECT_EQ(testing::trie_of("tiny")->bytes_of(tiny.named().eos), "") << "a special token is no text";
}

// A text's tokens have its bytes, in every tokenizer; and byte-level tokens may end within a character.
TEST(Gbnf, BytesOfTokensMakeTheText) {
  const std::string text = "{\"größe\": [1.5, \"😀 naïve\\n\"],\n\t\"x\": null}";
  for (const std::string& name : testing::tokenizer_names()) {
    if (testing::tokenizer_folder(name).empty()) continue;
    const Tokenizer tokenizer = Tokenizer::load(testing::tokenizer_folder(name));
    const auto trie = testing::trie_of(name);
    std::string bytes;
    const auto constraint = grammar_of_json_object(trie)->begin();
    for (const int32_t id : tokenizer.encode(text, false)) {
      bytes += trie->bytes_of(id);
      EXPECT_TRUE(constraint->allowed().has(id)) << name << " behind " << bytes;
      EXPECT_TRUE(constraint->accept(id));
    }
    EXPECT_EQ(bytes, text) << name;
    EXPECT_TRUE(constraint->must_end()) << name;
  }
}

}  // namespace
}  // namespace doppler
