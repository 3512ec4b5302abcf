// What must hold for every text and every sequence of ids.
#include <gtest/gtest.h>

#include "base/files.h"
#include "tokenizer/tokenizer_support.h"
#include "tokenizer/unicode.h"

namespace doppler {
namespace {

using Ids = std::vector<int32_t>;

class TokenizerProperty : public ::testing::TestWithParam<std::string> {};

// What encoding and decoding make of a text, by each pipeline's rule.
std::string round_trip(const std::string& name, const Tokenizer& tokenizer, const std::string& bytes) {
  const std::string text = replace_invalid_utf8(bytes);
  std::string out;
  if (name == "gptoss" || name == "llama3_2") return text;  // bytes in, bytes out
  if (name == "qwen3") {                                    // composed, but never across an added token
    std::vector<std::string> tokens;
    for (int32_t id = 151643; id < tokenizer.vocab_size(); ++id) tokens.emplace_back(tokenizer.piece(id));
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
      size_t longest = 0;
      for (const std::string& token : tokens) {
        if (token.size() > longest && text.compare(at, token.size(), token) == 0) longest = token.size();
      }
      if (longest == 0) {
        ++at;
        continue;
      }
      out += normalize(text.substr(begin, at - begin), NormalForm::kNfc) + text.substr(at, longest);
      begin = at += longest;
    }
    return out + normalize(text.substr(begin), NormalForm::kNfc);
  }
  const std::string mark = "\xE2\x96\x81";  // stands for a space, and comes back as one
  for (size_t at = 0; at < text.size();) {
    if (text.compare(at, mark.size(), mark) == 0) {
      out += ' ';
      at += mark.size();
    } else {
      out += text[at++];
    }
  }
  return out;
}

TEST_P(TokenizerProperty, DecodingAnEncodedTextGivesItBackByThePipelinesRule) {
  DOPPLER_NEEDS_TOKENIZER(GetParam());
  const Tokenizer& tokenizer = testing::load_tokenizer(GetParam());
  testing::RandomText random(tokenizer, 17);
  for (int i = 0; i < 1500; ++i) {
    const std::string text = i % 2 ? random.valid(1 + random.below(40)) : random.any_bytes(1 + random.below(40));
    const Ids ids = tokenizer.encode(text, false);
    ASSERT_EQ(tokenizer.decode(ids, false), round_trip(GetParam(), tokenizer, text)) << ::testing::PrintToString(text);
    ASSERT_EQ(ids, tokenizer.encode(replace_invalid_utf8(text), false)) << ::testing::PrintToString(text);
    for (const int32_t id : ids) ASSERT_TRUE(tokenizer.has(id));
  }
}

TEST_P(TokenizerProperty, SpecialTokensCutRunningTextInTwo) {
  DOPPLER_NEEDS_TOKENIZER(GetParam());
  const Tokenizer& tokenizer = testing::load_tokenizer(GetParam());
  testing::RandomText random(tokenizer, 23);
  std::vector<int32_t> special;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.is_special(id)) special.push_back(id);
  }
  ASSERT_FALSE(special.empty());
  for (int i = 0; i < 300; ++i) {
    const std::string before = random.valid(random.below(12)) + " ", after = " " + random.valid(random.below(12));
    const int32_t id = special[random.below(static_cast<uint32_t>(special.size()))];
    Ids expected = tokenizer.encode(before, false);
    expected.push_back(id);
    const Ids rest = tokenizer.encode(after, false);
    expected.insert(expected.end(), rest.begin(), rest.end());
    ASSERT_EQ(tokenizer.encode(before + std::string(tokenizer.piece(id)) + after, false), expected);
  }
}

TEST_P(TokenizerProperty, StreamedTextIsTheWholeTextAndNeverHalfACharacter) {
  DOPPLER_NEEDS_TOKENIZER(GetParam());
  const Tokenizer& tokenizer = testing::load_tokenizer(GetParam());
  testing::RandomText random(tokenizer, 29);
  for (int i = 0; i < 3000; ++i) {
    Ids ids;
    for (uint32_t n = random.below(24); n > 0; --n) {
      // Low ids hold the bytes in every one of these vocabularies; some ids belong to no token.
      const auto size = static_cast<uint32_t>(tokenizer.vocab_size());
      ids.push_back(static_cast<int32_t>(random.below(3) == 0 ? random.below(600) : random.below(size + 20)) - 5);
    }
    for (const bool skip : {false, true}) {
      StreamDecoder stream(tokenizer, skip);
      std::string streamed;
      for (const int32_t id : ids) {
        const std::string part = stream.push(id);
        ASSERT_EQ(find_invalid_utf8(part), part.size());
        streamed += part;
      }
      const std::string rest = stream.finish();
      ASSERT_EQ(find_invalid_utf8(rest), rest.size());
      ASSERT_EQ(streamed + rest, tokenizer.decode(ids, skip)) << ::testing::PrintToString(ids);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerProperty, ::testing::ValuesIn(testing::tokenizer_names()));

// Vocabularies that come with scores instead of merges: published merges were made from scores, which were 0 for tokens
// set by hand and then fell from id to id.
class PublishedMerges : public ::testing::TestWithParam<std::string> {};

TEST_P(PublishedMerges, AreFoundAgainFromScores) {
  DOPPLER_NEEDS_TOKENIZER(GetParam());
  const std::filesystem::path file = testing::tokenizer_folder(GetParam()) / "tokenizer.json";
  const TokenizerSpec spec = read_tokenizer_json(read_text_file(file), file.string());
  std::vector<bool> by_hand(static_cast<size_t>(spec.vocabulary.id_end()) + 1);
  for (const AddedToken& token : spec.added) by_hand[static_cast<size_t>(token.id)] = true;
  int32_t first = spec.vocabulary.id_end();
  for (const Merge& merge : spec.merges) {
    if (!by_hand[static_cast<size_t>(merge.result)]) first = std::min(first, merge.result);
  }
  std::vector<float> scores(static_cast<size_t>(spec.vocabulary.id_end()));
  for (size_t id = 0; id < scores.size(); ++id)
    scores[id] = by_hand[id] ? 0 : static_cast<float>(first) - static_cast<float>(id);
  const std::vector<Merge> merges = merges_from_scores(spec.vocabulary, scores);
  ASSERT_EQ(merges.size(), spec.merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    ASSERT_EQ(merges[rank].left, spec.merges[rank].left) << rank;
    ASSERT_EQ(merges[rank].right, spec.merges[rank].right) << rank;
    ASSERT_EQ(merges[rank].result, spec.merges[rank].result) << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedMerges, ::testing::Values("gemma2", "gemma3"));

}  // namespace
}  // namespace doppler
