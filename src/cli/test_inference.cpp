// `doppler test inference`: a model from its bytes to a text, every step held against plain code.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/say.h"
#include "bench/inference.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "debug/report.h"
#include "engine/backend.h"

namespace doppler {
namespace {

struct Arguments {
  std::string model, prompt = "The color of the sky is", backend = "auto", kernel;
  int device = -1, tokens = 20, threads = 0;
  bool perf = false, json = false;
};

void test_inference(const Arguments& a) {
  const std::string path = local_model(a.model).string();
  const LoadedModel model = open_model(path);
  model.need_text();
  const std::vector<int32_t> prompt = model.need_tokenizer().encode(a.prompt, true);
  const int context = static_cast<int>(prompt.size()) + a.tokens + 1;
  const BackendChoice backend = choose_backend(a.backend, a.device);
  const auto executor = make_executor(
      model, backend.name,
      {.context = context, .threads = a.threads, .device = a.device, .kernels = parse_kernel_wishes(a.kernel)});
  const Stages run = capture_run(*executor, model.plan, prompt, {}, {.generate = a.tokens});
  const auto plain = make_executor(model, "ref", {.context = context}, false);
  Stages prefill = capture_run(*plain, model.plan, prompt, {});
  const Comparison comparison =
      compare_stages(run, prefill, {model.config, model.plan, model.weights, context}, bounds_for(model.weights, true));
  const std::vector<int32_t> answer(run.prompt_ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()),
                                    run.prompt_ids.end());
  const std::string text = model.tokenizer->decode(answer, true);
  const KernelOf kernel = [&](const Step& step) { return executor->kernel_of(step); };
  const bool pass = comparison.first_bad.empty() && !comparison.stages.empty();
  double worst = 0;
  for (const StageComparison& c : comparison.stages) worst = std::max(worst, c.rel_error);
  if (a.json) {
    fmt::print("{}\n", Json{{"model", model.config.id},
                            {"backend", backend.name},
                            {"pass", pass},
                            {"stages", comparison.stages.size()},
                            {"first_bad", pass ? Json(nullptr) : Json(comparison.first_bad)},
                            {"worst_error", std::isfinite(worst) ? Json(worst) : Json(nullptr)},
                            {"ids", answer},
                            {"text", text}}
                           .dump(1));
  } else {
    if (!pass) fmt::print("{}", comparison_table(comparison, run, model.plan, kernel));
    fmt::print("{}  {} {} on {} ({})\n", pass ? "pass" : "FAIL", visible(model.config.id), visible(model.quantization),
               backend.name, backend.about);
    fmt::print("      {} stages of {} prompt tokens against plain code, worst error {:.2g}\n", comparison.stages.size(),
               prompt.size(), worst);
    fmt::print("      Generated {} tokens: {}\n", answer.size(), visible(text));
  }
  if (!pass) throw CheckFailed{};
  if (!a.perf) return;
  InferenceWorkload workload = named_workload("xs");
  workload.backend = backend.name;
  workload.device = a.device;
  workload.threads = a.threads;
  workload.kernels = a.kernel;
  const auto progress = [](std::string_view line) {
    if (info_enabled()) show_status(line);
  };
  fmt::print("{}", bench_inference(path, workload, progress).to_table());
}

}  // namespace

void add_test_inference(Verb test) {
  auto a = std::make_shared<Arguments>();
  Verb verb = test.add_verb("inference", "A model from its bytes to a text, every step against plain code");
  verb.add_option("model,-m,--model", a->model, kModelHelp);
  verb.add_option("--prompt", a->prompt, "The text, as it is").show_default();
  verb.add_option("--tokens", a->tokens, "Tokens to go on for").positive().show_default();
  verb.add_option("--backend", a->backend, "auto, webgpu, cpu or ref").show_default();
  verb.add_option("--device", a->device, "Which GPU, as doppler devices counts them");
  verb.add_option("--threads", a->threads, "Threads (default: one per core)").range(1, 1024);
  add_kernel(verb, a->kernel);
  verb.add_flag("--perf", a->perf, "And then how fast it is, as bench inference --prompt xs says it");
  verb.add_flag("--json", a->json, "Print one JSON object");
  verb.footer("Exit code 1 when a step is wrong.\nExample:\n  doppler test inference models/tiny --backend cpu --perf");
  verb.callback([a] { test_inference(*a); });
}

}  // namespace doppler
