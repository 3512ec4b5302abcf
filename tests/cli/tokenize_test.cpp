// The verb `tokenize`, as a program: what goes in by standard input and what comes out.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/files.h"
#include "base/json.h"

namespace doppler {
namespace {

const std::string kTiny = std::string(DOPPLER_TEST_DATA) + "/tokens/tiny";

struct Answer {
  std::string text;
  int code = -1;
};

Answer doppler_tokenize(const std::string& arguments, const std::string& input = "") {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("doppler_tokenize_{}.txt", ::getpid());
  write_file_whole(file, input);
  const std::string command =
      fmt::format("'{}/doppler' tokenize {} < '{}' 2>&1", DOPPLER_BINARY_DIR, arguments, file.string());
  Answer answer;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return answer;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) answer.text.append(buffer, n);
  const int status = ::pclose(pipe);
  answer.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::filesystem::remove(file);
  return answer;
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
  const Answer answer = doppler_tokenize("'" + kTiny + "' --jsonl", input);
  EXPECT_EQ(answer.code, 0) << answer.text;
  EXPECT_EQ(lines_of(answer.text), expected);
}

TEST(TokenizeVerb, PrintsIdsAndPiecesWithoutColourWhereThereIsNoTerminal) {
  const Answer plain = doppler_tokenize("'" + kTiny + "' 'Once upon'");
  EXPECT_EQ(plain.code, 0);
  EXPECT_EQ(plain.text.find('\033'), std::string::npos);
  EXPECT_NE(plain.text.find("3 tokens"), std::string::npos) << plain.text;
  EXPECT_NE(plain.text.find("<bos>"), std::string::npos);
  const Answer json = doppler_tokenize("'" + kTiny + "' 'Once upon' --json");
  const Json object = parse_json(json.text, "answer");
  EXPECT_EQ(object["pieces"], Json({"<bos>", "Once", "▁upon"}));
  EXPECT_EQ(object["ids"].size(), 2u);
  EXPECT_EQ(object["decoded"], "Once upon");
}

TEST(TokenizeVerb, RendersAConversation) {
  const Answer answer = doppler_tokenize("'" + kTiny + "' --chat - --json", R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(answer.code, 0) << answer.text;
  EXPECT_EQ(parse_json(answer.text, "answer")["text"],
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
