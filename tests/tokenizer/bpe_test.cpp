#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "base/utf8.h"

namespace doppler {
namespace {

struct Made {
  Vocabulary vocabulary;
  std::vector<Merge> merges;
};

// The letters of `alphabet` and random merges of what there is already.
Made make(std::mt19937& random, const std::string& alphabet, size_t merges) {
  Made made;
  std::vector<std::string> tokens;
  const auto id_of = [&](const std::string& token) {
    int32_t id = made.vocabulary.find(token);
    if (id < 0) {
      id = made.vocabulary.id_end();
      made.vocabulary.add(token, id);
      tokens.push_back(token);
    }
    return id;
  };
  uint32_t length = 0;
  for (size_t at = 0; at < alphabet.size(); at += length) {
    read_valid_utf8(alphabet, at, length);
    id_of(alphabet.substr(at, length));
  }
  for (size_t i = 0; i < merges; ++i) {
    const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
    if (left.size() + right.size() > 12) continue;
    made.merges.push_back({id_of(left), id_of(right), id_of(left + right)});
  }
  std::shuffle(made.merges.begin(), made.merges.end(), random);  // a token may be needed before it can be made
  return made;
}

// The definition, in the plainest way: the lowest rank, the leftmost of equals, again and again over the whole text.
std::vector<int32_t> plain(const Made& made, const std::string& text) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t i = 0; i < made.merges.size(); ++i) ranks[{made.merges[i].left, made.merges[i].right}] = i;
  std::vector<int32_t> ids;
  uint32_t length = 0;
  for (size_t at = 0; at < text.size(); at += length) {
    read_valid_utf8(text, at, length);
    const int32_t id = made.vocabulary.find(text.substr(at, length));
    if (id >= 0) ids.push_back(id);
  }
  for (;;) {
    size_t best = made.merges.size(), where = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto it = ranks.find({ids[i], ids[i + 1]});
      if (it != ranks.end() && it->second < best) {
        best = it->second;
        where = i;
      }
    }
    if (best == made.merges.size()) return ids;
    ids[where] = made.merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

TEST(Bpe, MergesAsTheDefinitionSaysInShortAndLongTexts) {
  std::mt19937 random(11);
  const std::string alphabet = "abcé▁";
  const std::string letters[] = {"a", "b", "c", "é", "▁", "z"};  // z has no token
  for (int round = 0; round < 120; ++round) {
    Made made = make(random, alphabet, random() % 60);
    const Bpe bpe(made.vocabulary, made.merges, {}, "test");
    BpeScratch scratch;
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (unsigned n = random() % (i % 5 == 0 ? 400 : 30); n > 0; --n)
        text += letters[random() % (i % 3 == 0 ? 2 : 6)];
      std::vector<int32_t> ids;
      bpe.encode(text, ids, scratch);
      ASSERT_EQ(ids, plain(made, text)) << text;
    }
  }
}

Vocabulary vocabulary(std::initializer_list<const char*> tokens) {
  Vocabulary made;
  for (const char* token : tokens) made.add(token, made.id_end());
  return made;
}

std::vector<int32_t> encode(const Bpe& bpe, const std::string& text) {
  BpeScratch scratch;
  std::vector<int32_t> ids;
  bpe.encode(text, ids, scratch);
  return ids;
}

TEST(Bpe, UnknownCharactersBecomeUnknownTokensOrBytes) {
  const Vocabulary tokens = vocabulary({"<unk>", "a", "<0x62>", "b?"});
  BpeOptions options;
  EXPECT_EQ(encode(Bpe(tokens, {}, options, ""), "axxa"), (std::vector<int32_t>{1, 1}));
  options.unk_token = "<unk>";
  EXPECT_EQ(encode(Bpe(tokens, {}, options, ""), "axxa"), (std::vector<int32_t>{1, 0, 0, 1}));
  options.fuse_unk = true;
  EXPECT_EQ(encode(Bpe(tokens, {}, options, ""), "axxa"), (std::vector<int32_t>{1, 0, 1}));
  options.byte_fallback = true;
  EXPECT_EQ(encode(Bpe(tokens, {}, options, ""), "aba"), (std::vector<int32_t>{1, 2, 1}));
  // Unknowns wait behind bytes, as they do with Hugging Face.
  EXPECT_EQ(encode(Bpe(tokens, {}, options, ""), "ccbca"), (std::vector<int32_t>{2, 0, 1}));
  options.unk_token = "<missing>";
  EXPECT_THROW(Bpe(tokens, {}, options, "test"), Failure);
}

TEST(Bpe, AWholePieceCanGoBeforeTheMerges) {
  const Vocabulary tokens = vocabulary({"a", "b", "c", "ab", "abc"});
  BpeOptions options;
  EXPECT_EQ(encode(Bpe(tokens, {{0, 1, 3}}, options, ""), "abc"), (std::vector<int32_t>{3, 2}));
  options.ignore_merges = true;
  EXPECT_EQ(encode(Bpe(tokens, {{0, 1, 3}}, options, ""), "abc"), (std::vector<int32_t>{4}));
}

TEST(Bpe, RefusesMergesOfTokensThatAreNotThere) {
  EXPECT_THROW(Bpe(vocabulary({"a", "b"}), {{0, 1, 2}}, {}, "test"), Failure);
  EXPECT_THROW(Bpe(vocabulary({"a", "b"}), {{-1, 1, 0}}, {}, "test"), Failure);
}

TEST(Vocabulary, KeepsTokensAndIdsApart) {
  Vocabulary tokens;
  EXPECT_EQ(tokens.add("a", 7), Vocabulary::Added::kYes);
  EXPECT_EQ(tokens.add("a", 8), Vocabulary::Added::kTokenTaken);
  EXPECT_EQ(tokens.add("b", 7), Vocabulary::Added::kIdTaken);
  EXPECT_EQ(tokens.add("", 3), Vocabulary::Added::kYes);
  EXPECT_EQ(tokens.find("a"), 7);
  EXPECT_EQ(tokens.find("b"), -1);
  EXPECT_EQ(tokens.find(""), 3);
  EXPECT_TRUE(tokens.has(3));
  EXPECT_FALSE(tokens.has(4));
  EXPECT_FALSE(tokens.has(-1));
  EXPECT_FALSE(tokens.has(1'000'000));
  EXPECT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens.id_end(), 8);
  for (int32_t i = 10; i < 50'000; ++i) tokens.add("token " + std::to_string(i), i);
  for (int32_t i = 10; i < 50'000; ++i) {
    ASSERT_EQ(tokens.find("token " + std::to_string(i)), i);
    ASSERT_EQ(tokens.token(i), "token " + std::to_string(i));
  }
}

// Two words of 64 bits whose highest bits are flipped, the second's as the first one's flip comes out of a product's
// lower half: under such a hash 2^n texts of n pairs are all the same, whatever it starts with.
TEST(HashKey, KeepsApartTextsThatWereMadeToMeet) {
  std::set<uint32_t> hashes;
  for (uint32_t flips = 0; flips < 4096; ++flips) {
    std::string text(12 * 16, 'a');
    for (size_t pair = 0; pair < 12; ++pair) {
      if (!(flips >> pair & 1)) continue;
      for (const size_t byte : {7u, 11u, 15u}) text[16 * pair + byte] ^= static_cast<char>(0x80);
    }
    hashes.insert(Vocabulary::hash_of(text));
  }
  EXPECT_GT(hashes.size(), 4000u);  // of 2^32 places, chance alone makes two meet once in 500 times
}

// Pairs of ids that meet in one place of a table of 2^14 under a product with a known factor.
TEST(HashKey, KeepsApartPairsThatWereMadeToMeet) {
  std::set<uint64_t> places;
  size_t pairs = 0;
  for (uint64_t left = 0; left < 4096 && pairs < 500; ++left) {
    for (uint64_t right = 0; right < 4096; ++right) {
      const uint64_t product = (left << 32 | right) * 0xD6E8FEB86659FD93u;
      if ((product ^ product >> 32) % (1 << 14) != 0) continue;
      places.insert(HashKey::of_process()(left << 32 | right) % (1 << 14));
      ++pairs;
    }
  }
  ASSERT_GE(pairs, 500u);
  EXPECT_GT(places.size(), 400u);
}

TEST(HashKeyDeathTest, IsAnotherInEveryProcess) {
  // The child is this program started anew, with the parent's environment.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string hash = std::to_string(HashKey::of_process()("text"));
  setenv("DOPPLER_TEST_HASH", hash.c_str(), 0);
  EXPECT_EXIT(std::_Exit(std::getenv("DOPPLER_TEST_HASH") == hash ? 1 : 0), ::testing::ExitedWithCode(0), "");
  unsetenv("DOPPLER_TEST_HASH");
}

TEST(MergesFromScores, TheBestTokenAndThenTheLongestPartsComeFirst) {
  const Vocabulary tokens = vocabulary({"a", "aa", "aaa", "aaaa", "b", "ab"});
  const std::vector<Merge> merges = merges_from_scores(tokens, {0, -2, -1, -1, 0, -3});
  std::vector<std::string> made;
  for (const Merge& merge : merges) {
    EXPECT_EQ(std::string(tokens.token(merge.left)) + std::string(tokens.token(merge.right)),
              tokens.token(merge.result));
    made.push_back(std::string(tokens.token(merge.left)) + "+" + std::string(tokens.token(merge.right)));
  }
  EXPECT_EQ(made, (std::vector<std::string>{"aaa+a", "aa+aa", "aa+a", "a+aaa", "a+aa", "a+a", "a+b"}));
}

}  // namespace
}  // namespace doppler
