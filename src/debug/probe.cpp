#include "debug/probe.h"

#include <fmt/format.h>

#include <charconv>

#include "base/error.h"

namespace doppler {
namespace {

[[noreturn]] void bad_probe(const std::string& text, const std::string& why) {
  fail({.code = ErrorCode::kUsage,
        .what = "a probe that cannot be read: " + why,
        .where = "--probe",
        .expected = "'stage=layer3.attn_norm,tokens=-1,dims=0,5'",
        .got = text});
}

int whole_number(const std::string& word, const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) bad_probe(text, "'" + word + "' is no number");
  return value;
}

}  // namespace

Probe parse_probe(const std::string& text, const Plan& plan) {
  Probe probe;
  std::string key;
  bool tokens_given = false;
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
    } else if (key == "tokens") {
      if (!tokens_given) probe.tokens.clear();
      tokens_given = true;
      probe.tokens.push_back(whole_number(word, text));
    } else if (key == "dims") {
      probe.dims.push_back(whole_number(word, text));
    } else {
      bad_probe(text, "it has the keys stage, tokens and dims");
    }
  }
  if (!plan.find(probe.stage)) {
    fail({.code = ErrorCode::kUsage,
          .what = "a probe names a step that the model does not have",
          .where = "--probe",
          .got = probe.stage,
          .todo = "doppler inspect MODEL --plan lists them"});
  }
  return probe;
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
