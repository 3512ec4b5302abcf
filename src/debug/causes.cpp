#include "debug/causes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "debug/statistics.h"

namespace doppler {
namespace {

// The stage under suspicion, as the signatures see it.
struct Suspect {
  const Evidence& evidence;
  const Step& step;
  AlignedRows rows;
  double rel_error = 0;
  std::vector<double> row_errors, column_errors;  // relative to the stage's rms

  float got(int row, int column) const { return rows.got[at(row, column)]; }
  float expected(int row, int column) const { return rows.expected[at(row, column)]; }
  double bound() const { return evidence.bounds.added; }
  // The reference's value of an input of this step, or null.
  const Stage* reference_input(size_t input) const {
    return evidence.reference.find(evidence.model.plan.values[static_cast<size_t>(step.inputs[input])].name);
  }

 private:
  size_t at(int row, int column) const {
    return static_cast<size_t>(row) * static_cast<size_t>(rows.width) + static_cast<size_t>(column);
  }
};

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
bool near(double error, const Suspect& s) { return error <= std::max(s.bound(), 1e-4) && error < s.rel_error / 4; }

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
  return fmt::format("everything is off by the factor {:.5g}: a scale is wrong or missing", factor);
}

// Is it some other stage of the same layer? Then two weights, or two buffers, were taken for each other.
std::string another_stage(const Suspect& s) {
  for (const Stage& other : s.evidence.reference.all) {
    const Step* step = s.evidence.model.plan.find(other.name);
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

// Two weights with the same bytes: one of them was loaded in the place of the other.
std::string twin_weights(const Suspect& s) {
  for (const WeightUse& use : s.step.weights) {
    const Tensor* own = s.evidence.model.weights.find(use.slot);
    if (!own || own->bytes.empty()) continue;
    if (std::all_of(own->bytes.begin(), own->bytes.end(), [&](std::byte b) { return b == own->bytes[0]; })) continue;
    for (const auto& [slot, other] : s.evidence.model.weights.all()) {
      if (slot == use.slot || other.shape != own->shape || other.dtype != own->dtype) continue;
      if (std::equal(own->bytes.begin(), own->bytes.end(), other.bytes.begin(), other.bytes.end())) {
        return fmt::format("the weight {} is byte for byte {}: one was loaded in the place of the other", use.slot,
                           slot);
      }
    }
  }
  return "";
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
// Of what no plan could mean; and of what the experiments did not explain.
constexpr Signature kFirst[] = {not_finite, all_zero};
constexpr Signature kLast[] = {twin_weights, constant_factor, another_stage, skipped,
                               shifted_rows, missing_bias,    wrong_columns, wrong_rows};

std::string first_of(std::span<const Signature> signatures, const Suspect& suspect) {
  for (const Signature signature : signatures) {
    if (std::string cause = signature(suspect); !cause.empty()) return cause;
  }
  return "";
}

Suspect suspect_of(const Evidence& evidence, const Step& step, const Stage& got, const Stage& expected) {
  Suspect s{evidence, step, align(got, expected), 0, {}, {}};
  if (s.rows.rows == 0) return s;
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
  for (const double e : s.row_errors) s.rel_error += e / s.rows.rows;
  s.rel_error = std::sqrt(s.rel_error);
  for (double& e : s.row_errors) e = std::sqrt(e);
  for (double& e : s.column_errors) e = std::sqrt(e);
  return s;
}

// Of the rows of `stage`; a suspect has those that both sides have.
std::vector<double> errors_of_rows(const Suspect& s, const Stage& stage) {
  std::vector<double> errors(static_cast<size_t>(stage.rows()), 0);
  for (int r = 0; r < s.rows.rows; ++r) {
    errors[static_cast<size_t>(s.rows.position + r - stage.position)] = s.row_errors[static_cast<size_t>(r)];
  }
  return errors;
}

// The first step on the way to the bad stage that is not what plain code makes of the run's own inputs.
const Step* broken_step(const Evidence& e, std::span<const Step* const> steps) {
  const Bounds usual = bounds_for(e.model.weights, true);
  const double added = std::min(usual.added, e.bounds.added), element_bound = std::min(usual.element, e.bounds.element);
  for (const Step* step : steps) {
    const Stage* got = e.run.find(step->name);
    if (!got) continue;
    double element = 0;
    const double error = error_as_planned(
        {.model = e.model, .source = e.run, .tokens = e.run.prompt_ids, .step = *step, .wanted = *got}, &element);
    if (error > added || element > element_bound) return step;
  }
  return nullptr;
}

Diagnosis broken_backend(const Evidence& e, const Step& step) {
  const Stage& got = *e.run.find(step.name);
  Question question{.model = e.model,
                    .source = e.run,
                    .tokens = e.run.prompt_ids,
                    .step = step,
                    .wanted = got,
                    .of_the_backend = true};
  question.rounding = bounds_for(e.model.weights, true).added;
  Stage plain;
  const Stage* expected = e.reference.find(step.name);
  if (!expected) {
    plain = as_planned(question);
    expected = &plain;
  }
  const Suspect s = suspect_of(e, step, got, *expected);
  question.row_errors = errors_of_rows(s, got);
  Findings found = try_alternatives(question);
  const std::string place = fmt::format("{} is not what the plan makes of this run's own inputs. ", step.name);
  if (found.fits) return {place + found.cause, {}};
  const std::string sign = s.rows.rows > 0 ? first_of(kLast, s) : "";
  return {place + (sign.empty() ? "No alternative explains it" : sign), found.nearest};
}

}  // namespace

Diagnosis diagnose(const Evidence& e) {
  const Step* step = e.model.plan.find(e.bad.name);
  if (!step) {
    return {
        "the run does not compute this step at all: the config switches off what the model has (its weights may "
        "still be in the file)",
        {}};
  }
  const Stage* got = e.run.find(step->name);
  const Stage* expected = e.reference.find(step->name);
  if (!got || !expected || got->width != expected->width) return {"another model, or another shape of it", {}};
  const Suspect s = suspect_of(e, *step, *got, *expected);
  if (s.rows.rows == 0) return {};
  if (std::string cause = first_of(kFirst, s); !cause.empty()) return {cause, {}};
  const Question question{.model = e.model,
                          .source = e.reference,
                          .tokens = e.run.prompt_ids,
                          .step = *step,
                          .wanted = *expected,
                          .rounding = e.bounds.added,
                          .row_errors = errors_of_rows(s, *expected),
                          .left_out = e.left_out};
  const std::vector<const Step*> between = steps_between(question);
  if (const Step* broken = broken_step(e, between)) return broken_backend(e, *broken);
  Findings found;
  const double planned = between.empty() ? -1 : error_as_planned(question);
  if (planned > e.bounds.added || planned > e.bad.rel_error / 4) found = try_alternatives(question);
  if (found.fits) return {found.cause, {}};
  if (std::string sign = first_of(kLast, s); !sign.empty()) return {sign, found.nearest};
  if (planned >= 0 && planned <= e.bounds.added) {
    return {
        "every step is what the plan makes of its inputs, and of the reference's inputs it makes the reference's "
        "output: the difference comes with the inputs",
        {}};
  }
  return {"no alternative explains it: the whole stage is wrong though its inputs are right", found.nearest};
}

}  // namespace doppler
