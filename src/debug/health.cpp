#include "debug/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "debug/statistics.h"

namespace doppler {
namespace {

constexpr int kCertainTokens = 8;       // in a row that leave no doubt
constexpr double kNoDoubt = 1e-6;       // nats
constexpr int kOneExpertTokens = 32;    // in a row that one expert takes
constexpr float kAllWeight = 0.99f;     // of the first expert, where there are several
constexpr size_t kLongestPeriod = 8;    // tokens that are said over and over
constexpr size_t kRepeatedTokens = 64;  // said so: eight times the longest period, more than tables and rules take

double entropy(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double total = 0, weighted = 0;
  for (const float logit : logits) {
    const double e = std::exp(logit - highest);
    total += e;
    weighted += e * (logit - highest);
  }
  return std::log(total) - weighted / total;
}

int output_layer(const std::string& stage) {
  int layer = -1;
  return std::sscanf(stage.c_str(), "layer%d.out", &layer) == 1 && stage == fmt::format("layer{}.out", layer) ? layer
                                                                                                              : -1;
}

}  // namespace

HealthRecord parse_health_record(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where);
  HealthRecord record;
  record.model = require_string(json, "model", where);
  record.about = require_string(json, "about", where);
  record.prompt = string_or(json, "prompt", "", where);
  record.next = string_or(json, "next", "", where);
  const Json *shape = find(json, "shape"), *like = find(json, "like"), *ranges = find(json, "max_abs");
  if (!shape || !like || !ranges || !ranges->is_object()) {
    fail({.code = ErrorCode::kFormat,
          .what = "a record of a healthy run lacks a part",
          .where = where,
          .expected = "shape, like and max_abs"});
  }
  record.shape = *shape;
  record.like = *like;
  for (const auto& [stage, range] : ranges->items()) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number() || !range[1].is_number()) {
      fail({.code = ErrorCode::kFormat,
            .what = "a range that is none",
            .where = where + ": " + stage,
            .expected = "[least, most]",
            .got = brief(range)});
    }
    record.max_abs[stage] = {range[0].get<float>(), range[1].get<float>()};
  }
  return record;
}

double HealthRecord::growth() const {
  std::map<int, Range> layers;
  for (const auto& [stage, range] : max_abs) {
    if (const int layer = output_layer(stage); layer >= 0) layers[layer] = range;
  }
  double most = 0;
  const Range* before = nullptr;
  for (const auto& [layer, range] : layers) {
    if (before && before->least > 0) most = std::max(most, static_cast<double>(range.most) / before->least);
    before = &range;
  }
  return most;
}

Json shape_of_model(const ModelConfig& c) {
  return {{"layers", c.layer_count()}, {"hidden", c.hidden},     {"ffn", c.ffn},    {"heads", c.heads},
          {"kv_heads", c.kv_heads},    {"head_dim", c.head_dim}, {"vocab", c.vocab}};
}

Json kind_of_model(const ModelConfig& c) {
  return {{"norm_offset", static_cast<int>(c.norm_offset)},
          {"scaled_embedding", c.embed_scale != 1},
          {"qk_norm", c.qk_norm},
          {"pre_norms", c.pre_norms},
          {"post_attn_norm", c.post_attn_norm},
          {"post_ffn_norm", c.post_ffn_norm},
          {"activation", std::string(name_of(c.activation))},
          {"experts", c.experts > 0}};
}

bool is_of(const HealthRecord& record, const ModelConfig& config) {
  return record.shape == shape_of_model(config) && record.like == kind_of_model(config);
}

std::vector<HealthRecord> health_records(const ModelConfig& config) {
  std::vector<HealthRecord> records;
  for (const EmbeddedHealth& embedded : embedded_health()) {
    HealthRecord record = parse_health_record(embedded.text, embedded.file);
    if (record.like != kind_of_model(config)) continue;
    records.insert(is_of(record, config) ? records.begin() : records.end(), std::move(record));
  }
  return records;
}

std::string Anomaly::text() const {
  return fmt::format("{} at position {}: {}: expected {}, got {}", step, position, what, expected, got);
}

HealthWatch::HealthWatch(const ModelConfig& config, const Plan& plan, std::vector<HealthRecord> records)
    : records_(std::move(records)) {
  for (const HealthRecord& record : records_) {
    growth_ = std::max(growth_, record.growth());
    if (!own_ && is_of(record, config)) own_ = &record;
  }
  for (const Step& step : plan.steps) {
    const bool looked_at = output_layer(step.name) >= 0 || std::holds_alternative<Attention>(step.op) ||
                           std::holds_alternative<Route>(step.op) || step.name == "logits";
    if (looked_at) steps_.insert(step.name);
  }
}

void HealthWatch::see(const Step& step, std::span<const float> data, int tokens, int position) {
  if (tokens < 1 || !taps(steps_, step)) return;
  const std::span<const float> row = data.last(data.size() / static_cast<size_t>(tokens));
  const int last = position + tokens - 1;
  if (output_layer(step.name) >= 0) see_layer(step, row, last);
  if (const auto* attention = std::get_if<Attention>(&step.op)) see_heads(step, *attention, row, last);
  if (const auto* route = std::get_if<Route>(&step.op)) see_route(step, *route, data, tokens, position);
  if (step.name == "logits") see_logits(step, row, last);
}

// The first position is left out: many models keep what they need nowhere else in it, and its values are a thousand
// times those of the others.
void HealthWatch::see_layer(const Step& step, std::span<const float> row, int position) {
  if (position == 0) return;
  const float max_abs = statistics(row).max_abs;
  const int layer = output_layer(step.name);
  const LayerOutput before = last_;
  last_ = {layer, position, max_abs};
  if (own_) {
    const auto found = own_->max_abs.find(step.name);
    if (found != own_->max_abs.end()) {
      const double least = found->second.least / kHealthMargin, most = found->second.most * kHealthMargin;
      if (max_abs >= least && max_abs <= most) return;
      add("range", {step.name, position, max_abs > most ? "the values explode" : "the values collapse",
                    fmt::format("a largest of {:.4g} to {:.4g}, as in healthy runs of {}", least, most, own_->model),
                    fmt::format("{:.4g}", max_abs)});
      return;
    }
  }
  if (growth_ <= 0 || before.layer != layer - 1 || before.position != position) return;
  const double growth = max_abs / static_cast<double>(before.max_abs), most = growth_ * kHealthMargin;
  if (growth <= most && growth >= 1 / most) return;
  add("growth", {step.name, position, growth > most ? "the values explode" : "the values collapse",
                 fmt::format("at most {:.3g} times the layer before, or as much less", most),
                 fmt::format("{:.4g} after {:.4g}", max_abs, before.max_abs)});
}

void HealthWatch::see_heads(const Step& step, const Attention& op, std::span<const float> row, int position) {
  const auto size = static_cast<size_t>(op.head_dim);
  for (size_t head = 0; (head + 1) * size <= row.size(); ++head) {
    const std::span<const float> values = row.subspan(head * size, size);
    if (std::any_of(values.begin(), values.end(), [](float v) { return v != 0; })) continue;
    add("head", {step.name, position, fmt::format("head {} is dead", head), "values", "zeros alone"});
    return;
  }
}

void HealthWatch::see_route(const Step& step, const Route& op, std::span<const float> data, int tokens, int position) {
  Chosen& chosen = chosen_[step.name];
  const auto k = static_cast<size_t>(op.k);
  for (int t = 0; t < tokens; ++t) {
    const std::span<const float> row = data.subspan(static_cast<size_t>(t) * 2 * k, 2 * k);
    const int first = static_cast<int>(row[0]);
    const bool all = k == 1 || row[k] > kAllWeight;
    chosen.tokens = !all ? 0 : first == chosen.expert ? chosen.tokens + 1 : 1;
    chosen.expert = first;
    if (chosen.tokens < kOneExpertTokens) continue;
    add("expert", {step.name, position + t, "one expert takes every token", "several experts",
                   fmt::format("expert {} for {} tokens in a row", first, chosen.tokens)});
    return;
  }
}

void HealthWatch::see_logits(const Step& step, std::span<const float> row, int position) {
  const auto [least, most] = std::minmax_element(row.begin(), row.end());
  if (*least == *most) {
    add("equal", {step.name, position, "every token is as likely", "logits that differ", fmt::format("{:.4g}", *most)});
    return;
  }
  const double nats = entropy(row);
  certain_ = nats < kNoDoubt ? certain_ + 1 : 0;
  if (certain_ < kCertainTokens) return;
  add("certain", {step.name, position, "the entropy is 0", fmt::format("some doubt in {} tokens", kCertainTokens),
                  fmt::format("{:.1e} nats", nats)});
}

void HealthWatch::add(const char* kind, Anomaly anomaly) {
  if (told_.emplace(kind, anomaly.step).second) found_.push_back(std::move(anomaly));
}

std::vector<Anomaly> HealthWatch::take() { return std::exchange(found_, {}); }

std::optional<std::string> HealthWatch::repeated(std::span<const int32_t> tokens) {
  if (tokens.size() < kRepeatedTokens) return std::nullopt;
  const std::span<const int32_t> last = tokens.last(kRepeatedTokens);
  for (size_t period = 1; period <= kLongestPeriod; ++period) {
    if (!std::equal(last.begin() + static_cast<std::ptrdiff_t>(period), last.end(), last.begin())) continue;
    return period == 1 ? fmt::format("token {} for {} tokens", last.back(), last.size())
                       : fmt::format("the same {} tokens for {} tokens", period, last.size());
  }
  return std::nullopt;
}

std::vector<Anomaly> find_anomalies(const Stages& run, const ModelConfig& config, const Plan& plan) {
  HealthWatch watch(config, plan, health_records(config));
  for (const Step& step : plan.steps) {
    const Stage* stage = run.find(step.name);
    if (stage && stage->rows() > 0) watch.see(step, stage->data, stage->rows(), stage->position);
  }
  return watch.take();
}

std::string health_table(const Stages& run, const ModelConfig& config, const std::string& next) {
  const std::vector<HealthRecord> records = health_records(config);
  if (records.empty() || !is_of(records[0], config)) return "";
  const HealthRecord& record = records[0];
  std::string text = fmt::format("\nHealthy runs of {}: {}\n{:<26}{:>24}{:>12}\n", record.model, record.about,
                                 "largest value of", "recorded", "here");
  for (const Stage& stage : run.all) {
    const auto found = record.max_abs.find(stage.name);
    if (found == record.max_abs.end() || stage.rows() == 0) continue;
    const float here = statistics(stage.row(stage.rows() - 1)).max_abs;
    const auto [least, most] = found->second;
    const std::string range = least == most ? fmt::format("{:.5g}", most) : fmt::format("{:.5g} … {:.5g}", least, most);
    const bool within = here >= least / kHealthMargin && here <= most * kHealthMargin;
    text += fmt::format("{:<26}{:>24}{:>12.5g}{}\n", stage.name, range, here,
                        within ? "" : fmt::format("  ✗ not within {:g} times", kHealthMargin));
  }
  if (!record.next.empty() && !next.empty()) {
    text += fmt::format("{:<26}{:>24}{:>12}  (behind \"{}\")\n", "likeliest next", "'" + record.next + "'",
                        "'" + next + "'", record.prompt);
  }
  return text;
}

}  // namespace doppler
