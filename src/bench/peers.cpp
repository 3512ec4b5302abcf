#include "bench/peers.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "bench/line_process.h"
#include "bench/prompt.h"
#include "bench/statistics.h"
#include "engine/backend.h"
#include "engine/machine.h"
#include "engine/not_finite.h"
#include "engine/sampler.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMiB = 1024.0 * 1024.0;

Json load_request(const PeerEngine& engine, const PeerWorkload& workload, int context) {
  return {{"model", engine.model.string()}, {"threads", workload.threads}, {"context", context}};
}

uint64_t bytes_under(const std::filesystem::path& path) {
  std::error_code ec;
  if (!std::filesystem::is_directory(path, ec)) return std::filesystem::file_size(path, ec);
  uint64_t all = 0;
  for (const auto& item : std::filesystem::directory_iterator(path, ec)) {
    if (item.is_regular_file(ec)) all += item.file_size(ec);
  }
  return all;
}

// A fresh process, from its start to the first token of a short prompt.
void time_start(PeerFigures& figures, const PeerWorkload& workload, const std::vector<int32_t>& prompt) {
  const std::vector<int32_t> few(prompt.begin(), prompt.begin() + std::min<ptrdiff_t>(8, std::ssize(prompt)));
  const auto start = Clock::now();
  LineProcess process(figures.engine.command, figures.engine.folder);
  const Json loaded = process.ask(load_request(figures.engine, workload, 64));
  process.ask({{"prompt", few}, {"tokens", 0}});
  figures.first_token_ms.push_back(ms_since(start));
  figures.runtime_ms = number_or(loaded, "node_ms", 0, figures.engine.name);
}

std::string times(double ratio) { return fmt::format("{:.2f}x", ratio); }

}  // namespace

std::vector<PeerFigures> compare_peers(const std::vector<PeerEngine>& engines, const PeerWorkload& workload,
                                       const std::function<void(std::string_view)>& progress) {
  const std::vector<int32_t> prompt =
      workload.prompt.empty() ? random_prompt(workload.prompt_tokens, workload.vocab) : workload.prompt;
  const int context = static_cast<int>(prompt.size()) + workload.tokens + 8;
  std::vector<PeerFigures> out;
  std::vector<std::unique_ptr<LineProcess>> processes;
  for (const PeerEngine& engine : engines) {
    progress(fmt::format("starting {} {}", engine.name, engine.types));
    out.push_back({engine, {}, {}, {}, 0, bytes_under(engine.model), 0, {}});
    processes.push_back(std::make_unique<LineProcess>(engine.command, engine.folder));
    processes.back()->ask(load_request(engine, workload, context));
  }
  for (int run = -1; run < workload.runs; ++run) {  // run −1 warms up and is not counted
    for (size_t i = 0; i < engines.size(); ++i) {
      progress(fmt::format("run {} of {}: {} {}", run + 1, workload.runs, engines[i].name, engines[i].types));
      const Json answer = processes[i]->ask({{"prompt", prompt}, {"tokens", workload.tokens}});
      if (run < 0) continue;
      const std::string& where = engines[i].name;
      out[i].prefill_tok_s.push_back(static_cast<double>(prompt.size()) * 1e3 /
                                     require_number(answer, "prefill_ms", where));
      out[i].decode_tok_s.push_back(workload.tokens * 1e3 / require_number(answer, "decode_ms", where));
      out[i].ids = require_array(answer, "ids", where).get<std::vector<int32_t>>();
    }
  }
  for (size_t i = 0; i < engines.size(); ++i) out[i].peak_bytes = processes[i]->peak_bytes();
  processes.clear();
  for (int run = 0; run < workload.runs; ++run) {
    for (PeerFigures& figures : out) {
      progress(fmt::format("start {} of {}: {}", run + 1, workload.runs, figures.engine.name));
      time_start(figures, workload, prompt);
    }
  }
  progress("");
  return out;
}

Json to_json(const std::vector<PeerFigures>& figures, const PeerWorkload& workload) {
  Json engines = Json::array();
  for (const PeerFigures& f : figures) {
    engines.push_back({{"engine", f.engine.name},
                       {"types", f.engine.types},
                       {"model_bytes", f.model_bytes},
                       {"prefill_tok_s", {{"median", median(f.prefill_tok_s)}, {"runs", f.prefill_tok_s}}},
                       {"decode_tok_s", {{"median", median(f.decode_tok_s)}, {"runs", f.decode_tok_s}}},
                       {"first_token_ms", {{"median", median(f.first_token_ms)}, {"runs", f.first_token_ms}}},
                       {"runtime_ms", f.runtime_ms},
                       {"peak_bytes", f.peak_bytes},
                       {"ids", f.ids}});
    const PeerFigures& ours = figures.front();
    if (&f == &ours) continue;
    engines.back()["ours_over_theirs"] = {
        {"prefill", median(ours.prefill_tok_s) / median(f.prefill_tok_s)},
        {"decode", median(ours.decode_tok_s) / median(f.decode_tok_s)},
        {"peak_bytes", static_cast<double>(ours.peak_bytes) / static_cast<double>(f.peak_bytes)},
        {"first_token", median(ours.first_token_ms) / median(f.first_token_ms)}};
  }
  return {
      {"cpu", cpu_name()},
      {"prompt_tokens", workload.prompt.empty() ? workload.prompt_tokens : static_cast<int>(workload.prompt.size())},
      {"tokens", workload.tokens},
      {"runs", workload.runs},
      {"threads", workload.threads},
      {"engines", engines}};
}

std::string to_table(const std::vector<PeerFigures>& figures, const PeerWorkload& workload) {
  std::string text =
      fmt::format("{}, {} threads; medians of {} runs taken in turns\n", cpu_name(), workload.threads, workload.runs);
  text += fmt::format("{:<22} {:>9} {:>14} {:>14} {:>12} {:>14}\n", "engine", "file MiB",
                      fmt::format("prefill({})/s", workload.prompt.empty() ? workload.prompt_tokens
                                                                           : static_cast<int>(workload.prompt.size())),
                      fmt::format("decode({})/s", workload.tokens), "memory MiB", "first token ms");
  const PeerFigures& ours = figures.front();
  for (const PeerFigures& f : figures) {
    text +=
        fmt::format("{:<22} {:>9.0f} {:>14.1f} {:>14.2f} {:>12.0f} {:>14.0f}\n", f.engine.name + " " + f.engine.types,
                    static_cast<double>(f.model_bytes) / kMiB, median(f.prefill_tok_s), median(f.decode_tok_s),
                    static_cast<double>(f.peak_bytes) / kMiB, median(f.first_token_ms));
    if (&f == &ours) continue;
    text += fmt::format("{:<22} {:>9} {:>14} {:>14} {:>12} {:>14}\n", "  ours over theirs", "",
                        times(median(ours.prefill_tok_s) / median(f.prefill_tok_s)),
                        times(median(ours.decode_tok_s) / median(f.decode_tok_s)),
                        times(static_cast<double>(ours.peak_bytes) / static_cast<double>(f.peak_bytes)),
                        times(median(ours.first_token_ms) / median(f.first_token_ms)));
  }
  for (const PeerFigures& f : figures) {
    if (f.runtime_ms > 0) {
      text += fmt::format("{:.0f} ms of {}'s first token are the start of Node, through which it is driven\n",
                          f.runtime_ms, f.engine.name);
      break;
    }
  }
  return text;
}

void serve_peer() {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<Executor> executor;
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = parse_json(line, "request");
    Json reply;
    if (find(request, "model")) {
      const auto start = Clock::now();
      model = std::make_unique<LoadedModel>(LoadedModel::load(require_string(request, "model", "request")));
      model->need_text();
      executor = make_executor(*model, "cpu",
                               {.context = static_cast<int>(require_int(request, "context", "request")),
                                .threads = static_cast<int>(int_or(request, "threads", 0, "request"))});
      reply["load_ms"] = ms_since(start);
    } else {
      if (!executor) fail({.code = ErrorCode::kUsage, .what = "no model is loaded", .where = "request"});
      const auto prompt = require_array(request, "prompt", "request").get<std::vector<int32_t>>();
      const auto tokens = require_int(request, "tokens", "request");
      Context context(*executor);
      const auto start = Clock::now();
      std::vector<int32_t> ids, text = prompt;
      const auto choose = [&](std::span<const float> logits) {
        const Likeliest choice = likeliest(logits);
        if (!choice.finite) {
          context.release();
          fail(explain_not_finite(*executor, text, prompt.size()));
        }
        ids.push_back(choice.id);
        text.push_back(choice.id);
      };
      choose(context.forward(prompt, Logits::kLast));
      const double first = ms_since(start);
      for (int64_t i = 0; i < tokens; ++i) choose(context.forward(std::span(&ids.back(), 1), Logits::kLast));
      reply = {{"prefill_ms", first}, {"decode_ms", ms_since(start) - first}, {"ids", ids}};
    }
    fmt::print("{}\n", reply.dump());
    std::fflush(stdout);
  }
}

}  // namespace doppler
