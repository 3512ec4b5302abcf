#include "debug/causes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "debug/statistics.h"
#include "format/decode.h"

namespace doppler {
namespace {

// ‖Σ (a(i) − b(i))‖ / ‖b‖ over all elements of the stage.
double distance(size_t count, const std::function<double(size_t)>& a, const std::function<double(size_t)>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < count; ++i) {
    difference += (a(i) - b(i)) * (a(i) - b(i));
    size += b(i) * b(i);
  }
  return size > 0 ? std::sqrt(difference / size) : (difference > 0 ? 1 : 0);
}

// Good enough to say "this is the same": rounding, but nothing like the fault itself.
bool near(double error, const Suspect& s) {
  return error <= std::max(s.bound(), 1e-4) && error < s.evidence.bad.rel_error / 4;
}

std::string not_finite(const Suspect& s) {
  const TensorStatistics t = statistics(s.rows.got);
  if (t.not_finite == 0) return "";
  const int width = s.rows.width;
  return fmt::format(
      "{} of {} values are not finite, the first at position {}, column {}: an overflow (16-bit floats "
      "end at 65504), a division by zero, or memory nobody wrote",
      t.not_finite, t.count, s.rows.position + static_cast<int>(t.first_not_finite) / width,
      static_cast<int>(t.first_not_finite) % width);
}

std::string all_zero(const Suspect& s) {
  if (statistics(s.rows.got).max_abs > 0 || statistics(s.rows.expected).max_abs == 0) return "";
  return "all values are zero: the kernel did nothing (a dropped binding, an empty dispatch) or its output was read "
         "too early";
}

std::string skipped(const Suspect& s) {
  for (size_t i = 0; i < s.step.inputs.size(); ++i) {
    const Stage* input = s.reference_input(i);
    if (!input || input->width != s.rows.width || input->rows() < s.rows.rows) continue;
    const Stage wrapped{"", s.rows.width, s.rows.position, {s.rows.got.begin(), s.rows.got.end()}};
    const AlignedRows a = align(wrapped, *input);
    if (a.rows == 0) continue;
    const double error = distance(
        a.got.size(), [&](size_t n) { return a.got[n]; }, [&](size_t n) { return a.expected[n]; });
    if (near(error, s)) return fmt::format("its output is its input {}: the step was skipped", input->name);
  }
  return "";
}

std::string constant_factor(const Suspect& s) {
  double inner = 0, size = 0;
  for (size_t i = 0; i < s.rows.got.size(); ++i) {
    inner += static_cast<double>(s.rows.got[i]) * s.rows.expected[i];
    size += static_cast<double>(s.rows.expected[i]) * s.rows.expected[i];
  }
  if (size == 0 || inner == 0) return "";
  const double factor = inner / size;
  const double error = distance(
      s.rows.got.size(), [&](size_t i) { return s.rows.got[i] / factor; },
      [&](size_t i) { return s.rows.expected[i]; });
  if (!near(error, s)) return "";
  const double root = std::sqrt(static_cast<double>(s.rows.width));
  const auto is = [&](double value) { return std::fabs(factor / value - 1) < std::max(0.01, s.bound()); };
  if (std::holds_alternative<Embed>(s.step.op)) {
    if (is(1 / root)) return fmt::format("smaller by √hidden ({:.4g}): the embedding scale is missing", root);
    if (is(root)) return fmt::format("larger by √hidden ({:.4g}): the embedding is scaled, or scaled twice", root);
  }
  return fmt::format("everything is off by the factor {:.5g}: a scale is wrong or missing", factor);
}

std::string norm_offset(const Suspect& s) {
  const auto* op = std::get_if<Norm>(&s.step.op);
  if (!op || s.step.weights.empty()) return "";
  const Tensor* tensor = s.evidence.weights.find(s.step.weights[0].slot);
  if (!tensor || tensor->rows() != 1 || op->group < 1) return "";
  std::vector<float> w(static_cast<size_t>(tensor->cols()));
  decode_row(tensor->dtype, tensor->row(0), w.data(), w.size());
  for (const double other : {0.0, 1.0}) {
    if (other == op->offset) continue;
    // got / (offset + w) is the bare norm; the reference would have multiplied it by (other + w).
    const double error = distance(
        s.rows.got.size(), [&](size_t i) { return s.rows.got[i] * (other + w[i % w.size()]); },
        [&](size_t i) { return s.rows.expected[i] * (op->offset + w[i % w.size()]); });
    if (!near(error, s)) continue;
    return other > 0 ? "the ratio to the reference is w / (1 + w) in every column: the norm's offset of 1 is missing"
                     : "the ratio to the reference is (1 + w) / w in every column: the norm adds an offset of 1 that "
                       "the model does not have";
  }
  return "";
}

// cap with cap · tanh(x / cap) = y, for 0 < |y| < |x|; 0 if there is none.
double cap_between(double x, double y) {
  if (x * y <= 0 || std::fabs(y) >= std::fabs(x)) return 0;
  double low = std::fabs(y), high = 1e9;
  for (int i = 0; i < 200; ++i) {
    const double cap = std::sqrt(low * high);
    (cap * std::tanh(std::fabs(x) / cap) < std::fabs(y) ? low : high) = cap;
  }
  return high;
}

std::string softcap(const Suspect& s) {
  if (!s.step.logits_only) return "";
  size_t largest = 0;
  for (size_t i = 0; i < s.rows.got.size(); ++i) {
    if (std::fabs(s.rows.got[i]) > std::fabs(s.rows.got[largest])) largest = i;
  }
  const double cap = cap_between(s.rows.got[largest], s.rows.expected[largest]);
  if (cap == 0 || cap > 1e6) return "";
  const double error = distance(
      s.rows.got.size(), [&](size_t i) { return cap * std::tanh(s.rows.got[i] / cap); },
      [&](size_t i) { return s.rows.expected[i]; });
  return near(error, s) ? fmt::format("the reference is {0:.4g}·tanh(x / {0:.4g}) of this: a soft-cap was skipped", cap)
                        : "";
}

// Is it some other stage of the same layer? Then two weights, or two buffers, were taken for each other.
std::string another_stage(const Suspect& s) {
  for (const Stage& other : s.evidence.reference.all) {
    const Step* step = s.evidence.plan.find(other.name);
    if (other.name == s.step.name || other.width != s.rows.width || !step || step->layer != s.step.layer) continue;
    const Stage wrapped{"", s.rows.width, s.rows.position, {s.rows.got.begin(), s.rows.got.end()}};
    const AlignedRows a = align(wrapped, other);
    if (a.rows == 0) continue;
    const double error = distance(
        a.got.size(), [&](size_t n) { return a.got[n]; }, [&](size_t n) { return a.expected[n]; });
    if (!near(error, s)) continue;
    if (!s.step.weights.empty() && !step->weights.empty()) {
      return fmt::format("these are the reference's values of {}: the weights {} and {} are swapped", other.name,
                         s.step.weights[0].slot, step->weights[0].slot);
    }
    return fmt::format("these are the reference's values of {}: a buffer was taken for another", other.name);
  }
  return "";
}

std::string shifted_rows(const Suspect& s) {
  if (s.rows.rows < 4) return "";
  const auto width = static_cast<size_t>(s.rows.width);
  const size_t count = s.rows.got.size() - width;
  for (const bool late : {true, false}) {
    const double error = distance(
        count, [&](size_t i) { return s.rows.got[late ? i + width : i]; },
        [&](size_t i) { return s.rows.expected[late ? i : i + width]; });
    if (near(error, s)) return "every row is its neighbour's: positions are off by one";
  }
  return "";
}

std::string missing_bias(const Suspect& s) {
  if (!std::holds_alternative<MatMul>(s.step.op) || s.rows.rows < 3) return "";
  const auto width = static_cast<size_t>(s.rows.width);
  std::vector<double> mean(width, 0);
  for (size_t i = 0; i < s.rows.got.size(); ++i) {
    mean[i % width] += (static_cast<double>(s.rows.got[i]) - s.rows.expected[i]) / s.rows.rows;
  }
  const double error = distance(
      s.rows.got.size(), [&](size_t i) { return s.rows.got[i] - mean[i % width]; },
      [&](size_t i) { return s.rows.expected[i]; });
  return near(error, s) ? "the difference is the same in every row: a bias is missing or wrong" : "";
}

std::vector<int> over(const std::vector<double>& errors, double bound) {
  std::vector<int> list;
  for (size_t i = 0; i < errors.size(); ++i) {
    if (!(errors[i] <= bound)) list.push_back(static_cast<int>(i));
  }
  return list;
}

std::string wrong_columns(const Suspect& s) {
  const std::vector<int> bad = over(s.column_errors, std::max(2 * s.bound(), 1e-3));
  const int width = s.rows.width;
  if (bad.empty() || static_cast<int>(bad.size()) > width / 2) return "";
  const bool product = std::holds_alternative<MatMul>(s.step.op) || std::holds_alternative<ExpertMatMul>(s.step.op);
  const bool tail = bad.back() == width - 1 && bad.back() - bad.front() + 1 == static_cast<int>(bad.size());
  if (tail && bad.size() > 1) {
    return fmt::format("only the last {} of {} columns are wrong: the tail or padding of a block or tile", bad.size(),
                       width);
  }
  const std::vector<int> some(bad.begin(), bad.begin() + std::min<std::ptrdiff_t>(8, std::ssize(bad)));
  const std::string list = fmt::format("{}{}", fmt::join(some, ", "), bad.size() > some.size() ? ", …" : "");
  if (product && bad.size() <= 8) {
    return fmt::format("only column{} {} of {} {} wrong: corrupted blocks in {} of the weight {}",
                       bad.size() > 1 ? "s" : "", list, width, bad.size() > 1 ? "are" : "is",
                       bad.size() > 1 ? "those rows" : "that row", s.step.weights[0].slot);
  }
  return fmt::format("only {} of {} columns are wrong ({})", bad.size(), width, list);
}

std::string wrong_rows(const Suspect& s) {
  const std::vector<int> bad = over(s.row_errors, std::max(2 * s.bound(), 1e-3));
  if (bad.empty() || static_cast<int>(bad.size()) == s.rows.rows) return "";
  if (std::holds_alternative<Embed>(s.step.op)) {
    std::set<int32_t> tokens;
    for (const int row : bad) {
      const auto position = static_cast<size_t>(s.rows.position + row);
      if (position < s.evidence.run.prompt_ids.size()) tokens.insert(s.evidence.run.prompt_ids[position]);
    }
    if (!tokens.empty() && tokens.size() <= 8) {
      return fmt::format("only the rows of token{} {} are wrong: those rows of {}", tokens.size() > 1 ? "s" : "",
                         fmt::join(tokens, ", "), s.step.weights[0].slot);
    }
  }
  const int first = s.rows.position + bad.front();
  if (bad.back() == s.rows.rows - 1 && bad.back() - bad.front() + 1 == static_cast<int>(bad.size())) {
    return fmt::format("positions up to {} are right, all from {} on are wrong: something depends on the position",
                       first - 1, first);
  }
  return fmt::format("{} of {} positions are wrong, the first is {}", bad.size(), s.rows.rows, first);
}

using Signature = std::string (*)(const Suspect&);
constexpr Signature kSignatures[] = {not_finite,    all_zero,      norm_offset,  constant_factor, softcap,
                                     another_stage, skipped,       shifted_rows, rope_cause,      attention_cause,
                                     missing_bias,  wrong_columns, wrong_rows};

}  // namespace

const Stage* Suspect::reference_input(size_t input) const {
  return evidence.reference.find(evidence.plan.values[static_cast<size_t>(step.inputs[input])].name);
}

std::string likely_cause(const Evidence& evidence) {
  const Step* step = evidence.plan.find(evidence.bad.name);
  if (!step) {
    return "the run does not compute this step at all: the config switches off what the model has (its weights may "
           "still be in the file)";
  }
  const Stage* got = evidence.run.find(step->name);
  const Stage* expected = evidence.reference.find(step->name);
  if (!got || !expected || got->width != expected->width) return "another model, or another shape of it";
  Suspect s{evidence, *step, align(*got, *expected), {}, {}};
  if (s.rows.rows == 0) return "";
  const double rms = statistics(s.rows.expected).rms + 1e-30;
  s.row_errors.assign(static_cast<size_t>(s.rows.rows), 0);
  s.column_errors.assign(static_cast<size_t>(s.rows.width), 0);
  for (int r = 0; r < s.rows.rows; ++r) {
    for (int c = 0; c < s.rows.width; ++c) {
      const double d = (s.got(r, c) - s.expected(r, c)) / rms;
      s.row_errors[static_cast<size_t>(r)] += d * d / s.rows.width;
      s.column_errors[static_cast<size_t>(c)] += d * d / s.rows.rows;
    }
  }
  for (double& e : s.row_errors) e = std::sqrt(e);
  for (double& e : s.column_errors) e = std::sqrt(e);
  for (const Signature signature : kSignatures) {
    if (std::string cause = signature(s); !cause.empty()) return cause;
  }
  return "no known signature: the whole stage is wrong though its inputs are right";
}

}  // namespace doppler
