#include "tokenizer/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/json.h"

namespace doppler {
namespace {

using Ids = std::vector<int32_t>;

// A tokenizer of a few letters; `changes` overrides top-level keys, "model" key by key.
Json small(const Json& changes = Json::object()) {
  Json json = parse_json(R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "ab": 2, " ": 3, "é": 4}, "merges": [["a", "b"]]}})",
                         "small");
  for (const auto& [key, value] : changes.items()) {
    if (key != "model") {
      json[key] = value;
      continue;
    }
    for (const auto& [inner, inner_value] : value.items()) json["model"][inner] = inner_value;
  }
  return json;
}

Tokenizer make(const Json& changes = Json::object()) { return Tokenizer::from_json(small(changes).dump(), "test"); }

Json added(int id, const char* content, std::initializer_list<const char*> flags = {}) {
  Json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", false}};
  for (const char* flag : flags) token[flag] = true;
  return token;
}

void expect_failure(const Json& json, const std::string& part) {
  try {
    Tokenizer::from_json(json.dump(), "test.json");
    ADD_FAILURE() << "accepted, but should have named: " << part;
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find(part), std::string::npos) << failure.what();
  }
}

TEST(Tokenizer, MergesMayBeStringsOrPairsAndStandBeforeTheVocabulary) {
  EXPECT_EQ(make().encode("abba", false), (Ids{2, 1, 0}));
  EXPECT_EQ(make({{"model", {{"merges", {"#version: 0.2", "a b"}}}}}).encode("abba", false), (Ids{2, 1, 0}));
  const Tokenizer before = Tokenizer::from_json(
      R"({"model": {"merges": ["a b"], "vocab": {"a": 0, "b": 1, "ab": 2}, "type": "BPE"}, "added_tokens": []})",
      "test");
  EXPECT_EQ(before.encode("abba", false), (Ids{2, 1, 0}));
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = make({{"added_tokens", {added(5, "<s>", {"special"}), added(2, "ab")}}});
  EXPECT_EQ(tokenizer.vocab_size(), 6);
  EXPECT_EQ(tokenizer.piece(2), "ab");
  EXPECT_EQ(tokenizer.piece(5), "<s>");
  EXPECT_EQ(tokenizer.piece(6), "");
  EXPECT_EQ(tokenizer.piece(-1), "");
  EXPECT_EQ(tokenizer.token_id("<s>"), 5);
  EXPECT_EQ(tokenizer.token_id("é"), 4);
  EXPECT_EQ(tokenizer.token_id("nothing"), -1);
  EXPECT_TRUE(tokenizer.is_special(5));
  EXPECT_FALSE(tokenizer.is_special(2));
  EXPECT_FALSE(tokenizer.is_special(99));
  EXPECT_EQ(tokenizer.named().bos, -1);
}

TEST(Tokenizer, FindsTheLongestAddedTokenAtTheLeftmostPlace) {
  const Tokenizer tokenizer =
      make({{"added_tokens", {added(5, "<s"), added(6, "<s>"), added(7, "s>b"), added(8, "bb")}}});
  EXPECT_EQ(tokenizer.encode("<s>b", false), (Ids{6, 1}));
  EXPECT_EQ(tokenizer.encode("<sb", false), (Ids{5, 1}));
  EXPECT_EQ(tokenizer.encode("s>bb", false), (Ids{7, 1}));
  EXPECT_EQ(tokenizer.encode("abbb", false), (Ids{0, 8, 1}));
}

TEST(Tokenizer, AddedTokensTakeSpaceAlongAndStandAlone) {
  const Tokenizer strip = make({{"added_tokens", {added(5, "<x>", {"lstrip", "rstrip"})}}});
  EXPECT_EQ(strip.encode("a \n<x>\u00A0 b", false), (Ids{0, 5, 1}));
  const Tokenizer left = make({{"added_tokens", {added(5, "<x>", {"lstrip"})}}});
  EXPECT_EQ(left.encode("a <x> b", false), (Ids{0, 5, 3, 1}));
  const Tokenizer single = make({{"added_tokens", {added(1, "b", {"single_word"})}}});
  EXPECT_EQ(single.encode("b ab b", false), (Ids{1, 3, 2, 3, 1}));
  EXPECT_EQ(single.encode("ab.b", false), (Ids{2, 1}));
}

TEST(Tokenizer, NormalizedTokensAreFoundInNormalizedText) {
  const Tokenizer tokenizer = make(
      {{"normalizer", {{"type", "Lowercase"}}}, {"added_tokens", {added(5, "<X>", {"normalized"}), added(6, "<Y>")}}});
  EXPECT_EQ(tokenizer.encode("A<x>B<X>", false), (Ids{0, 5, 1, 5}));
  EXPECT_EQ(tokenizer.encode("A<y>B<Y>", false), (Ids{2, 6}));  // "<y>" is no token, and its letters have none
}

TEST(Tokenizer, PutsSpecialTokensAroundTheTextWhenAsked) {
  const Json frame = parse_json(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "<e>", "type_id": 0}}], "pair": [],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]},
                       "<e>": {"id": "<e>", "ids": [6, 6], "tokens": ["<e>", "<e>"]}}})",
                                "frame");
  const Json tokens = {added(5, "<s>", {"special"}), added(6, "<e>", {"special"})};
  const Tokenizer tokenizer = make({{"post_processor", frame}, {"added_tokens", tokens}});
  EXPECT_EQ(tokenizer.encode("ab", true), (Ids{5, 2, 6, 6}));
  EXPECT_EQ(tokenizer.encode("ab", false), (Ids{2}));
  EXPECT_EQ(tokenizer.encode("", true), (Ids{5, 6, 6}));
  EXPECT_EQ(tokenizer.decode(Ids{5, 2, 6}, true), "ab");
  EXPECT_EQ(tokenizer.decode(Ids{5, 2, 99, -3, 6}, false), "<s> ab <e>");
}

TEST(Tokenizer, WhatIsNotKnownIsNamed) {
  const auto step = [](const char* kind, const Json& value) { return small({{kind, value}}); };
  expect_failure(step("normalizer", {{"type", "StripAccents"}}), "StripAccents");
  expect_failure(step("normalizer", {{"type", "Sequence"}, {"normalizers", Json::array({{{"type", "Nmt"}}})}}),
                 "normalizer[0]");
  expect_failure(step("normalizer", {{"type", "NFC"}, {"surprise", 3}}), "surprise");
  expect_failure(step("pre_tokenizer", {{"type", "BertPreTokenizer"}}), "BertPreTokenizer");
  expect_failure(step("pre_tokenizer",
                      {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Odd"}, {"invert", false}}),
                 "Odd");
  expect_failure(step("post_processor", {{"type", "RobertaProcessing"}}), "RobertaProcessing");
  expect_failure(step("decoder", {{"type", "CTC"}}), "CTC");
  expect_failure(small({{"model", {{"type", "Unigram"}}}}), "Unigram");
  expect_failure(small({{"model", {{"dropout", 0.1}}}}), "dropout");
  expect_failure(small({{"model", {{"new_option", true}}}}), "new_option");
  expect_failure(small({{"extra", 1}}), "extra");
  expect_failure(small({{"version", "2.0"}}), "version");
  expect_failure(
      step("pre_tokenizer",
           {{"type", "Split"}, {"pattern", {{"Regex", "\\b"}}}, {"behavior", "Isolated"}, {"invert", false}}),
      "\\b");
}

TEST(Tokenizer, ContradictionsAreFound) {
  expect_failure(small({{"model", {{"vocab", {{"a", 0}, {"b", 0}}}, {"merges", Json::array()}}}}),
                 "two tokens have the id 0");
  expect_failure(small({{"model", {{"merges", Json::array({{"a", "é"}})}}}}), "'aé', which is not in the vocabulary");
  expect_failure(small({{"model", {{"merges", Json::array({{"a", "q"}})}}}}), "'q', which is not in the vocabulary");
  expect_failure(small({{"model", {{"merges", {"a b c"}}}}}), "two tokens");
  expect_failure(small({{"model", {{"merges", Json::array({Json::array({"a"})})}}}}), "two tokens");
  expect_failure(small({{"model", {{"vocab", {{"a", -1}}}}}}), "out of range");
  expect_failure(small({{"model", {{"vocab", {{"a", 4000000000u}}}}}}), "out of range");
  expect_failure(small({{"model", {{"unk_token", "<unk>"}}}}), "<unk>");
  expect_failure(small({{"added_tokens", {added(9, "<s>")}}}), "expected 5, got 9");
  expect_failure(small({{"added_tokens", {added(7, "ab")}}}), "expected 2, got 7");
  expect_failure(small({{"added_tokens", {added(5, "<s>"), added(5, "<s>", {"lstrip"})}}}), "twice");
  expect_failure(Json::array(), "'{'");
  expect_failure(Json::object(), "'model'");
  Json no_vocabulary = small();
  no_vocabulary["model"].erase("vocab");
  expect_failure(no_vocabulary, "'vocab'");
}

TEST(Tokenizer, AFileCannotBlowUpTheMemory) {
  const Json grow = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100, 'a')}};
  expect_failure(small({{"normalizer", {{"type", "Sequence"}, {"normalizers", std::vector<Json>(20, grow)}}}}),
                 "grow without bound");
  expect_failure(small({{"decoder", {{"type", "Sequence"}, {"decoders", std::vector<Json>(20, grow)}}}}),
                 "grow without bound");
  const Json fuse = {{"type", "Fuse"}};
  expect_failure(small({{"decoder", {{"type", "Sequence"}, {"decoders", std::vector<Json>(100'000, fuse)}}}}),
                 "grow without bound");
  EXPECT_EQ(make({{"normalizer", {{"type", "Sequence"}, {"normalizers", std::vector<Json>(2, grow)}}}})
                .encode("a", false)
                .size(),
            10'000u);
}

TEST(Tokenizer, ATruncatedFileIsRefusedWhereverItEnds) {
  const std::string whole = small({{"added_tokens", {added(5, "<s>")}}, {"decoder", {{"type", "Fuse"}}}}).dump();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(Tokenizer::from_json(whole.substr(0, length), "test"), Failure) << length;
  }
}

TEST(Tokenizer, AFolderWithoutATokenizerIsAnError) {
  try {
    Tokenizer::load("/nowhere/at/all");
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("/nowhere/at/all"), std::string::npos);
  }
}

TEST(Tokenizer, TheConfigNamesSpecialTokens) {
  const Tokenizer tiny = Tokenizer::load(std::string(DOPPLER_TEST_DATA) + "/tokens/tiny");
  EXPECT_EQ(tiny.named().bos, tiny.token_id("<bos>"));
  EXPECT_EQ(tiny.named().eos, tiny.token_id("<eos>"));
  EXPECT_EQ(tiny.named().pad, tiny.token_id("<pad>"));
  EXPECT_EQ(tiny.named().unk, tiny.token_id("<unk>"));
  EXPECT_GE(tiny.named().bos, 0);
}

// Byte-level tokens: "Ã" and "©" are the two bytes of é.
Tokenizer byte_level() {
  return make(
      {{"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
       {"model", {{"vocab", {{"a", 0}, {"Ã", 1}, {"©", 2}, {"Ġ", 3}, {"ð", 4}}}, {"merges", Json::array()}}}});
}

TEST(StreamDecoder, ByteLevelTextWaitsForWholeCharacters) {
  StreamDecoder stream(byte_level(), false);
  EXPECT_EQ(stream.push(0), "a");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(2), "é");
  EXPECT_EQ(stream.push(3), " ");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(0), "\uFFFDa");  // the first byte is now known to be wrong
  EXPECT_EQ(stream.push(4), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(StreamDecoder, ARunOfBytesWaitsForItsEnd) {
  const Tokenizer tokenizer =
      make({{"decoder", parse_json(R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"},
               "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]})",
                                   "")},
            {"model", {{"vocab", {{"▁a", 0}, {"<0xC3>", 1}, {"<0xA9>", 2}, {"b", 3}}}, {"merges", Json::array()}}}});
  StreamDecoder stream(tokenizer, false);
  EXPECT_EQ(stream.push(0), " a");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(2), "");
  EXPECT_EQ(stream.push(3), "éb");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(2), "");
  EXPECT_EQ(stream.push(1), "");  // spoils the whole run
  EXPECT_EQ(stream.finish(), "\uFFFD\uFFFD\uFFFD");
}

TEST(MergesFromScores, BestTokensFirstAndInEveryWay) {
  Vocabulary vocabulary;
  for (const char* token : {"a", "b", "ab", "ba", "aba"}) vocabulary.add(token, vocabulary.id_end());
  const std::vector<Merge> merges = merges_from_scores(vocabulary, {-1, -2, -4, -3, -5});
  ASSERT_EQ(merges.size(), 4u);
  EXPECT_EQ(merges[0].result, 3);
  EXPECT_EQ(merges[1].result, 2);
  EXPECT_EQ(merges[2].left, 2);  // ab + a: the longer left part goes first
  EXPECT_EQ(merges[3].left, 0);  // a + ba
}

TEST(Tokenizer, LeavesATextThatNobodyWantsAnyMore) {
  const Json split = {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Isolated"}, {"invert", false}};
  std::string words;
  for (int i = 0; i < 1000; ++i) words += "ab ";
  for (const Tokenizer& tokenizer : {make(), make({{"pre_tokenizer", split}})}) {
    int asked = 0;
    EXPECT_EQ(tokenizer.encode(words, false, [&] { return ++asked < 0; }).size(), 2000u);
    EXPECT_GT(asked, 2);
    asked = 0;
    EXPECT_THROW(tokenizer.encode(words, false, [&] { return ++asked > 1; }), Failure);
    EXPECT_EQ(asked, 2);
  }
}

}  // namespace
}  // namespace doppler
