#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <regex>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "bench/serve_load.h"
#include "cli/verbs.h"
#include "hub/http.h"

namespace doppler {
namespace {

constexpr int kRequests = 100;  // where neither --requests nor --seconds is given

struct BenchServeArguments {
  std::string url, prompt_tokens = "128", tokens = "128", body, api_key, output, plot;
  ServeWorkload workload;
  LoadTarget target;
  bool json = false;
  Option clients;
};

// "128" or "64-256".
LengthRange length_range(const std::string& text, const char* option) {
  static const std::regex form("([0-9]{1,7})(-([0-9]{1,7}))?");
  std::smatch match;
  LengthRange range;
  if (std::regex_match(text, match, form)) {
    range.least = std::stoi(match[1]);
    range.most = match[3].matched ? std::stoi(match[3]) : range.least;
  }
  if (range.least < 1 || range.most < range.least) {
    fail({.code = ErrorCode::kUsage,
          .what = "this is no number of tokens",
          .where = option,
          .expected = "128, or 64-256 for anything between",
          .got = text});
  }
  return range;
}

LoadTarget target_of(const BenchServeArguments& a) {
  const Url url = parse_url(a.url);
  if (url.scheme != "http") {
    fail({.code = ErrorCode::kUsage,
          .what = "the load generator speaks no TLS",
          .where = a.url,
          .todo = "Measure the server itself, behind its proxy: http://127.0.0.1:PORT"});
  }
  LoadTarget target = a.target;
  target.host = url.host;
  target.port = url.port;
  target.base = url.path;
  while (target.base.ends_with('/')) target.base.pop_back();
  if (target.base.ends_with("/v1")) target.base.resize(target.base.size() - 3);
  const char* key = std::getenv("DOPPLER_API_KEY");
  target.api_key = a.api_key.empty() && key ? key : a.api_key;
  return target;
}

void run_bench_serve(const BenchServeArguments& a) {
  const auto progress = [](std::string_view line) {
    if (info_enabled()) fmt::print(stderr, "\r\033[K{}", line);
  };
  ServeWorkload workload = a.workload;
  workload.prompt_tokens = length_range(a.prompt_tokens, "--prompt-tokens");
  workload.tokens = length_range(a.tokens, "--tokens");
  if (!a.body.empty()) workload.body = parse_json(a.body, "--body");
  if (!workload.body.is_object()) {
    fail({.code = ErrorCode::kUsage, .what = "this is no JSON object", .where = "--body", .got = a.body});
  }
  if (workload.rate > 0 && a.clients.given()) {
    fail({.code = ErrorCode::kUsage,
          .what = "--rate and --clients do not go together: requests arrive by the clock, or when an answer has come",
          .where = "bench serve"});
  }
  if (workload.requests == 0 && workload.seconds == 0) workload.requests = kRequests;
  const ServeResult result = bench_serve(target_of(a), workload, progress);
  const Json json = result.to_json();
  if (!a.output.empty()) write_file_whole(a.output, json.dump(1) + "\n");
  if (!a.plot.empty() && result.any()) write_file_whole(a.plot, result.to_svg());
  fmt::print("{}", a.json ? json.dump(1) + "\n" : result.to_table());
  if (!result.any()) throw CheckFailed{};
}

}  // namespace

void add_bench_serve(Verb bench) {
  auto a = std::make_shared<BenchServeArguments>();
  Verb serve = bench.add_verb("serve", "Load on a server of OpenAI's API, ours or another: the times that clients see");
  serve.add_option("url", a->url, "Its address: http://127.0.0.1:8080, with or without /v1").required();
  serve.add_flag("--remote", a->target.remote, "Let the address be another machine's: this is a load generator");
  serve.add_option("--endpoint", a->workload.endpoint, "chat or completions")
      .one_of({"chat", "completions"})
      .show_default();
  serve.add_option("--model", a->workload.model, "Which model to ask (default: the first that the server names)");
  serve.add_option("--api-key", a->api_key, "Key to ask with (default: the variable DOPPLER_API_KEY, if it is set)");
  a->clients = serve
                   .add_option("--clients", a->workload.clients,
                               "Closed loop: so many, each of which asks again when its answer has come")
                   .range(1, 65536)
                   .show_default();
  serve
      .add_option("--rate", a->workload.rate,
                  "Open loop: so many requests a second in place of --clients, with Poisson arrivals")
      .positive();
  serve
      .add_option("--requests", a->workload.requests,
                  fmt::format("Requests to send (default: {}, unless --seconds is given)", kRequests))
      .positive();
  serve.add_option("--seconds", a->workload.seconds, "Send no more after so long; what runs may end").positive();
  serve.add_option("--prompt-tokens", a->prompt_tokens, "Tokens of a prompt: 128, or 64-256 for any number between")
      .show_default();
  serve.add_option("--tokens", a->tokens, "Tokens of an answer: 128, or 64-256 for any number between").show_default();
  serve
      .add_option("--shared-prefix", a->workload.shared_prefix,
                  "Part of each prompt, from its beginning, in which all are the same: 0 to 1")
      .check([](const std::string& text) -> std::string {
        const double share = std::atof(text.c_str());
        return share >= 0 && share <= 1 ? "" : "a part of the prompt is 0 to 1";
      })
      .show_default();
  serve.add_option("--seed", a->workload.seed, "Of prompts, lengths and arrivals").show_default();
  serve.add_option("--body", a->body, "JSON object of more fields for every request: '{\"temperature\": 1}'");
  serve.add_option("--slo-ttft-ms", a->workload.slo_ttft_ms, "A good request has its first token within so long")
      .positive();
  serve.add_option("--slo-tpot-ms", a->workload.slo_tpot_ms, "A good request takes no longer a token after that")
      .positive();
  serve.add_option("--timeout", a->target.timeout_s, "Seconds that a request may take").positive().show_default();
  serve.add_option("--output", a->output, "Write the JSON result to this file");
  serve.add_option("--plot", a->plot, "Write an SVG of the times, of the throughput and of requests in flight");
  serve.finish(
      a->json,
      "Examples:\n  doppler bench serve http://127.0.0.1:8080 --clients 8 --requests 200\n"
      "  doppler bench serve http://127.0.0.1:8080 --rate 4 --seconds 60 --prompt-tokens 64-512 --tokens 16-128 "
      "--shared-prefix 0.5 --slo-ttft-ms 500 --slo-tpot-ms 50 --plot load.svg",
      [a] { run_bench_serve(*a); });
}

}  // namespace doppler
