#include "serve/batch.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <regex>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/say.h"
#include "cli/batch_queue.h"
#include "cli/interrupt.h"
#include "cli/other_rank.h"
#include "cli/serving.h"
#include "cli/verbs.h"

namespace doppler {
namespace {

constexpr double kLineEvery = 10;  // seconds between two lines about how far it is, where nobody sees a bar

struct BatchArguments {
  std::string input, output, shard;
  std::vector<std::string> models;
  EngineArguments engine;
  int sequences = 256;
  bool ordered = false;
};

// "2/8".
void read_shard(const std::string& text, serve::BatchOptions& options) {
  static const std::regex form("([0-9]{1,7})/([0-9]{1,7})");
  std::smatch match;
  if (std::regex_match(text, match, form)) {
    options.shard = std::stoi(match[1]);
    options.shards = std::stoi(match[2]);
    if (options.shard >= 1 && options.shard <= options.shards) return;
  }
  fail({.code = ErrorCode::kUsage,
        .what = "this is no part of a file",
        .where = "--shard",
        .expected = "1/8 to 8/8 for eight parts",
        .got = text});
}

void run_batch(const BatchArguments& a) {
  serve::BatchOptions options;
  options.input = a.input;
  options.output = a.output;
  options.ordered = a.ordered;
  if (!a.shard.empty()) read_shard(a.shard, options);
  options.models = model_specs(a.models, a.engine.adapters);
  if (worked_as_other_rank(options.models.front().path.string(), a.engine.backend, a.engine.device, a.engine.threads,
                           a.engine.gpu_memory))
    return;
  check_one_model(options.models.size());
  options.engine = engine_options(a.engine, a.sequences);
  options.engine.queue = 2 * a.sequences;
  options.engine.on_event = [](const serve::EngineEvent& event) {
    if (info_enabled()) say_dim("{} {}: {}", event.model, event.what, event.detail);
  };
  const InterruptFlag interrupt({SIGINT, SIGTERM, SIGHUP});
  options.stopping = [&] { return interrupt.raised(); };
  const auto begun = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); };
  serve::BatchCounts counts;
  {
    Progress bar("batch", "answers");
    double said = 0;
    options.on_progress = [&](const serve::BatchCounts& now) {
      bar.update(now.answered, now.all - now.kept);
      if (log_level() != LogLevel::kVerbose || seconds() - said < kLineEvery) return;
      said = seconds();
      say("{}", progress_line("batch", "answers", now.answered, now.all - now.kept, said, 0));
    };
    counts = serve::run_batch(options);
  }
  if (log_level() == LogLevel::kSilent) return;
  say("{}: {} answers, {} of them from earlier runs; {} of the others are errors", a.output, counts.all, counts.kept,
      counts.faulty);
  if (counts.tokens + counts.prompt_tokens > 0) {
    say("{} tokens of prompts and {} of answers in {:.1f} s, {:.1f} tokens of answers a second", counts.prompt_tokens,
        counts.tokens, seconds(), static_cast<double>(counts.tokens) / seconds());
  }
}

}  // namespace

void add_batch(Verb app) {
  auto a = std::make_shared<BatchArguments>();
  Verb verb = app.add_verb("batch", "Answer a file of requests in OpenAI's batch form");
  verb.add_option("input", a->input,
                  "Requests, one JSON object on each line: custom_id, url (/v1/chat/completions, /v1/completions, "
                  "/v1/responses or /v1/embeddings) and body");
  verb.add_option("output", a->output,
                  "Answers, one on each line, found by custom_id; until all are there OUTPUT.incomplete, with which "
                  "the same command goes on, whatever ended it");
  verb.add_option("models", a->models,
                  "What doppler run takes, or NAME=MODEL (default: the model that ships with Doppler); a body's model "
                  "chooses, and the first answers bodies without one");
  verb.add_flag("--ordered", a->ordered, "The answers lie in the order of the requests, not in that of their ends");
  verb.add_option("--shard", a->shard,
                  "Answer one part of the file: 2/8 is the second of eight; each part needs an output of its own")
      .type_name("I/N");
  verb.add_option("--sequences", a->sequences, "Answers that run at once at most, if the cache has room for them")
      .range(1, 1024)
      .show_default();
  add_engine_options(verb, a->engine);
  verb.footer("Example:\n  doppler batch requests.jsonl answers.jsonl models/tiny");
  const auto worked = std::make_shared<bool>(false);
  add_batch_queue(verb, worked);
  verb.callback([a, worked] {
    if (*worked) return;
    if (a->output.empty()) {
      fail({.code = ErrorCode::kUsage,
            .what = "a batch wants the file with the requests and one for the answers",
            .where = "doppler batch",
            .todo = "doppler batch requests.jsonl answers.jsonl, or --help"});
    }
    run_batch(*a);
  });
}

}  // namespace doppler
