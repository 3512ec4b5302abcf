#include "engine/perplexity.h"
#include "base/say.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/progress.h"
#include "cli/open_model.h"
#include "cli/token_file.h"
#include "cli/verbs.h"
#include "engine/backend.h"

namespace doppler {
namespace {

struct PerplexityArguments {
  std::string model, text, ids, against, backend = "auto";
  ScoreOptions score;
  int threads = 0, device = -1;
  uint64_t gpu_memory = 0;
  std::vector<std::string> adapters;
  std::string kernel;
  bool json = false, no_verify = false;
};

std::vector<int32_t> tokens_of(const PerplexityArguments& a, const LoadedModel& model) {
  if (a.text.empty() == a.ids.empty()) {
    fail({.code = ErrorCode::kUsage,
          .what = "give a text or its tokens",
          .where = "perplexity",
          .expected = "--text FILE or --ids FILE"});
  }
  if (!a.ids.empty()) return read_token_file(a.ids);
  return model.need_tokenizer().encode(read_input(a.text), true);
}

void run_perplexity(PerplexityArguments a) {
  const LoadedModel model = open_model(a.model);
  model.need_text();
  const std::vector<int32_t> tokens = tokens_of(a, model);
  if (tokens.size() < 2)
    fail({.code = ErrorCode::kUsage, .what = "the text has no token to predict", .where = "perplexity"});
  // A window longer than the model's context, or than the text, is the longest there can be.
  const int most = std::min(static_cast<int>(tokens.size()) - 1, model.config.max_context);
  if (a.score.window > most) {
    say("the window is {} tokens: the text or the model's context has no more", most);
    a.score.window = most;
    a.score.stride = std::min(a.score.stride, most);
  }
  ExecutorOptions options{.context = a.score.window,
                          .threads = a.threads,
                          .device = a.device,
                          .gpu_memory = a.gpu_memory,
                          .adapters = load_adapters(model, adapter_specs(a.adapters)),
                          .kernels = parse_kernel_wishes(a.kernel)};
  const auto executor = make_executor(model, a.backend, options, !a.no_verify);
  options.adapters = nullptr;  // those of the first model
  trace_steps(*executor, model);
  std::unique_ptr<LoadedModel> other;
  std::unique_ptr<Executor> against;
  if (!a.against.empty()) {
    other = std::make_unique<LoadedModel>(open_model(a.against));
    if (other->config.vocab != model.config.vocab) {
      fail({.code = ErrorCode::kUsage,
            .what = "the two models have different vocabularies",
            .where = a.against,
            .expected = std::to_string(model.config.vocab),
            .got = std::to_string(other->config.vocab)});
    }
    against = make_executor(*other, a.backend, options, !a.no_verify);
  }
  TextScore score;
  {
    Progress bar("perplexity", "tokens");
    score =
        score_text(*executor, against.get(), tokens, a.score, [&](size_t done, size_t all) { bar.update(done, all); });
  }
  if (a.json) {
    Json json = {{"model", model.config.id},
                 {"quantization", model.quantization},
                 {"backend", executor->name()},
                 {"perplexity", score.perplexity},
                 {"tokens", score.tokens},
                 {"window", a.score.window},
                 {"stride", a.score.stride > 0 ? a.score.stride : a.score.window}};
    if (other) {
      json["against"] = {{"model", other->config.id},
                         {"quantization", other->quantization},
                         {"kl", score.kl},
                         {"top1_agreement", score.top1_agreement}};
    }
    fmt::print("{}\n", json.dump(1));
    return;
  }
  fmt::print("{} {}: perplexity {:.4f} over {} tokens (windows of {})\n", visible(model.config.id),
             visible(model.quantization), score.perplexity, score.tokens, a.score.window);
  if (other) {
    fmt::print("against {} {}: KL divergence {:.5f} nats a token, the same first choice for {:.2f} % of tokens\n",
               visible(other->config.id), visible(other->quantization), score.kl, 100 * score.top1_agreement);
  }
}

}  // namespace

void add_perplexity(Verb app) {
  auto a = std::make_shared<PerplexityArguments>();
  Verb verb = app.add_verb("perplexity", "How well a model predicts a text, and how far two models differ");
  verb.add_option("model", a->model, kModelHelp);
  verb.add_option("--text", a->text, "A file of text");
  verb.add_option("--ids", a->ids, "A file of token ids: numbers, a JSON list, or a .npy of whole numbers");
  verb.add_option("--window", a->score.window, "Tokens of one window").positive().show_default();
  verb.add_option("--stride", a->score.stride, "From window to window (default: the window)").positive();
  verb.add_option("--against", a->against, "Another artefact of the same model: print KL divergence and agreement");
  verb.add_option("--backend", a->backend, "auto, webgpu, cpu or ref").show_default();
  verb.add_option("--device", a->device, "Which GPU, as doppler devices counts them");
  add_gpu_memory(verb, a->gpu_memory);
  add_lora(verb, a->adapters);
  add_kernel(verb, a->kernel);
  verb.add_option("--threads", a->threads, "Threads (default: one per core)");
  add_no_verify(verb, a->no_verify);
  verb.finish(a->json,
              "Example:\n  doppler perplexity models/tiny --ids tests/data/tiny/val_tokens.npy\n"
              "  doppler perplexity model-q4 --text book.txt --against model-bf16",
              [a] { run_perplexity(*a); });
}

}  // namespace doppler
