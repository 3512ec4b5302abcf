// The verb `embed`, as a program.
#include <cmath>

#include "base/files.h"
#include "base/json.h"
#include "support/program.h"

namespace doppler {
namespace {

const std::string kModel = DOPPLER_TEST_DATA "/models/embeddinggemma-a";

std::vector<Json> embedded(const std::string& arguments, const std::string& input = "") {
  const testing::Outcome outcome = testing::call("embed '" + kModel + "' --backend cpu " + arguments, input);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::vector<Json> lines;
  for (size_t at = 0; at < outcome.out.size();) {
    const size_t end = std::min(outcome.out.find('\n', at), outcome.out.size());
    lines.push_back(parse_json(outcome.out.substr(at, end - at), "answer"));
    at = end + 1;
  }
  return lines;
}

TEST(EmbedVerb, PrintsALineForEachTextWhereverItComesFrom) {
  const std::vector<Json> given = embedded("'a cat' 'two dogs'");
  ASSERT_EQ(given.size(), 2u);
  EXPECT_EQ(given[0]["index"], 0);
  EXPECT_EQ(given[0]["tokens"], 7) << "five letters between <bos> and <eos>";
  EXPECT_EQ(given[1]["tokens"], 10);
  double square = 0;
  for (const Json& x : given[0]["embedding"]) square += x.get<double>() * x.get<double>();
  EXPECT_NEAR(square, 1, 1e-6);
  EXPECT_EQ(embedded("", "a cat\n\ntwo dogs\n"), given);
  std::vector<Json> lines = embedded("--jsonl -", "{\"text\": \"a cat\", \"id\": 7}\n\"two dogs\"\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["id"], 7);
  lines[0].erase("id");
  EXPECT_EQ(lines, given);
}

TEST(EmbedVerb, CutsVectorsAndTextsWhereItIsTold) {
  EXPECT_EQ(embedded("cat --dimensions 32")[0]["embedding"].size(), 32u);
  EXPECT_EQ(embedded("cat --prompt-name document")[0]["embedding"],
            embedded("'title: none | text: cat'")[0]["embedding"]);
  EXPECT_EQ(embedded("'a brave cat' --context 8 --truncate")[0]["embedding"], embedded("'a brav'")[0]["embedding"]);
}

TEST(EmbedVerb, SaysWhatItRefuses) {
  testing::expect_outcome("embed '" + kModel + "' 'a brave cat' --context 8", 2, "at most 8 tokens, got 13");
  testing::expect_outcome("embed '" + kModel + "' cat --dimensions 97", 2, "1 to 96");
  testing::expect_outcome("embed '" + kModel + "' cat --prompt-name quarry", 2, "one of document, query");
  testing::expect_outcome("embed '" + kModel + "' cat --jsonl -", 2, "texts come from one place");
  testing::expect_outcome("embed models/tiny cat --dimensions 64", 2, "not made for vectors that are cut");
  testing::expect_outcome("run '" + kModel + "' 'a cat'", 5, "makes vectors of texts, and no text");
  testing::expect_outcome("perplexity '" + kModel + "' --text README.md", 5, "makes vectors of texts, and no text");
}

TEST(EmbedVerb, AModelOfTextsHasVectorsToo) {
  const testing::Outcome outcome = testing::call("embed models/tiny 'The cat sat on the mat.' --backend cpu");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(parse_json(outcome.out, "answer")["embedding"].size(), 512u);
}

}  // namespace
}  // namespace doppler
