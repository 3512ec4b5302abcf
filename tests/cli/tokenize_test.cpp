// The verb `tokenize`, as a program: what goes in by standard input and what comes out.
#include "base/files.h"
#include "base/json.h"
#include "support/program.h"

namespace doppler {
namespace {

const std::string kTiny = std::string(DOPPLER_TEST_DATA) + "/tokens/tiny";

Outcome doppler_tokenize(const std::string& arguments, const std::string& input = "") {
  return testing::call("tokenize " + arguments, input);
}

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(parse_json(text.substr(at, end - at), "answer"));
    at = end + 1;
  }
  return lines;
}

TEST(TokenizeVerb, AnswersEveryLineWithTheReference) {
  const std::string file = std::string(DOPPLER_TEST_DATA) + "/tokens/tiny.json";
  const Json reference = parse_json(read_text_file(file), file);
  std::string input;
  std::vector<Json> expected;
  for (const Json& item : require_array(reference, "cases", file)) {
    input += Json{{"text", item["text"]}}.dump() + "\n";
    expected.push_back({{"ids", item["ids"]}, {"with_special", item["with_special"]}, {"decoded", item["decoded"]}});
  }
  for (const Json& item : require_array(reference, "chats", file)) {
    Json request = item;
    request.erase("text");
    input += request.dump() + "\n";
    expected.push_back({{"text", item["text"]}});
  }
  const Outcome answer = doppler_tokenize("'" + kTiny + "' --jsonl", input);
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(lines_of(answer.out), expected);
}

TEST(TokenizeVerb, PrintsIdsAndPiecesWithoutColourWhereThereIsNoTerminal) {
  const Outcome plain = doppler_tokenize("'" + kTiny + "' 'Once upon'");
  EXPECT_EQ(plain.code, 0);
  EXPECT_EQ(plain.out.find('\033'), std::string::npos);
  EXPECT_NE(plain.out.find("3 tokens"), std::string::npos) << plain.out;
  EXPECT_NE(plain.out.find("<bos>"), std::string::npos);
  const Outcome json = doppler_tokenize("'" + kTiny + "' 'Once upon' --json");
  const Json object = parse_json(json.out, "answer");
  EXPECT_EQ(object["pieces"], Json({"<bos>", "Once", "▁upon"}));
  EXPECT_EQ(object["ids"].size(), 2u);
  EXPECT_EQ(object["decoded"], "Once upon");
}

TEST(TokenizeVerb, RendersAConversation) {
  const Outcome answer = doppler_tokenize("'" + kTiny + "' --chat - --json", R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_EQ(parse_json(answer.out, "answer")["text"],
            "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n");
}

TEST(TokenizeVerb, FailsWithAMeaning) {
  EXPECT_EQ(doppler_tokenize("'" + kTiny + "'").code, 2);               // nothing to tokenize
  EXPECT_EQ(doppler_tokenize("/nowhere text").code, 3);                 // no such folder
  EXPECT_EQ(doppler_tokenize("'" + kTiny + "' --jsonl", "{").code, 4);  // not JSON
  EXPECT_EQ(doppler_tokenize("'" + kTiny + "' --jsonl", "{\"nothing\": 1}").code, 4);
  EXPECT_EQ(doppler_tokenize("'" + kTiny + "' text --jsonl").code, 2);
}

}  // namespace
}  // namespace doppler
