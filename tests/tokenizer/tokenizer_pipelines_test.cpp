// Seventy small tokenizers put together at random from every step we know, with what Hugging Face's tokenizers made of
// random texts and ids.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace doppler {
namespace {

std::vector<int32_t> ids_of(const Json& json) { return json.get<std::vector<int32_t>>(); }

TEST(TokenizerPipelines, EveryCombinationOfStepsActsAsInHuggingFace) {
  const std::string file = std::string(DOPPLER_TEST_DATA) + "/tokens/pipelines.json";
  const Json data = parse_json(read_text_file(file), file);
  size_t number = 0;
  for (const Json& item : require_array(data, "cases", file)) {
    const std::string where = "case " + std::to_string(number++);
    const Json& json = require_object(item, "tokenizer", where);
    const Tokenizer tokenizer = Tokenizer::from_json(json.dump(), where);
    for (const Json& text : require_array(item, "texts", where)) {
      const std::string input = require_string(text, "text", where);
      EXPECT_EQ(tokenizer.encode(input, false), ids_of(require_array(text, "ids", where))) << where << ": " << input;
      EXPECT_EQ(tokenizer.encode(input, true), ids_of(require_array(text, "with_special", where)))
          << where << ": " << input;
    }
    for (const Json& sequence : require_array(item, "ids", where)) {
      const std::vector<int32_t> ids = ids_of(require_array(sequence, "ids", where));
      EXPECT_EQ(tokenizer.decode(ids, false), require_string(sequence, "decoded", where)) << where;
      EXPECT_EQ(tokenizer.decode(ids, true), require_string(sequence, "skipped", where)) << where;
      StreamDecoder stream(tokenizer, false);
      std::string streamed;
      for (const int32_t id : ids) streamed += stream.push(id);
      EXPECT_EQ(streamed + stream.finish(), require_string(sequence, "decoded", where)) << where;
    }
  }
  EXPECT_EQ(number, 70u);
}

}  // namespace
}  // namespace doppler
