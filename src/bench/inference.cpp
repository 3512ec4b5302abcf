#include "bench/inference.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "base/error.h"
#include "base/files.h"
#include "base/threads.h"
#include "base/version.h"
#include "bench/prompt.h"
#include "bench/statistics.h"
#include "bench/surface.h"
#include "engine/machine.h"
#include "model/cost.h"

namespace doppler {
namespace {

void check(const InferenceWorkload& w) {
  if (w.prompt_tokens >= 1 && w.tokens >= 1 && w.runs >= 1) return;
  fail({.code = ErrorCode::kUsage,
        .what = "a benchmark needs at least one prompt token, one token and one run",
        .where = "bench inference",
        .got = fmt::format("{} prompt tokens, {} tokens, {} runs", w.prompt_tokens, w.tokens, w.runs)});
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json environment(const BenchSurface::Facts& facts) {
  Json browser;
  if (!facts.browser.empty()) browser = facts.browser;
  return {{"os", system_name()}, {"cpu", cpu_name()}, {"cores", available_cores()}, {"version", kVersion},
          {"time", now()},       {"gpu", facts.gpu},  {"browser", browser}};
}

// A model loaded and ready, and what is measured of it.
class Subject {
 public:
  Subject(const std::filesystem::path& path, const InferenceWorkload& workload, const OnStatus& progress)
      : workload_(workload), progress_(progress) {
    check(workload_);
    read_reference();
    result.workload = workload_;
    const int needed = std::max({most(workload_.depths) + workload_.tokens, most(workload_.prompt_lengths) + 1,
                                 static_cast<int>(known_.size())});
    const int context = std::max({workload_.context, workload_.prompt_tokens + workload_.tokens, needed});
    surface_ = (workload_.surface ? workload_.surface : native_surface)(path, workload_, context, progress_);
    const LoadedModel& model = surface_->model();
    const BenchSurface::Facts& facts = surface_->facts();
    if (!known_.empty()) check_tokens(model.config, known_, 0, context);
    result.model = model.config.id;
    describe_file(path);
    result.tensors = model.weights.all().size();
    result.quantization = model.quantization;
    result.artefact_bytes = model.artefact_bytes;
    result.surface = facts.surface;
    result.backend = facts.backend;
    result.cold_load_ms = facts.cold_load_ms;
    result.warm_load_ms = facts.warm_load_ms;
    result.kv_bytes = facts.kv_bytes;
    result.bytes_per_token =
        decode_cost(model.plan, model.weights, workload_.prompt_tokens + workload_.tokens / 2).bytes();
    result.environment = environment(facts);
    prompt_ = model.tokenizer ? text_prompt(*model.tokenizer, context) : random_prompt(context, model.config.vocab);
  }

  // Machines take a moment to their full speed: GPUs and what feeds them gained 2 to 6 % over the first half second.
  void warm_up() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    do {
      run(false);
    } while (std::chrono::steady_clock::now() < end);
  }

  // One prompt and its continuation. `counted`: not to warm up.
  void run(bool counted) {
    GreedyRun run = surface_->run(prompt(workload_.prompt_tokens), 0, workload_.tokens);
    result.peak_device_bytes = std::max(result.peak_device_bytes, run.spent.bytes);
    if (!counted) return;
    double total = 0;
    for (const double ms : run.token_ms) total += ms;
    const double count = workload_.tokens;
    result.first_token_ms.push_back(run.first_token_ms);
    result.prefill_tok_s.push_back(workload_.prompt_tokens * 1e3 / run.first_token_ms);
    result.decode_tok_s.push_back(count * 1e3 / total);
    result.token_ms.insert(result.token_ms.end(), run.token_ms.begin(), run.token_ms.end());
    result.expert_hits += run.spent.expert_hits;
    result.expert_misses += run.spent.expert_misses;
    result.submits_per_token = static_cast<double>(run.spent.submits) / count;
    result.dispatches_per_token = static_cast<double>(run.spent.dispatches) / count;
    run.ids.pop_back();  // chosen, but nothing was decoded from it
    text_ = std::move(run.ids);
    // What a CPU reads depends on what else the machine does, and changes within minutes: it is measured beside each
    // run.
    if (result.backend == "cpu") result.bandwidths.push_back(surface_->bandwidth(result.bytes_per_token));
  }

  void finish() {
    std::vector<std::vector<double>> speeds_at(workload_.depths.size());
    for (int run = 0; run < sweep_runs(); ++run) {  // in turns, for the same reason
      for (size_t i = 0; i < workload_.depths.size(); ++i) {
        progress_(fmt::format("decoding after {} tokens", workload_.depths[i]));
        const GreedyRun taken = surface_->run(prompt(workload_.depths[i]), prompt_[0], workload_.tokens);
        speeds_at[i].push_back(1e3 / median(taken.token_ms));
      }
    }
    for (size_t i = 0; i < speeds_at.size(); ++i) {
      result.by_depth.push_back({workload_.depths[i], median(speeds_at[i])});
    }
    for (const int length : workload_.prompt_lengths) {
      std::vector<double> speeds;
      for (int run = -1; run < sweep_runs(); ++run) {
        progress_(fmt::format("a prompt of {} tokens", length));
        const double ms = surface_->run(prompt(length), 0, 0).first_token_ms;
        if (run >= 0) speeds.push_back(length * 1e3 / ms);
      }
      result.by_prompt.push_back({length, median(speeds)});
    }
    judge();
    result.peak_bytes = surface_->peak_host_bytes();
    if (!result.bandwidths.empty()) return;
    progress_("measuring the machine's bandwidth");
    result.bandwidths.push_back(surface_->bandwidth(result.bytes_per_token));
  }

  InferenceResult result;

 private:
  static int most(const std::vector<int>& list) {
    return list.empty() ? 0 : *std::max_element(list.begin(), list.end());
  }

  int sweep_runs() const { return std::min(workload_.runs, 3); }

  // A folder is known by its manifest, which holds its shards' hashes; a single file by its first MiB, its metadata; a
  // Hugging Face folder by its config.json.
  void describe_file(const std::filesystem::path& path) {
    const std::filesystem::path manifest = path / "manifest.json";
    if (file_exists(manifest)) {
      const std::string text = read_text_file(manifest);
      result.model_hash = sha256_hex(std::as_bytes(std::span(text)));
      result.shards = parse_json(text, manifest.string()).value("shards", Json::array()).size();
      return;
    }
    const MappedFile file(model_kind(path) == ModelKind::kCheckpoint ? path / "config.json" : path);
    result.model_hash = sha256_hex(file.bytes().first(std::min<size_t>(file.bytes().size(), 1u << 20)));
    result.shards = 1;
  }

  void read_reference() {
    if (workload_.reference.empty()) return;
    const std::string where = workload_.reference.string();
    const Json reference = parse_json(read_text_file(workload_.reference), where);
    for (const char* key : {"prompt_ids", "greedy_ids"}) {
      asked_ = known_.size();
      for (const Json& id : require_array(reference, key, where)) {
        if (!id.is_number_integer())
          fail({.code = ErrorCode::kFormat, .what = "a token id is not a whole number", .where = where, .got = key});
        known_.push_back(id.get<int32_t>());
      }
    }
    if (asked_ > 0 && asked_ < known_.size()) return;
    fail({.code = ErrorCode::kFormat,
          .what = "a reference without tokens",
          .where = where,
          .expected = "prompt_ids and greedy_ids"});
  }

  std::span<const int32_t> prompt(int tokens) const { return std::span(prompt_).first(static_cast<size_t>(tokens)); }

  void judge() {
    const LoadedModel& model = surface_->model();
    result.quality = judge_tokens(text_, [&](int32_t id) {
      return model.tokenizer ? model.tokenizer->is_special(id)
                             : std::count(model.config.eos_ids.begin(), model.config.eos_ids.end(), id) > 0;
    });
    if (known_.empty()) return;
    progress_("comparing with the reference");
    const std::vector<TokenScore> scores = surface_->score(known_);
    double same = 0, sum = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      sum += scores[i].nll;
      if (i + 1 >= asked_) same += scores[i].choice == known_[i + 1] ? 1 : 0;
    }
    result.quality.token_match = same / static_cast<double>(known_.size() - asked_);
    result.quality.perplexity = std::exp(sum / static_cast<double>(scores.size()));
    if (*result.quality.token_match < 0.75) {
      result.quality.ok = false;
      result.quality.reasons.push_back(
          fmt::format("only {:.0f} % of the reference's tokens", 100 * *result.quality.token_match));
    }
  }

  const InferenceWorkload workload_;
  const OnStatus& progress_;
  std::unique_ptr<BenchSurface> surface_;
  std::vector<int32_t> prompt_, text_;
  std::vector<int32_t> known_;  // the reference's tokens, those of the prompt first
  size_t asked_ = 0;            // how many those are
};

}  // namespace

InferenceWorkload named_workload(const std::string& name) {
  struct Named {
    const char* name;
    int prompt_tokens, tokens;
  };
  for (const Named& w : {Named{"xs", 64, 32}, Named{"s", 256, 64}, Named{"m", 1024, 128}, Named{"l", 4096, 128},
                         Named{"xl", 8192, 128}}) {
    if (name != w.name) continue;
    InferenceWorkload workload;
    workload.name = name;
    workload.prompt_tokens = w.prompt_tokens;
    workload.tokens = w.tokens;
    return workload;
  }
  fail({.code = ErrorCode::kUsage,
        .what = "an unknown workload",
        .where = "--workload",
        .expected = "xs, s, m, l or xl",
        .got = name});
}

InferenceResult bench_inference(const std::filesystem::path& path, const InferenceWorkload& workload,
                                const OnStatus& progress) {
  Subject subject(path, workload, progress);
  progress("warming up");
  subject.warm_up();
  for (int run = 0; run < workload.runs; ++run) {
    progress(fmt::format("run {} of {}", run + 1, workload.runs));
    subject.run(true);
  }
  subject.finish();
  progress("");
  return subject.result;
}

std::pair<InferenceResult, InferenceResult> bench_interleaved(const std::filesystem::path& a,
                                                              const InferenceWorkload& a_workload,
                                                              const std::filesystem::path& b,
                                                              const InferenceWorkload& b_workload,
                                                              const OnStatus& progress) {
  Subject first(a, a_workload, progress), second(b, b_workload, progress);
  progress("warming up");
  first.warm_up();
  second.warm_up();
  for (int run = 0; run < a_workload.runs; ++run) {
    progress(fmt::format("run {} of {}, both", run + 1, a_workload.runs));
    (run % 2 == 0 ? first : second).run(true);  // who goes first changes every time
    (run % 2 == 0 ? second : first).run(true);
  }
  first.finish();
  second.finish();
  progress("");
  return {first.result, second.result};
}

}  // namespace doppler
