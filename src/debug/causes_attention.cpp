#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "debug/attention_math.h"
#include "debug/causes.h"

namespace doppler {
namespace {

double error_of(std::span<const float> a, std::span<const float> b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  return size > 0 ? std::sqrt(difference / size) : 0;
}

struct Guess {
  AttentionGuess attention;
  int key_shift = 0;  // the run's keys are those of position p + shift
  std::string meaning;
};

// What the run may have done, given what the reference did (`right`).
std::vector<Guess> guesses(const Attention& run) {
  std::vector<Guess> list;
  const auto with = [&](std::string meaning, auto change, int newest = 0, int key_shift = 0) {
    Guess guess{{run, newest, {}}, key_shift, std::move(meaning)};
    change(guess.attention.op);
    list.push_back(std::move(guess));
  };
  if (run.window > 0) {
    with(fmt::format("the window is off by one: the reference sees {} keys, this run {}", run.window - 1, run.window),
         [](Attention& op) { --op.window; });
    with(fmt::format("the window is off by one: the reference sees {} keys, this run {}", run.window + 1, run.window),
         [](Attention& op) { ++op.window; });
    with(fmt::format("the reference has no window here, this run one of {}", run.window),
         [](Attention& op) { op.window = 0; });
  }
  for (const float cap : {0.f, 50.f, 30.f, 20.f}) {
    if (cap == run.softcap) continue;
    with(cap == 0 ? fmt::format("the reference has no soft-cap on the scores, this run one of {:g}", run.softcap)
                  : fmt::format("the reference caps the scores softly at {:g}, this run {}", cap,
                                run.softcap > 0 ? fmt::format("at {:g}", run.softcap) : "does not"),
         [cap](Attention& op) { op.softcap = cap; });
  }
  with("the reference scales the scores by 1/√head_dim, this run does not",
       [](Attention& op) { op.scale = 1 / std::sqrt(static_cast<float>(op.head_dim)); });
  with("the reference does not scale the scores", [](Attention& op) { op.scale = 1; });
  with(
      "the newest key is not seen: the kv length is one short", [](Attention&) {}, -1);
  with(
      "the key after the token's own is seen: the kv length is one too long", [](Attention&) {}, 1);
  with(
      "keys are stored one position too late: the kv position is off by one", [](Attention&) {}, 0, 1);
  with(
      "keys are stored one position too early: the kv position is off by one", [](Attention&) {}, 0, -1);
  return list;
}

// The same rows, `shift` positions later (zeros before them).
std::vector<float> shifted(std::span<const float> x, int width, int shift) {
  std::vector<float> out(x.size(), 0.f);
  const std::ptrdiff_t rows = std::ssize(x) / width;
  for (std::ptrdiff_t r = 0; r < rows; ++r) {
    const std::ptrdiff_t from = r - shift;
    if (from >= 0 && from < rows) std::copy_n(x.begin() + from * width, width, out.begin() + r * width);
  }
  return out;
}

}  // namespace

std::string attention_cause(const Suspect& s) {
  const auto* op = std::get_if<Attention>(&s.step.op);
  if (!op || op->sinks || s.rows.position != 0) return "";
  const Stage *q = s.reference_input(0), *k = s.reference_input(1), *v = s.reference_input(2);
  const auto whole = [&](const Stage* stage) { return stage && stage->position == 0 && stage->rows() >= s.rows.rows; };
  if (whole(q) && whole(k) && whole(v)) {
    const AttentionRows rows{q->data, k->data, v->data, s.rows.rows};
    for (const Guess& guess : guesses(*op)) {
      // Either the guess explains the reference (the run's own parameters are wrong), or it explains the run.
      const bool misplaced = guess.attention.newest != 0 || guess.key_shift != 0;
      AttentionRows changed = rows;
      std::vector<float> keys, values;
      if (guess.key_shift != 0) {
        keys = shifted(rows.k, op->kv_heads * op->head_dim, guess.key_shift);
        values = shifted(rows.v, op->kv_heads * op->head_dim, guess.key_shift);
        changed.k = keys;
        changed.v = values;
      }
      const std::vector<float> out = attend(changed, guess.attention);
      const double error = error_of(out, misplaced ? s.rows.got : s.rows.expected);
      if (error <= std::max(s.bound(), 1e-4) && error < s.evidence.bad.rel_error / 4) return guess.meaning;
    }
  }
  const auto bad = std::find_if(s.row_errors.begin(), s.row_errors.end(),
                                [&](double e) { return e > std::max(2 * s.bound(), 1e-3); });
  const int first = static_cast<int>(bad - s.row_errors.begin());
  if (bad == s.row_errors.end() || first < 2) return "";
  if (op->window > 0 && (first == op->window || first == op->window - 1)) {
    return fmt::format("right up to position {}, wrong after: the window ({}) is off by one", first - 1, op->window);
  }
  return fmt::format("right up to position {}, wrong after: a window, a cache that wrapped, or a limit", first - 1);
}

std::string rope_cause(const Suspect& s) {
  const auto* op = std::get_if<Rope>(&s.step.op);
  if (!op || op->dims < 2) return "";
  const int half = op->dims / 2, heads = s.rows.width / op->head_dim;
  // Turning keeps the length of every pair; and the angle between the two sides says how far off it is.
  double length_error = 0, length = 0;
  int first_bad = -1;
  std::vector<double> per_row(static_cast<size_t>(s.rows.rows));  // of pair 0, which turns by one radian a position
  for (int r = 0; r < s.rows.rows; ++r) {
    for (int h = 0; h < heads; ++h) {
      for (int i = 0; i < half; ++i) {
        const int a = h * op->head_dim + i, b = a + half;
        const double gx = s.got(r, a), gy = s.got(r, b), ex = s.expected(r, a), ey = s.expected(r, b);
        length_error += std::pow(std::hypot(gx, gy) - std::hypot(ex, ey), 2);
        length += ex * ex + ey * ey;
        if (i == 0 && h == 0) per_row[static_cast<size_t>(r)] = std::atan2(gy * ex - gx * ey, gx * ex + gy * ey);
      }
    }
    if (first_bad < 0 && s.row_errors[static_cast<size_t>(r)] > std::max(2 * s.bound(), 1e-3)) first_bad = r;
  }
  if (first_bad < 0 || length == 0 || std::sqrt(length_error / length) > std::max(s.bound(), 1e-3)) return "";
  const int position = s.rows.position + first_bad;
  for (const int sign : {1, -1}) {
    bool one = true;
    for (int r = first_bad; r < s.rows.rows; ++r) {
      one = one && std::fabs(per_row[static_cast<size_t>(r)] - sign) < std::max(0.05, s.bound());
    }
    if (one) {
      return fmt::format("turned one position too {}{}: the kv position is off by one", sign > 0 ? "far" : "little",
                         first_bad > 0 ? fmt::format(" from position {} on", position) : "");
    }
  }
  if (s.rows.position + first_bad > 0) {
    return fmt::format(
        "lengths are right and position 0 too, but pairs are turned by other angles from position {} on: the rope base "
        "or its scaling is another layer kind's",
        position);
  }
  return "lengths are right, but position 0 is turned as well: positions are counted from another start";
}

}  // namespace doppler
