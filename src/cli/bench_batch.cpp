#include <fmt/format.h>

#include <memory>

#include "base/files.h"
#include "base/log.h"
#include "base/say.h"
#include "bench/batch.h"
#include "cli/open_model.h"
#include "cli/other_rank.h"
#include "cli/verbs.h"

namespace doppler {
namespace {

struct BenchBatchArguments {
  std::string model, output;
  BatchWorkload workload;
  bool json = false;
};

void run_bench_batch(const BenchBatchArguments& a) {
  if (worked_as_other_rank(a.model, a.workload.backend, a.workload.device, a.workload.threads, 0)) return;
  const auto progress = [](std::string_view line) {
    if (info_enabled()) show_status(line);
  };
  const BatchResult result = bench_batch(local_model(a.model), a.workload, progress);
  const Json json = result.to_json();
  if (!a.output.empty()) write_file_whole(a.output, json.dump(1) + "\n");
  fmt::print("{}", a.json ? json.dump(1) + "\n" : result.to_table());
}

}  // namespace

void add_bench_batch(Verb bench) {
  auto arguments = std::make_shared<BenchBatchArguments>();
  Verb batch = bench.add_verb("batch", "Decode speed of many sequences together");
  batch.add_option("model", arguments->model, kModelHelp);
  batch.add_option("--sequences", arguments->workload.sequences, "How many sequences: 1,8,32")
      .delimiter(',')
      .one_word()
      .positive();
  batch.add_option("--prompt-tokens", arguments->workload.prompt_tokens, "Tokens of each prompt")
      .positive()
      .show_default();
  batch.add_option("--tokens", arguments->workload.tokens, "Tokens to decode of each").positive().show_default();
  batch.add_option("--runs", arguments->workload.runs, "Runs, after one that warms up").positive().show_default();
  batch.add_option("--threads", arguments->workload.threads, "Threads (default: one per core)").range(1, 1024);
  batch.add_option("--backend", arguments->workload.backend, "auto, webgpu, cpu or ref").show_default();
  batch.add_option("--device", arguments->workload.device, "Which GPU, as doppler devices counts them");
  batch.add_option("--output", arguments->output, "Write the JSON result to this file");
  batch.finish(arguments->json, "Example:\n  doppler bench batch --sequences 1,8,32 --prompt-tokens 128 --tokens 128",
               [arguments] { run_bench_batch(*arguments); });
}

}  // namespace doppler
