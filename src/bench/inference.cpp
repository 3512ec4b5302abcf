#include "bench/inference.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "base/error.h"
#include "base/files.h"
#include "base/threads.h"
#include "bench/prompt.h"
#include "bench/statistics.h"
#include "debug/stages.h"
#include "engine/backend.h"
#include "engine/decode_pace.h"
#include "engine/machine.h"
#include "engine/perplexity.h"
#include "model/cost.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void check(const InferenceWorkload& w) {
  if (w.prompt_tokens >= 1 && w.tokens >= 1 && w.runs >= 1) return;
  fail({ErrorCode::kUsage, "a benchmark needs at least one prompt token, one token and one run", "bench inference", "",
        fmt::format("{} prompt tokens, {} tokens, {} runs", w.prompt_tokens, w.tokens, w.runs), ""});
}

// Asks the system to forget what it holds of the artefact's files, so that the next load reads them.
void drop_cached(const std::filesystem::path& folder) {
  std::error_code ec;
  for (const auto& item : std::filesystem::directory_iterator(folder, ec)) {
    const int fd = ::open(item.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Json environment(const InferenceWorkload& w, const std::string& backend) {
  Json gpu;
  if (backend == "webgpu") {
    if (const auto found = describe_gpu(w.device)) {
      gpu = {{"name", found->name},     {"vendor", found->vendor},   {"architecture", found->architecture},
             {"driver", found->driver}, {"backend", found->backend}, {"features", found->features}};
    }
  }
  return {{"os", system_name()}, {"cpu", cpu_name()}, {"cores", available_cores()},
          {"version", "0.1.0"},  {"time", now()},     {"gpu", gpu}};
}

// A model loaded and ready, and what is measured of it.
class Subject {
 public:
  Subject(const std::filesystem::path& path, const InferenceWorkload& workload, const Told& progress)
      : workload_(workload), progress_(progress) {
    check(workload_);
    result.workload = workload_;
    const int needed = std::max(most(workload_.depths) + workload_.tokens, most(workload_.prompt_lengths) + 1);
    context_ = std::max({workload_.context, workload_.prompt_tokens + workload_.tokens, needed});
    progress_("loading, cold");
    drop_cached(path);
    result.cold_load_ms = load(path);
    executor_.reset();
    model_.reset();
    progress_("loading, warm");
    result.warm_load_ms = load(path);
    result.model = model_->config.id;
    describe_file(path);
    result.tensors = model_->weights.all().size();
    result.quantization = model_->quantization;
    result.backend = executor_->name();
    result.artefact_bytes = model_->artefact_bytes;
    result.environment = environment(workload_, result.backend);
    prompt_ =
        model_->tokenizer ? text_prompt(*model_->tokenizer, context_) : random_prompt(context_, model_->config.vocab);
  }

  // One prompt and its continuation. `counted`: not the one that warms up.
  void run(bool counted) {
    executor_->reset();
    const auto start = Clock::now();
    int32_t token = argmax(executor_->forward(prompt(workload_.prompt_tokens), Logits::kLast));
    const double first = ms_since(start);
    const DeviceCounters before = executor_->counters();
    std::vector<int32_t> text;
    const std::vector<double> times = decode(token, workload_.tokens, &text);
    const DeviceCounters after = executor_->counters();
    result.peak_device_bytes = std::max(result.peak_device_bytes, after.bytes);
    if (!counted) return;
    double total = 0;
    for (const double ms : times) total += ms;
    const double count = workload_.tokens;
    result.first_token_ms.push_back(first);
    result.prefill_tok_s.push_back(workload_.prompt_tokens * 1e3 / first);
    result.decode_tok_s.push_back(count * 1e3 / total);
    result.token_ms.insert(result.token_ms.end(), times.begin(), times.end());
    result.expert_hits += after.expert_hits - before.expert_hits;
    result.expert_misses += after.expert_misses - before.expert_misses;
    result.submits_per_token = static_cast<double>(after.submits - before.submits) / count;
    result.dispatches_per_token = static_cast<double>(after.dispatches - before.dispatches) / count;
    text_ = std::move(text);
  }

  void finish() {
    for (const int depth : workload_.depths) {
      progress_(fmt::format("decoding after {} tokens", depth));
      executor_->reset();
      int32_t token = prompt_[0];
      if (depth > 0) token = argmax(executor_->forward(prompt(depth), Logits::kLast));
      const std::vector<double> times = decode(token, workload_.tokens, nullptr);
      result.by_depth.push_back({depth, 1e3 / median(times)});
    }
    for (const int length : workload_.prompt_lengths) {
      std::vector<double> speeds;
      for (int run = -1; run < std::min(workload_.runs, 3); ++run) {
        progress_(fmt::format("a prompt of {} tokens", length));
        executor_->reset();
        const auto start = Clock::now();
        executor_->forward(prompt(length), Logits::kLast);
        if (run >= 0) speeds.push_back(length * 1e3 / ms_since(start));
      }
      result.by_prompt.push_back({length, median(speeds)});
    }
    judge();
    result.kv_bytes = executor_->context_bytes();
    result.bytes_per_token =
        decode_cost(model_->plan, model_->weights, workload_.prompt_tokens + workload_.tokens / 2).bytes();
    result.peak_bytes = peak_resident_bytes();  // before the bandwidth measurement takes memory of its own
    progress_("measuring the machine's bandwidth");
    result.bandwidth =
        result.backend == "webgpu" ? device_bandwidth(workload_.device) : read_bandwidth(workload_.threads);
  }

  InferenceResult result;

 private:
  static int most(const std::vector<int>& list) {
    return list.empty() ? 0 : *std::max_element(list.begin(), list.end());
  }

  // A folder is known by its manifest, which holds its shards' hashes; a single file by its first MiB, its metadata.
  void describe_file(const std::filesystem::path& path) {
    const std::filesystem::path manifest = path / "manifest.json";
    if (file_exists(manifest)) {
      const std::string text = read_text_file(manifest);
      result.model_hash = sha256_hex(std::as_bytes(std::span(text)));
      result.shards = parse_json(text, manifest.string()).value("shards", Json::array()).size();
      return;
    }
    const MappedFile file(path);
    result.model_hash = sha256_hex(file.bytes().first(std::min<size_t>(file.bytes().size(), 1u << 20)));
    result.shards = 1;
  }

  double load(const std::filesystem::path& path) {
    const auto start = Clock::now();
    model_ = std::make_unique<LoadedModel>(workload_.load(path));
    executor_ = make_executor(*model_, workload_.backend,
                              {context_, workload_.threads, 0, workload_.device, false, workload_.gpu_memory});
    const double ms = ms_since(start);
    if (!workload_.tapped_layers.empty()) {
      // Somebody looks: the copies are made and read, the numbers go nowhere.
      const auto ignore = [](const Step&, std::span<const float>, int, int) {};
      executor_->set_tap_at(ignore, steps_of_layers(model_->plan, workload_.tapped_layers));
    }
    return ms;
  }

  std::span<const int32_t> prompt(int tokens) const { return std::span(prompt_).first(static_cast<size_t>(tokens)); }

  // Milliseconds of each of `count` tokens; `text` gets what was chosen.
  std::vector<double> decode(int32_t token, int count, std::vector<int32_t>* text) {
    std::vector<double> times;
    while (static_cast<int>(times.size()) < count) {
      const int left = count - static_cast<int>(times.size()), wanted = std::min(pace_.batch(), left);
      const auto start = Clock::now();
      if (text) text->push_back(token);
      std::vector<int32_t> chosen = executor_->decode(token, wanted, {}, times.size(), left > wanted);
      if (chosen.empty()) chosen.push_back(argmax(executor_->forward(std::span(&token, 1), Logits::kLast)));
      token = chosen.back();
      const double took = ms_since(start);
      pace_.took(static_cast<int>(chosen.size()), took);
      times.insert(times.end(), chosen.size(), took / static_cast<double>(chosen.size()));
      if (text) text->insert(text->end(), chosen.begin(), chosen.end() - 1);
    }
    return times;
  }

  void judge() {
    result.quality = judge_tokens(text_, [&](int32_t id) {
      return model_->tokenizer ? model_->tokenizer->is_special(id)
                               : std::count(model_->config.eos_ids.begin(), model_->config.eos_ids.end(), id) > 0;
    });
    if (workload_.reference.empty()) return;
    progress_("comparing with the reference");
    const std::string where = workload_.reference.string();
    const Json reference = parse_json(read_text_file(workload_.reference), where);
    std::vector<int32_t> ids = require_array(reference, "prompt_ids", where).get<std::vector<int32_t>>();
    const auto greedy = require_array(reference, "greedy_ids", where).get<std::vector<int32_t>>();
    const size_t asked = ids.size();
    ids.insert(ids.end(), greedy.begin(), greedy.end());
    const auto fresh = make_executor(
        *model_, workload_.backend,
        {static_cast<int>(ids.size()), workload_.threads, 0, workload_.device, false, workload_.gpu_memory});
    const std::span<const float> logits = fresh->forward(std::span(ids).first(ids.size() - 1), Logits::kAll);
    const auto vocab = static_cast<size_t>(model_->config.vocab);
    double same = 0, sum = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const std::span<const float> row = logits.subspan(i * vocab, vocab);
      sum += surprise(row, ids[i + 1]);
      if (i + 1 >= asked) same += argmax(row) == ids[i + 1] ? 1 : 0;
    }
    result.quality.token_match = same / static_cast<double>(greedy.size());
    result.quality.perplexity = std::exp(sum / static_cast<double>(ids.size() - 1));
    if (*result.quality.token_match < 0.75) {
      result.quality.ok = false;
      result.quality.reasons.push_back(
          fmt::format("only {:.0f} % of the reference's tokens", 100 * *result.quality.token_match));
    }
  }

  const InferenceWorkload workload_;
  const Told& progress_;
  int context_ = 0;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<Executor> executor_;
  std::vector<int32_t> prompt_, text_;
  DecodePace pace_{workload_.decode_batch};
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
  fail({ErrorCode::kUsage, "an unknown workload", "--workload", "xs, s, m, l or xl", name, ""});
}

InferenceResult bench_inference(const std::filesystem::path& path, const InferenceWorkload& workload,
                                const Told& progress) {
  Subject subject(path, workload, progress);
  for (int run = -1; run < workload.runs; ++run) {  // run −1 warms up and is not counted
    progress(run < 0 ? "warming up" : fmt::format("run {} of {}", run + 1, workload.runs));
    subject.run(run >= 0);
  }
  subject.finish();
  progress("");
  return subject.result;
}

std::pair<InferenceResult, InferenceResult> bench_interleaved(const std::filesystem::path& a,
                                                              const InferenceWorkload& a_workload,
                                                              const std::filesystem::path& b,
                                                              const InferenceWorkload& b_workload,
                                                              const Told& progress) {
  Subject first(a, a_workload, progress), second(b, b_workload, progress);
  for (int run = -1; run < a_workload.runs; ++run) {
    progress(run < 0 ? "warming up" : fmt::format("run {} of {}, both", run + 1, a_workload.runs));
    (run % 2 == 0 ? first : second).run(run >= 0);  // who goes first changes every time
    (run % 2 == 0 ? second : first).run(run >= 0);
  }
  first.finish();
  second.finish();
  progress("");
  return {first.result, second.result};
}

}  // namespace doppler
