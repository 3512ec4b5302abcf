#include "engine/not_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "format/decode.h"

namespace doppler {
namespace {

constexpr size_t kTappedBytes = size_t{64} << 20;  // that a GPU keeps of one piece's steps, about
constexpr size_t kMostTokens = 128;                // of a piece
constexpr uint64_t kSalt = 0x6e6f742066696e69;     // nobody else's: pages of the second run are never found by others

struct Place {
  size_t step = 0;   // in the plan
  int position = 0;  // of the token
  size_t column = 0;
  float value = 0;
};

// The first step, in the order of the plan, of the first piece in which one makes something that is not finite.
class Search {
 public:
  Search(Executor& executor, std::span<const int32_t> text, size_t prompt, const std::optional<AdapterUses>& adapters)
      : executor_(executor),
        plan_(*executor.model().plan),
        text_(text),
        prompt_(std::min(prompt, text.size())),
        adapters_(adapters) {}

  // False: the cache has no room for all of the text beside what others hold.
  bool run() {
    KvCache& cache = executor_.cache();
    Sequence sequence = adapters_ ? cache.start(kSalt, *adapters_) : cache.start(kSalt);
    bool room = true;
    executor_.set_tap([this](const Step& step, std::span<const float> data, int tokens, int position) {
      look(step, data, tokens, position);
    });
    const Phase phase = executor_.phase_of_prompt(prompt_);
    const size_t piece = piece_tokens();
    for (size_t at = 0; at < text_.size() && !found_;) {
      const size_t count = at < prompt_ ? std::min(piece, prompt_ - at) : 1;
      room = executor_.cache().reserve(sequence, static_cast<int>(count));
      if (!room) break;
      const BatchItem item{&sequence, text_.subspan(at, count), at < prompt_ ? phase : Phase::kDecode,
                           at + count == text_.size() ? Logits::kLast : Logits::kNone};
      executor_.run(std::span(&item, 1));
      at += count;
    }
    executor_.set_tap(nullptr);
    return room;
  }

  const std::optional<Place>& found() const { return found_; }

 private:
  size_t piece_tokens() const {
    size_t bytes = 0;
    for (const Step& step : plan_.steps) {
      bytes += static_cast<size_t>(plan_.values[static_cast<size_t>(step.output)].width) * sizeof(float);
    }
    return std::clamp<size_t>(kTappedBytes / std::max<size_t>(bytes, 1), 1, kMostTokens);
  }

  void look(const Step& step, std::span<const float> data, int tokens, int position) {
    if (all_finite(data.data(), data.size())) return;
    size_t number = 0;
    while (number < plan_.steps.size() && plan_.steps[number].name != step.name) ++number;
    if (found_ && found_->step <= number) return;
    const size_t width = data.size() / static_cast<size_t>(std::max(1, tokens));
    const size_t at = static_cast<size_t>(
        std::find_if(data.begin(), data.end(), [](float x) { return !std::isfinite(x); }) - data.begin());
    found_ = Place{number, position + static_cast<int>(at / width), at % width, data[at]};
  }

  Executor& executor_;
  const Plan& plan_;
  const std::span<const int32_t> text_;
  const size_t prompt_;
  const std::optional<AdapterUses> adapters_;
  std::optional<Place> found_;
};

// "nan in tensor model.norm.weight, row 0, column 5", of the first weight that is not finite among `count` rows; empty
// where all are.
std::string not_finite_weight(const Tensor& tensor, int64_t first, int64_t count) {
  const auto cols = static_cast<size_t>(tensor.cols());
  std::vector<float> row(cols);
  std::vector<std::byte> scratch;
  for (int64_t r = first; r < first + count; ++r) {
    decode_row(tensor.dtype, tensor.rows_at(r, 1, scratch), row.data(), cols);
    if (all_finite(row.data(), cols)) continue;
    const auto at = std::find_if(row.begin(), row.end(), [](float x) { return !std::isfinite(x); });
    return fmt::format("{} in tensor {}, row {}, column {}", *at, tensor.name, r, at - row.begin());
  }
  return "";
}

std::string not_finite_weight(const ModelParts& model, const Step& step, int32_t token) {
  for (const WeightUse& use : step.weights) {
    const Tensor* tensor = model.weights->find(use.slot);
    if (!tensor) continue;
    const bool one_row = std::holds_alternative<Embed>(step.op);
    const std::string found = not_finite_weight(*tensor, one_row ? token : 0, one_row ? 1 : tensor->rows());
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

Error explain_not_finite(Executor& executor, std::span<const int32_t> text, size_t prompt,
                         const std::optional<AdapterUses>& adapters) {
  const ModelParts& model = executor.model();
  const bool device = executor.name() == "webgpu";
  Error error{.code = device ? ErrorCode::kDevice : ErrorCode::kInternal,
              .what = "the model's logits are not finite numbers",
              .expected = "finite numbers",
              .got = fmt::format("NaN or an infinity behind token {}", text.size()),
              .todo = device ? "Use --backend cpu" : "Use --backend ref"};
  if (!model.config || !model.plan || !model.weights || text.empty()) return error;
  error.where = model.config->id;
  if (!executor.can_tap()) return error;
  executor.cache().drop_prefixes();
  Search search(executor, text, prompt, adapters);
  if (!search.run()) {
    error.got += "; the cache has no room to look for the step";
    return error;
  }
  const std::optional<Place>& found = search.found();
  if (!found) {
    error.got += ", but not when the same tokens run once more step by step";
    return error;
  }
  const Step& step = model.plan->steps[found->step];
  error.where += ": " + step.name;
  const std::string weight = not_finite_weight(model, step, text[static_cast<size_t>(found->position)]);
  if (!weight.empty()) {
    error.code = ErrorCode::kFormat;
    error.what = "the model's weights are not all finite numbers";
    error.got = fmt::format("{}; {} is the first step whose output is not finite", weight, step.name);
    error.todo = "Fetch or convert the model again; doppler verify checks its file";
    return error;
  }
  error.got = fmt::format("{} behind token {}, column {}, out of finite inputs and weights", found->value,
                          found->position + 1, found->column);
  return error;
}

}  // namespace doppler
