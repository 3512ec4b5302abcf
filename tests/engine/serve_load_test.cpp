// What `bench serve` makes of a streamed answer, and of many: its definitions, with times that are given.
#include "bench/serve_load.h"

#include <gmock/gmock.h>

#include <sstream>

#include "base/files.h"
#include "support/json_schema.h"

namespace doppler {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

std::string chat(const std::string& delta, const std::string& finish = "null") {
  return "data: {\"choices\":[{\"index\":0,\"delta\":" + delta + ",\"finish_reason\":" + finish + "}]}\n\n";
}

TEST(StreamReader, AChunkWithoutTextIsNoToken) {
  StreamReader reader;
  reader.take(chat(R"({"role":"assistant","content":""})"), 0.1);
  reader.take(": ping\n\n", 0.2);
  reader.take(chat(R"({"content":"Once"})"), 0.5);
  reader.take(chat(R"({"content":" upon"})"), 0.7);
  reader.take(chat(R"({"reasoning_content":"hm"})"), 1.0);
  reader.take(chat("{}", "\"length\""), 1.25);
  EXPECT_TRUE(reader.finished);
  reader.take(
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,"
      "\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n",
      2);
  reader.take("data: [DONE]\n\n", 3);
  EXPECT_EQ(reader.failure, "");
  EXPECT_DOUBLE_EQ(reader.first_s, 0.5);
  EXPECT_THAT(reader.gaps_s, ElementsAre(DoubleNear(0.2, 1e-9), DoubleNear(0.3, 1e-9)));
  EXPECT_DOUBLE_EQ(reader.last_s, 1.25);
  EXPECT_EQ(reader.chunks, 3);
  EXPECT_EQ(reader.prompt_tokens, 9);
  EXPECT_EQ(reader.tokens, 4);
  EXPECT_EQ(reader.cached_tokens, 8);
}

TEST(StreamReader, LinesMayComeInPiecesAndTogether) {
  StreamReader reader;
  reader.take("data: {\"choices\":[{\"text\":\"a", 1);
  reader.take("\"}]}\r\n\r\ndata:{\"choices\":[{\"text\":\"b\"}]}\r\n", 2);
  EXPECT_FALSE(reader.finished);
  reader.take("\r\ndata: [DONE]\r\n", 3);
  EXPECT_EQ(reader.chunks, 2);
  EXPECT_DOUBLE_EQ(reader.first_s, 2);
  EXPECT_THAT(reader.gaps_s, ElementsAre(0));
  EXPECT_TRUE(reader.finished);
  EXPECT_EQ(reader.tokens, -1);
}

TEST(StreamReader, KeepsWhatWentWrong) {
  StreamReader reader;
  reader.take("data: {\"error\":{\"message\":\"no memory\"}}\n", 1);
  EXPECT_EQ(reader.failure, "error in the stream");
  EXPECT_EQ(reader.detail, "no memory");
  StreamReader other;
  other.take("data: <html>\n", 1);
  EXPECT_EQ(other.failure, "no JSON");
  EXPECT_EQ(other.detail, "<html>");
}

// Two good requests, one that is slow, one of a single token, and failures.
ServeResult result() {
  ServeResult r;
  r.url = "http://127.0.0.1:1";
  r.workload.model = "m";
  r.workload.requests = 7;
  r.duration_s = 4;
  r.samples = {{.ttft_s = 0.1, .e2e_s = 0.5, .gaps_s = {0.1, 0.3}, .prompt_tokens = 10, .tokens = 5},
               {.ttft_s = 0.2, .e2e_s = 0.6, .gaps_s = {0.2, 0.2}, .prompt_tokens = 10, .tokens = 3},
               {.ttft_s = 0.9, .e2e_s = 1.9, .gaps_s = {0.5, 0.5}, .prompt_tokens = 10, .tokens = 3},
               {.ttft_s = 0.2, .e2e_s = 0.2, .prompt_tokens = 10, .tokens = 1, .cached_tokens = 8},
               {.failure = "timeout", .detail = "first"},
               {.failure = "HTTP 429", .detail = "full"},
               {.failure = "HTTP 429", .detail = "still full"}};
  return r;
}

TEST(ServeResult, DefinesItsFiguresAsVllmDoes) {
  ServeResult r = result();
  r.workload.slo_ttft_ms = 200;  // which two requests need to the last bit
  r.workload.slo_tpot_ms = 150;  // 100, 200, 500, and none of one token
  const Json json = r.to_json();
  EXPECT_EQ(json["completed"], 4);
  EXPECT_EQ(json["failed"], 3);
  EXPECT_EQ(json["total_output_tokens"], 12);
  EXPECT_EQ(json["total_cached_tokens"], 8);
  EXPECT_DOUBLE_EQ(json["request_throughput"].get<double>(), 1);
  EXPECT_DOUBLE_EQ(json["output_throughput"].get<double>(), 3);
  EXPECT_DOUBLE_EQ(json["total_token_throughput"].get<double>(), 13);
  EXPECT_DOUBLE_EQ(json["request_goodput"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(json["ttft_ms"]["mean"].get<double>(), 350);
  EXPECT_DOUBLE_EQ(json["ttft_ms"]["p50"].get<double>(), 200);
  EXPECT_NEAR(json["ttft_ms"]["p90"].get<double>(), 200 + 0.7 * 700, 1e-9);
  EXPECT_NEAR(json["ttft_ms"]["p95"].get<double>(), 200 + 0.85 * 700, 1e-9);
  // Per request, not per gap: 0.4 s over four tokens, 0.4 over two, 1 over two; the one of one token has none.
  EXPECT_EQ(json["tpot_ms"]["count"], 3);
  EXPECT_NEAR(json["tpot_ms"]["mean"].get<double>(), (100. + 200 + 500) / 3, 1e-9);
  EXPECT_EQ(json["itl_ms"]["count"], 6);
  EXPECT_NEAR(json["itl_ms"]["mean"].get<double>(), 300, 1e-9);
  EXPECT_NEAR(json["e2e_ms"]["p50"].get<double>(), 550, 1e-9);
}

TEST(ServeResult, WithoutBoundsThereIsNoGoodput) {
  EXPECT_TRUE(result().to_json()["request_goodput"].is_null());
  EXPECT_EQ(result().to_table().find("goodput"), std::string::npos);
}

TEST(ServeResult, CountsFailuresByKind) {
  const Json json = result().to_json();
  ASSERT_EQ(json["failures"].size(), 2u);
  EXPECT_EQ(json["failures"][size_t{0}]["kind"], "HTTP 429");
  EXPECT_EQ(json["failures"][size_t{0}]["count"], 2);
  EXPECT_EQ(json["failures"][size_t{0}]["example"], "full");
  const std::string table = result().to_table();
  EXPECT_NE(table.find("2 × HTTP 429: full"), std::string::npos) << table;
  EXPECT_NE(table.find("1 × timeout: first"), std::string::npos) << table;
}

TEST(ServeResult, IsWhatTheSchemaSays) {
  const std::string path = DOPPLER_SOURCE_DIR "/bench/serve.schema.json";
  const testing::JsonSchema schema(parse_json(read_text_file(path), path));
  ServeResult open = result();
  open.workload.rate = 2;
  open.workload.slo_ttft_ms = 1;
  for (const ServeResult& r : {result(), open, ServeResult{}}) {
    for (const std::string& fault : schema.faults(r.to_json())) ADD_FAILURE() << fault;
  }
}

TEST(ServeResult, DrawsTheTimes) {
  const std::string svg = result().to_svg();
  for (const char* words : {"time to first token", "percentile", "chunks a second", "requests in flight"}) {
    EXPECT_NE(svg.find(words), std::string::npos) << words;
  }
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// How many words two prompts have in common at their beginning.
size_t common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  size_t n = 0;
  while (n < std::min(a.size(), b.size()) && a[n] == b[n]) ++n;
  return n;
}

TEST(LoadPrompt, SharesAsMuchAsWasAskedFor) {
  ServeWorkload w;
  for (const double share : {0.0, 0.5, 0.9}) {
    w.shared_prefix = share;
    const auto first = words_of(load_prompt(w, 0, 100)), second = words_of(load_prompt(w, 1, 100));
    ASSERT_EQ(first.size(), 100u);
    // Two random words are the same once in 64 times, so that five more are hardly ever.
    EXPECT_GE(common(first, second), static_cast<size_t>(100 * share));
    EXPECT_LT(common(first, second), static_cast<size_t>(100 * share) + 5);
  }
  w.shared_prefix = 1;
  EXPECT_EQ(load_prompt(w, 0, 100), load_prompt(w, 1, 100));
  // The beginning of a longer one.
  EXPECT_EQ(common(words_of(load_prompt(w, 0, 100)), words_of(load_prompt(w, 1, 40))), 40u);
}

TEST(LoadPrompt, IsTheSameForTheSameSeed) {
  ServeWorkload w, other;
  other.seed = 1;
  EXPECT_EQ(load_prompt(w, 3, 50), load_prompt(w, 3, 50));
  EXPECT_NE(load_prompt(w, 3, 50), load_prompt(other, 3, 50));
}

}  // namespace
}  // namespace doppler
