#include "debug/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"

namespace doppler {
namespace {

[[noreturn]] void bad_probe(const std::string& text, const std::string& why) {
  fail({.code = ErrorCode::kUsage,
        .what = "a probe that cannot be read: " + why,
        .where = "--probe",
        .expected = "'stage=layer3.attn_norm,tokens=-1,dims=0,5' or 'stage=attn_norm,layers=0,3,dims=0'",
        .got = text});
}

int whole_number(const std::string& word, const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) bad_probe(text, "'" + word + "' is no number");
  return value;
}

}  // namespace

std::vector<Probe> parse_probe(const std::string& text, const Plan& plan, std::span<const int> tapped) {
  Probe probe;
  std::string key;
  std::vector<int> layers(tapped.begin(), tapped.end());
  bool tokens_given = false, layers_given = false;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string word = text.substr(at, comma - at);
    at = comma + 1;
    if (const size_t equals = word.find('='); equals != std::string::npos) {
      key = word.substr(0, equals);
      word = word.substr(equals + 1);
    }
    if (key == "stage") {
      probe.stage = word;
    } else if (key == "id") {
      probe.id = word;
    } else if (key == "layers") {
      if (!layers_given) layers.clear();
      layers_given = true;
      layers.push_back(whole_number(word, text));
    } else if (key == "tokens") {
      if (!tokens_given) probe.tokens.clear();
      tokens_given = true;
      probe.tokens.push_back(whole_number(word, text));
    } else if (key == "dims") {
      probe.dims.push_back(whole_number(word, text));
    } else {
      bad_probe(text, "it has the keys stage, layers, tokens, dims and id");
    }
  }
  const std::vector<std::string> names = steps_of_word(probe.stage, plan, layers);
  if (names.empty()) {
    fail({.code = ErrorCode::kUsage,
          .what = "a probe names a step that the model does not have",
          .where = "--probe",
          .got = text,
          .todo = "doppler inspect MODEL --plan lists them"});
  }
  std::vector<Probe> probes;
  for (const std::string& name : names) {
    probes.push_back(probe);
    probes.back().stage = name;
  }
  return probes;
}

std::vector<std::string> steps_of_word(const std::string& word, const Plan& plan, std::span<const int> layers) {
  if (plan.find(word)) return {word};
  struct Alias {
    std::string_view word;
    std::array<std::string_view, 2> ours;  // the first that a layer has
  };
  static constexpr Alias kAliases[] = {{"attn_normed", {"attn_norm"}},
                                       {"attn_out", {"attn_gated", "attention"}},
                                       {"o_proj", {"attn_out"}},
                                       {"post_attn", {"attn_residual"}},
                                       {"ffn_in", {"pre_ffn_norm", "attn_residual"}},
                                       {"ffn_normed", {"pre_ffn_norm"}},
                                       {"ffn_gate", {"gate_proj", "experts_gate_up"}},
                                       {"ffn_up", {"up_proj", "experts_gate_up"}},
                                       {"ffn_act", {"glu"}},
                                       {"layer_out", {"out"}}};
  int last = -1;
  for (const Step& step : plan.steps) last = std::max(last, step.layer);
  const auto out_of = [](int layer) { return layer < 0 ? std::string("embed") : fmt::format("layer{}.out", layer); };
  if (word == "embed_out") return {"embed"};
  if (word == "pre_final_norm") return {out_of(last)};
  if (word == "logits_final") return {"logits"};
  if (word == "raw_logits") return {"logits"};  // of a model that neither scales nor caps them
  const auto* const alias =
      std::find_if(std::begin(kAliases), std::end(kAliases), [&](const Alias& a) { return a.word == word; });
  std::vector<std::string> names;
  for (int layer = 0; layer <= last; ++layer) {
    if (!layers.empty() && std::find(layers.begin(), layers.end(), layer) == layers.end()) continue;
    if (word == "attn_input") names.push_back(out_of(layer - 1));
    const auto take = [&](std::string_view part) {
      std::string name = fmt::format("layer{}.{}", layer, part);
      const bool there = plan.find(name) != nullptr;
      if (there) names.push_back(std::move(name));
      return there;
    };
    if (alias == std::end(kAliases)) {
      take(word);
    } else {
      for (const std::string_view part : alias->ours) {
        if (take(part)) break;
      }
    }
  }
  return names;
}

std::vector<ProbedValue> probe(const Probe& probe, const Stages& stages) {
  const Stage* stage = stages.find(probe.stage);
  if (!stage) {
    fail({.code = ErrorCode::kUsage,
          .what = "the probed step was not tapped",
          .where = "--probe",
          .got = probe.stage,
          .todo = "Name its layer in --layers"});
  }
  std::vector<ProbedValue> values;
  for (const int token : probe.tokens) {
    const int row = token < 0 ? stage->rows() + token : token - stage->position;
    if (row < 0 || row >= stage->rows()) {
      fail({.code = ErrorCode::kUsage,
            .what = "the probed token is not there",
            .where = probe.stage,
            .expected = fmt::format("{} to {}", stage->position, stage->position + stage->rows() - 1),
            .got = std::to_string(token)});
    }
    std::vector<int> dims = probe.dims;
    for (int d = 0; probe.dims.empty() && d < stage->width; ++d) dims.push_back(d);
    for (const int dim : dims) {
      if (dim < 0 || dim >= stage->width) {
        fail({.code = ErrorCode::kUsage,
              .what = "the probed column is not there",
              .where = probe.stage,
              .expected = fmt::format("0 to {}", stage->width - 1),
              .got = std::to_string(dim)});
      }
      values.push_back({probe.stage, stage->position + row, dim, stage->row(row)[static_cast<size_t>(dim)]});
    }
  }
  return values;
}

}  // namespace doppler
