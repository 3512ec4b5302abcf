// Every string of tests/data/tokens, whose ids and texts were made by Hugging Face's tokenizers.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tokenizer/tokenizer_support.h"

namespace doppler {
namespace {

class TokenizerReference : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenizerReference, IdsAndTextsAreThoseOfHuggingFace) {
  DOPPLER_NEEDS_TOKENIZER(GetParam());
  const Tokenizer& tokenizer = testing::load_tokenizer(GetParam());
  const std::string file = std::string(DOPPLER_TEST_DATA) + "/tokens/" + GetParam() + ".json";
  const Json reference = parse_json(read_text_file(file), file);
  const Json& cases = require_array(reference, "cases", file);
  ASSERT_GT(cases.size(), 200u);
  for (const Json& item : cases) {
    const std::string text = require_string(item, "text", file);
    const auto ids = require_array(item, "ids", file).get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text, false), ids) << text;
    EXPECT_EQ(tokenizer.encode(text, true), require_array(item, "with_special", file).get<std::vector<int32_t>>())
        << text;
    EXPECT_EQ(tokenizer.decode(ids, false), require_string(item, "decoded", file)) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerReference, ::testing::ValuesIn(testing::tokenizer_names()));

}  // namespace
}  // namespace doppler
