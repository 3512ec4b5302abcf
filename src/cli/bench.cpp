#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/say.h"
#include "bench/baselines.h"
#include "bench/inference.h"
#include "bench/statistics.h"
#include "bench/surface.h"
#include "cli/open_model.h"
#include "cli/other_rank.h"
#include "cli/verbs.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

struct InferenceArguments {
  std::string model, versus, output, plot, workload_name, surface, profile_dir;
  std::vector<std::string> compare;
  InferenceWorkload workload;
  std::vector<std::string> adapters;
  bool json = false, profile = false, speculate = false, headed = false;
  Option prompt_tokens, tokens;
};

void report(const InferenceArguments& a, const Json& json, const std::string& text) {
  fmt::print("{}", a.json ? json.dump(1) + "\n" : text);
}

void compare_files(const InferenceArguments& a) {
  const auto read = [](const std::string& path) { return parse_json(read_input(path), path); };
  const Json comparison = compare_results(read(a.compare[0]), read(a.compare[1]), a.compare[0], a.compare[1]);
  report(a, comparison, comparison_text(comparison));
}

// A workload's name sets the sizes; sizes given besides win.
InferenceWorkload resolved_workload(const InferenceArguments& a) {
  InferenceWorkload w = a.workload;
  w.adapters = adapter_specs(a.adapters);
  if (a.workload_name.empty()) return w;
  const InferenceWorkload named = named_workload(a.workload_name);
  w.name = named.name;
  if (!a.prompt_tokens.given()) w.prompt_tokens = named.prompt_tokens;
  if (!a.tokens.given()) w.tokens = named.tokens;
  return w;
}

// For InferenceWorkload::surface. Fails where what drives the browser is missing. `profile_dir` empty: a profile for
// this run alone.
MakeSurface browser_for_bench(const std::string& profile_dir, bool headed) {
  const fs::path build = program_path().parent_path();
  const fs::path script = build.parent_path() / "web/tools/bench.mjs";
  if (!file_exists(script)) {
    fail({.code = ErrorCode::kUsage,
          .what = "the browser's part of Doppler is not here",
          .where = script.string(),
          .todo = "Run the program from its source tree's build folder"});
  }
  BrowserOptions options{{node_program().string(), script.string(), "--build", build.string()}, profile_dir};
  if (headed) {
    if (!std::getenv("DISPLAY") && !std::getenv("WAYLAND_DISPLAY")) {
      fail({.code = ErrorCode::kUsage,
            .what = "a window needs a screen, and neither DISPLAY nor WAYLAND_DISPLAY names one",
            .where = "--headed",
            .todo = "Leave --headed out, or run it where a screen is, such as under xvfb-run"});
    }
    options.command.emplace_back("--headed");
  }
  return [options](const fs::path& model, const InferenceWorkload& workload, int context, const OnStatus& progress) {
    return browser_surface(options, model, workload, context, progress);
  };
}

// Fails for a workload that a page cannot run, and says why.
void check_for_browser(const std::string& model, const InferenceWorkload& workload) {
  const auto refuse = [](const char* option, const char* why) {
    fail({.code = ErrorCode::kUsage,
          .what = std::string(option) + " and --surface browser do not go together: " + why,
          .where = "bench inference"});
  };
  if (workload.threads > 0) refuse("--threads", "the page's engine computes on the GPU alone");
  if (workload.backend != "auto" && workload.backend != "webgpu") {
    refuse("--backend", "the page's engine has WebGPU and no other backend");
  }
  if (workload.device >= 0) refuse("--device", "a page cannot choose among GPUs, the browser does");
  if (!workload.adapters.empty()) refuse("--lora", "a page's engine reads no adapters");
  if (!workload.kernels.empty()) refuse("--kernel", "the page's engine chooses its kernels by itself");
  if (workload.gpu_memory > 0) refuse("--gpu-memory", "experts are paged from mapped files, which a page has not");
  const ModelKind kind = model_kind(model);
  const bool stray_file = file_exists(model) && !file_exists(fs::path(model) / "manifest.json");
  if (kind != ModelKind::kRdrr || stray_file) {
    fail({.code = ErrorCode::kUsage,
          .what = "a page loads RDRR folders only",
          .where = model,
          .expected = "a folder with manifest.json",
          .got = kind == ModelKind::kCheckpoint ? "a Hugging Face folder" : "a single file",
          .todo = "Make one of it: doppler convert"});
  }
}

void choose_surface(const InferenceArguments& a, const std::string& model, InferenceWorkload& workload) {
  const auto refuse = [](const char* what, const char* todo) {
    fail({.code = ErrorCode::kUsage, .what = what, .where = "bench inference", .todo = todo});
  };
  if (a.headed && a.surface == "native") refuse("--headed is a browser's", "Leave --surface native out");
  if (a.surface != "browser" && !a.headed) {
    if (!a.profile_dir.empty()) refuse("--profile-dir is a browser's", "Add --surface browser");
    return;
  }
  if (a.profile) {
    refuse(
        "--profile and --surface browser do not go together: a browser rounds the GPU's clock to a tenth of a "
        "millisecond, longer than most steps take",
        "");
  }
  if (!a.versus.empty() && !a.profile_dir.empty()) {
    refuse("--versus and --profile-dir do not go together: two browsers cannot share a profile", "");
  }
  check_for_browser(model, workload);
  if (!a.versus.empty()) check_for_browser(a.versus, workload);
  workload.surface = browser_for_bench(a.profile_dir, a.headed);
}

void run_inference(const InferenceArguments& a) {
  const auto progress = [&](std::string_view line) {
    if (info_enabled()) show_status(line);
  };
  if (!a.compare.empty()) return compare_files(a);
  if (worked_as_other_rank(a.model, a.workload.backend, a.workload.device, a.workload.threads, a.workload.gpu_memory))
    return;
  const std::string model = local_model(a.model).string();
  InferenceWorkload workload = resolved_workload(a);
  choose_surface(a, model, workload);
  if (a.profile) {
    const TokenProfile profile = profile_token(model, workload);
    return report(a, profile.to_json(), profile.to_table());
  }
  if (a.speculate) {
    const SpeculationResult speculation = bench_speculation(model, workload);
    return report(a, speculation.to_json(), speculation.to_table());
  }
  if (!a.versus.empty()) {
    const std::string other = local_model(a.versus).string();
    const auto [first, second] = bench_interleaved(model, workload, other, workload, progress);
    const Json comparison = compare_results(first.to_json(), second.to_json(), model, other);
    return report(a, comparison, comparison_text(comparison));
  }
  const InferenceResult result = bench_inference(model, workload, progress);
  const Json json = result.to_json();
  if (!a.output.empty()) write_file_whole(a.output, json.dump(1) + "\n");
  if (!a.plot.empty()) write_file_whole(a.plot, plot_sweeps({json}));
  report(a, json, result.to_table());
}

void check_here(const std::string& path, const std::string& backend) {
  const auto progress = [&](std::string_view line) {
    if (info_enabled()) show_status(line);
  };
  const std::filesystem::path file = path;
  const Json baselines = parse_json(read_text_file(file), path);
  const std::filesystem::path root = std::filesystem::absolute(file).parent_path().parent_path();
  bool ok = true;
  for (const BaselineVerdict& v : check_baselines(baselines, root, backend, progress)) {
    fmt::print("{} {:<42} {:>9.4f}  range {:g} … {:g}\n", v.ok ? "ok  " : "FAIL", v.name, v.value, v.low, v.high);
    ok = ok && v.ok;
  }
  if (!ok) throw CheckFailed{};
}

}  // namespace

void add_bench(Verb app) {
  Verb bench = app.add_verb("bench", "Measure speed, beside what the machine allows");
  bench.need_verb();
  auto arguments = std::make_shared<InferenceArguments>();
  Verb inference = bench.add_verb("inference", "Prefill and decode speed, load time, memory, bandwidth");
  inference.add_option("model,-m,--model", arguments->model, kModelHelp);
  inference.add_option("--prompt,--workload", arguments->workload_name, "xs, s, m, l or xl: 64 to 8192 prompt tokens");
  arguments->prompt_tokens =
      inference.add_option("--prompt-tokens", arguments->workload.prompt_tokens, "Tokens of the prompt").show_default();
  arguments->tokens = inference.add_option("--tokens", arguments->workload.tokens, "Tokens to decode").show_default();
  inference.add_option("--runs", arguments->workload.runs, "Runs, after a second or one run that warms up")
      .show_default();
  inference.add_option("--context", arguments->workload.context, "Context to make room for (default: what is needed)")
      .positive();
  inference.add_option("--threads", arguments->workload.threads, "Threads (default: one per core)").range(1, 1024);
  inference.add_option("--backend", arguments->workload.backend, "auto, webgpu, cpu or ref").show_default();
  inference.add_option("--device", arguments->workload.device, "Which GPU, as doppler devices counts them");
  add_gpu_memory(inference, arguments->workload.gpu_memory);
  add_lora(inference, arguments->adapters);
  add_kernel(inference, arguments->workload.kernels);
  inference
      .add_option("--decode-batch", arguments->workload.decode_batch,
                  "Tokens a GPU chooses in one go (default: as many as take a twentieth of a second)")
      .range(1, 64);
  inference.add_option("--depths", arguments->workload.depths, "Decode again after so many tokens: 0,512,2048")
      .delimiter(',')
      .one_word()
      .not_negative();
  inference.add_option("--prompts", arguments->workload.prompt_lengths, "Prefill again with so many: 64,512")
      .delimiter(',')
      .one_word()
      .positive();
  inference.add_option("--tap-layers", arguments->workload.tapped_layers, "Look into these layers: what does it cost?")
      .delimiter(',')
      .one_word();
  inference.add_option("--reference", arguments->workload.reference,
                       "A reference.json with prompt_ids and greedy_ids: judge the tokens by it");
  inference.add_option("--output", arguments->output, "Write the JSON result to this file");
  inference.add_option("--plot", arguments->plot, "Write an SVG of the sweeps to this file");
  inference.add_option("--versus", arguments->versus, "Another artefact: runs of both in turn, and their ratio");
  inference.add_option("--compare", arguments->compare, "Two results written by --output: their ratio").expected(2, 2);
  inference.add_flag("--profile", arguments->profile, "Print where a decoded token's time goes on the GPU, by step");
  inference.add_flag("--speculate", arguments->speculate,
                     "Decode an answer that repeats its prompt, with speculation and without");
  inference.add_option("--surface", arguments->surface, "native, or browser: the same engine in headless Chromium")
      .one_of({"native", "browser"})
      .default_text("native");
  inference.add_flag("--headed", arguments->headed,
                     "In a browser with a window, which --surface browser otherwise has not");
  inference.add_option("--profile-dir", arguments->profile_dir,
                       "With --surface browser: a profile to keep, so that the next run finds the model stored");
  inference.finish(
      arguments->json,
      "Examples:\n  doppler synth gemma-3-1b /tmp/1b && doppler bench inference /tmp/1b\n"
      "  doppler bench inference /tmp/1b --depths 0,512,2048 --prompts 64,512 --plot speed.svg --output a.json\n"
      "  doppler bench inference --compare a.json b.json\n"
      "  doppler bench inference --surface browser --profile-dir /tmp/profile --output browser.json",
      [arguments] { run_inference(*arguments); });
  auto baselines = std::make_shared<std::string>("bench/baselines.json");
  auto backend = std::make_shared<std::string>("cpu");
  Verb check = bench.add_verb("check", "Hold this machine's ratios to recorded ranges; exit 1 outside them");
  check.add_option("baselines", *baselines, "The file of ranges").show_default();
  check.add_option("--backend", *backend, "cpu or webgpu").show_default();
  check.footer("Example:\n  doppler bench check bench/baselines.json --backend cpu");
  check.callback([baselines, backend] { check_here(*baselines, *backend); });
#if !defined(DOPPLER_NO_GPU)
  add_bench_kernels(bench);
#endif
  add_bench_batch(bench);
  add_bench_serve(bench);
  add_bench_peers(bench);
}

}  // namespace doppler
