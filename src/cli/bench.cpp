#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "base/error.h"
#include "bench/inference.h"
#include "cli/bench_browser.h"
#include "cli/default_model.h"
#include "cli/verbs.h"

namespace doppler {
namespace {

struct InferenceArguments {
  std::string model, surface = "native", profile_dir;
  InferenceWorkload workload;
  bool json = false, profile = false;
};

void run_inference(const InferenceArguments& arguments) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto progress = [&](std::string_view line) {
    if (terminal) fmt::print(stderr, "\r\033[K{}", line);
  };
  const std::string model = arguments.model.empty() ? default_model().string() : arguments.model;
  if (arguments.surface == "browser") {
    if (arguments.profile) {
      fail({ErrorCode::kUsage, "--profile and --surface browser do not go together", "bench inference", "", "", ""});
    }
    bench_in_browser(model, arguments.workload, arguments.profile_dir, arguments.json);
    return;
  }
  if (arguments.profile) {
    const TokenProfile profile = profile_token(model, arguments.workload);
    fmt::print("{}", arguments.json ? profile.to_json().dump(1) + "\n" : profile.to_table());
    return;
  }
  const InferenceResult result = bench_inference(model, arguments.workload, progress);
  if (arguments.json) {
    fmt::print("{}\n", result.to_json().dump(1));
  } else {
    fmt::print("{}", result.to_table());
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed, beside what the machine allows");
  bench->require_subcommand(1);
  auto arguments = std::make_shared<InferenceArguments>();
  CLI::App* inference = bench->add_subcommand("inference", "Prefill and decode speed, load time, memory, bandwidth");
  inference->add_option("model", arguments->model, "An RDRR folder (default: the model that ships with Doppler)");
  inference->add_option("--prompt-tokens", arguments->workload.prompt_tokens, "Tokens of the prompt")
      ->capture_default_str();
  inference->add_option("--tokens", arguments->workload.tokens, "Tokens to decode")->capture_default_str();
  inference->add_option("--runs", arguments->workload.runs, "Runs, after one that warms up")->capture_default_str();
  inference->add_option("--context", arguments->workload.context, "Context to make room for (default: what is needed)")
      ->check(CLI::PositiveNumber);
  inference->add_option("--threads", arguments->workload.threads, "Threads (default: one a core)")
      ->check(CLI::Range(1, 1024));
  inference->add_option("--backend", arguments->workload.backend, "auto, webgpu, cpu or ref")->capture_default_str();
  inference->add_option("--device", arguments->workload.device, "Which GPU, as doppler devices counts them");
  inference
      ->add_option("--decode-batch", arguments->workload.decode_batch,
                   "Tokens a GPU chooses in one go (default: as many as take a twentieth of a second)")
      ->check(CLI::Range(1, 64));
  inference->add_flag("--profile", arguments->profile, "Print where a decoded token's time goes on the GPU, by step");
  inference->add_option("--surface", arguments->surface, "native, or browser: the same engine in headless Chromium")
      ->check(CLI::IsMember({"native", "browser"}))
      ->capture_default_str();
  inference->add_option("--profile-dir", arguments->profile_dir,
                        "With --surface browser: a profile to keep, so that the next run finds the model stored");
  inference->add_flag("--json", arguments->json, "Print one JSON object");
  inference->footer("Example:\n  doppler synth gemma-3-1b /tmp/1b && doppler bench inference /tmp/1b");
  inference->callback([arguments] { run_inference(*arguments); });
  add_bench_kernels(*bench);
}

}  // namespace doppler
