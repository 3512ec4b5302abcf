#include "bench/surface.h"

#include "base/error.h"
#include "bench/line_process.h"
#include "debug/stages.h"

namespace doppler {
namespace {

constexpr const char* kWhere = "the browser";

ErrorCode code_named(const std::string& name) {
  for (const ErrorCode code : {ErrorCode::kUsage, ErrorCode::kFile, ErrorCode::kFormat, ErrorCode::kUnsupported,
                               ErrorCode::kMemory, ErrorCode::kInternal}) {
    if (name_of(code) == name) return code;
  }
  if (name == "quota") return ErrorCode::kMemory;
  if (name == "network") return ErrorCode::kFile;
  return ErrorCode::kDevice;
}

template <class T>
std::vector<T> numbers(const Json& answer, const char* key, size_t count) {
  const Json& list = require_array(answer, key, kWhere);
  std::vector<T> values;
  for (const Json& value : list) {
    if (!value.is_number())
      fail({.code = ErrorCode::kInternal,
            .what = "an answer holds no number",
            .where = kWhere,
            .expected = key,
            .got = brief(value)});
    values.push_back(value.get<T>());
  }
  if (values.size() == count) return values;
  fail({.code = ErrorCode::kInternal,
        .what = "an answer of another length",
        .where = kWhere,
        .expected = std::to_string(count),
        .got = std::to_string(values.size()),
        .todo = key});
}

uint64_t whole(const Json& answer, const char* key) {
  return static_cast<uint64_t>(std::max(0.0, require_number(answer, key, kWhere)));
}

class BrowserSurface : public BenchSurface {
 public:
  BrowserSurface(const BrowserOptions& options, const std::filesystem::path& path, const InferenceWorkload& workload,
                 int context, const OnStatus& progress)
      : model_(LoadedModel::load(path)),
        decode_batch_(workload.decode_batch),
        process_(options.command, std::filesystem::current_path()) {
    model_.need_text();
    std::error_code ec;
    if (!options.profile_dir.empty()) std::filesystem::create_directories(options.profile_dir, ec);
    if (ec)
      fail({.code = ErrorCode::kFile,
            .what = "a folder cannot be made",
            .where = options.profile_dir.string(),
            .got = ec.message()});
    if (!workload.tapped_layers.empty()) taps_ = steps_of_layers(model_.plan, workload.tapped_layers);
    progress("starting the browser");
    const Json opened =
        ask({{"do", "open"},
             {"model", std::filesystem::absolute(path).string()},
             {"profile", options.profile_dir.empty() ? "" : std::filesystem::absolute(options.profile_dir).string()}});
    facts_.surface = "browser";
    facts_.backend = "webgpu";
    facts_.browser = require_string(opened, "browser", kWhere);
    progress("loading");
    Json loaded = load(context);
    // A fresh profile has nothing stored: that load was cold, and the next is warm.
    if (bool_or(loaded, "downloaded", false, kWhere)) {
      facts_.cold_load_ms = require_number(loaded, "ms", kWhere);
      progress("loading, warm");
      loaded = load(context);
    }
    facts_.warm_load_ms = require_number(loaded, "ms", kWhere);
    facts_.kv_bytes = whole(loaded, "kv_bytes");
    facts_.gpu = require_object(loaded, "gpu", kWhere);
  }

  const LoadedModel& model() const override { return model_; }
  const Facts& facts() const override { return facts_; }

  GreedyRun run(std::span<const int32_t> prompt, int32_t first, int tokens) override {
    const Json answer = ask({{"do", "run"},
                             {"ids", prompt},
                             {"first", first},
                             {"tokens", tokens},
                             {"decode_batch", decode_batch_},
                             {"taps", taps_}});
    const auto count = static_cast<size_t>(tokens);
    GreedyRun run;
    run.first_token_ms = require_number(answer, "first_token_ms", kWhere);
    run.token_ms = numbers<double>(answer, "token_ms", count);
    run.ids = numbers<int32_t>(answer, "ids", count + 1);
    run.spent.submits = whole(answer, "submits");
    run.spent.dispatches = whole(answer, "dispatches");
    run.spent.bytes = whole(answer, "device_bytes");
    return run;
  }

  std::vector<TokenScore> score(std::span<const int32_t> tokens) override {
    const Json answer = ask({{"do", "score"}, {"ids", tokens}});
    const auto choices = numbers<int32_t>(answer, "choices", tokens.size() - 1);
    const auto nll = numbers<double>(answer, "nll", tokens.size() - 1);
    std::vector<TokenScore> list;
    for (size_t i = 0; i < choices.size(); ++i) list.push_back({choices[i], nll[i]});
    return list;
  }

  uint64_t peak_host_bytes() override { return whole(ask({{"do", "memory"}}), "bytes"); }
  double bandwidth(double) override { return require_number(ask({{"do", "bandwidth"}}), "bytes_per_second", kWhere); }

 private:
  Json load(int context) { return ask({{"do", "load"}, {"context", context}}); }

  // What fails in the page is told in the page's words.
  Json ask(const Json& request) {
    Json answer = process_.ask(request);
    const Json* failed = find(answer, "failed");
    if (!failed) return answer;
    fail({.code = code_named(require_string(*failed, "code", kWhere)),
          .what = require_string(*failed, "message", kWhere),
          .where = kWhere});
  }

  const LoadedModel model_;  // its weights stay where they are: what a token costs and which text it is are told here
  const int decode_batch_;
  TapSteps taps_;
  LineProcess process_;
  Facts facts_;
};

}  // namespace

std::unique_ptr<BenchSurface> browser_surface(const BrowserOptions& options, const std::filesystem::path& model,
                                              const InferenceWorkload& workload, int context,
                                              const OnStatus& progress) {
  return std::make_unique<BrowserSurface>(options, model, workload, context, progress);
}

}  // namespace doppler
