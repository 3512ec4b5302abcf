#include "cli/debug_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "debug/attention_math.h"
#include "debug/page.h"
#include "engine/perplexity.h"
#include "format/decode.h"

namespace doppler {
namespace {

constexpr int kMaxRows = 160;  // of an attention map

// What one head looks at, from the projections: a GPU keeps turned keys in its cache only.
AttentionHead attention_of(const LoadedModel& model, const Stages& run, const std::string& head) {
  AttentionHead result;
  if (!head.empty() && std::sscanf(head.c_str(), "%d:%d", &result.layer, &result.head) != 2) {
    fail({.code = ErrorCode::kUsage,
          .what = "a head that cannot be read",
          .where = "--head",
          .expected = "LAYER:HEAD",
          .got = head});
  }
  const ModelConfig& config = model.config;
  if (result.layer < 0 || result.layer >= config.layer_count() || result.head < 0 || result.head >= config.heads) {
    fail({.code = ErrorCode::kUsage,
          .what = "there is no such head",
          .where = "--head",
          .expected = fmt::format("layer 0 to {}, head 0 to {}", config.layer_count() - 1, config.heads - 1),
          .got = head});
  }
  const std::string layer = fmt::format("layer{}.", result.layer);
  const Step* step = model.plan.find(layer + "attention");
  const auto before = [&](const char* name) {
    const Stage* scaled = run.find(layer + name + "scale");
    return scaled ? scaled : run.find(layer + name + (config.qk_norm ? "norm" : "proj"));
  };
  const Stage *q = before("q_"), *k = before("k_"), *v = run.find(layer + (config.v_norm ? "v_norm" : "v_proj"));
  if (!step || !q || !k || !v) return result;  // that layer was not tapped
  const LayerConfig& kind = config.layers[static_cast<size_t>(result.layer)];
  const int head_dim = config.head_dim_of(result.layer);
  const RopeTable table = make_rope_table(config.ropes[static_cast<size_t>(kind.rope)], head_dim, config.max_context);
  const auto position = [](size_t row) { return static_cast<double>(row); };
  const std::vector<float> queries = apply_rope(q->data, q->width, head_dim, table, position);
  const std::vector<float> keys = apply_rope(k->data, k->width, head_dim, table, position);
  result.rows = std::min(q->rows(), kMaxRows);
  AttentionGuess guess{std::get<Attention>(step->op), 0, {}};
  if (guess.op.sinks) {
    const Tensor& sinks = model.weights.at(layer + "sinks");
    guess.sinks.resize(static_cast<size_t>(sinks.cols()));
    decode_row(sinks.dtype, sinks.row(0), guess.sinks.data(), guess.sinks.size());
  }
  result.weights = attention_pattern({queries, keys, v->data, result.rows}, guess, result.head);
  return result;
}

std::string shown_piece(const LoadedModel& model, int32_t id) {
  return model.tokenizer ? model.tokenizer->decode(std::vector<int32_t>{id}, false) : fmt::format("{} ", id);
}

}  // namespace

void write_debug_page(const std::filesystem::path& path, const std::string& head, const LoadedModel& model,
                      const BackendChoice& backend, const Stages& run, const Comparison* comparison,
                      const std::string& against) {
  PageContents page;
  page.model = model.config.id + " " + model.quantization;
  page.backend = backend.name + ", " + backend.about;
  page.about = fmt::format("{} tokens{}", run.prompt_ids.size(), against.empty() ? "" : ", compared with " + against);
  page.run = &run;
  page.plan = &model.plan;
  page.comparison = comparison;
  page.attention = attention_of(model, run, head);
  for (const int32_t id : run.prompt_ids) page.tokens.push_back(shown_piece(model, id));
  if (const Stage* logits = run.find("logits"); logits && logits->position == 0) {
    for (int p = 0; p + 1 < logits->rows(); ++p) {
      const int32_t next = run.prompt_ids[static_cast<size_t>(p + 1)];
      page.probabilities.push_back(
          {shown_piece(model, next), std::exp(-negative_log_likelihood(logits->row(p), next))});
    }
    std::vector<std::pair<float, int32_t>> order;
    const std::span<const float> last = logits->row(logits->rows() - 1);
    for (size_t i = 0; i < last.size(); ++i) order.emplace_back(-last[i], static_cast<int32_t>(i));
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < std::min<size_t>(5, order.size()); ++i) {
      page.top.emplace_back(shown_piece(model, order[i].second), -order[i].first);
    }
  }
  write_file_whole(path, debug_page(page));
}

}  // namespace doppler
