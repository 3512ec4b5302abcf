#include "debug/experiments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "debug/alternatives.h"
#include "debug/statistics.h"

namespace doppler {
namespace {

// Multiplications that one search may take: some seconds.
constexpr uint64_t kEnoughProducts = 1'000'000'000, kWeightProducts = 2'000'000'000, kDialProducts = 1'000'000'000,
                   kPairProducts = 2'000'000'000;
constexpr size_t kVerified = 8, kMostVerified = 48;
// A fit within this factor of the best cannot be told from it.
constexpr double kAsGood = 1.5, kNothing = 1e-9;

double error_of(std::span<const float> got, std::span<const float> wanted) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double d = static_cast<double>(got[i]) - wanted[i];
    difference += d * d;
    size += static_cast<double>(wanted[i]) * wanted[i];
  }
  const double error = size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
  return std::isfinite(error) ? error : HUGE_VAL;
}

// `count` of them, evenly, with those that must be there.
std::vector<int> spread(const std::vector<int>& all, size_t count, const std::vector<int>& needed) {
  if (all.size() <= count) return all;
  std::set<int> some(needed.begin(), needed.end());
  for (size_t i = 0; some.size() < count && i < count; ++i)
    some.insert(all[i * (all.size() - 1) / std::max<size_t>(1, count - 1)]);
  return {some.begin(), some.end()};
}

Sample sample_of(const Question& q, size_t rows, size_t columns) {
  std::vector<int> positions;
  for (int p = q.wanted.position; p < q.wanted.position + q.wanted.rows(); ++p) {
    if (std::find(q.left_out.begin(), q.left_out.end(), p) == q.left_out.end()) positions.push_back(p);
  }
  std::vector<int> needed;
  if (!q.row_errors.empty()) {
    const auto worst = std::max_element(q.row_errors.begin(), q.row_errors.end());
    const auto first =
        std::find_if(q.row_errors.begin(), q.row_errors.end(), [&](double e) { return e > *worst / 10; });
    for (const auto at : {worst, first}) {
      const int p = q.wanted.position + static_cast<int>(at - q.row_errors.begin());
      if (std::find(positions.begin(), positions.end(), p) != positions.end()) needed.push_back(p);
    }
  }
  if (!positions.empty()) needed.push_back(positions.back());
  Sample sample{spread(positions, rows, needed), {}};
  if (static_cast<size_t>(q.wanted.width) > columns) {
    std::vector<int> all(static_cast<size_t>(q.wanted.width));
    std::iota(all.begin(), all.end(), 0);
    sample.columns = spread(all, columns, {});
  }
  return sample;
}

class Search {
 public:
  explicit Search(const Question& question)
      : q_(question),
        screen_(q_.model, q_.source, q_.tokens, q_.step, sample_of(q_, 3, 96)),
        whole_(q_.model, q_.source, q_.tokens, q_.step, sample_of(q_, 24, 512)) {}

  Findings run() {
    if (!screen_.possible() || !whole_.possible()) return {};
    wanted_ = whole_.taken_from(q_.wanted);
    quickly_wanted_ = screen_.taken_from(q_.wanted);
    before_ = error_of(whole_.run({}), wanted_);
    quickly_before_ = error_of(screen_.run({}), quickly_wanted_);
    const std::vector<Change> choices = other_choices(screen_, first_bad());
    for (const Change& change : choices) {
      // What explains all of it may have equals among the next, but not at any price.
      if (decisive_ && screen_.products() > kEnoughProducts) break;
      try_one({&change}, choices_);
    }
    verify(choices_);
    const std::vector<Change> weights = other_weights(screen_);
    // What fits sharply needs no rival.
    if (!fits() || found_[0].after > before_ / 20) {
      std::vector<Tried> tried;
      within(kWeightProducts, weights, [&](const Change& change) { try_one({&change}, tried); });
      verify(tried);
    }
    std::vector<Change> turned;
    if (!fits()) {
      std::vector<Tried> tried;
      const std::vector<Dial> all = dials(screen_);
      turned.reserve(all.size());
      within(kDialProducts, all, [&](const Dial& dial) {
        turned.push_back(best_of(dial));
        try_one({&turned.back()}, tried);
      });
      verify(tried);
    }
    if (!fits()) pairs();
    return findings();
  }

 private:
  struct Tried {
    std::vector<const Change*> changes;
    double after = 0;
  };

  template <class List, class Function>
  void within(uint64_t products, const List& list, Function&& function) {
    const uint64_t end = screen_.products() + products;
    for (const auto& each : list) {
      if (screen_.products() > end) return;
      function(each);
    }
  }

  int first_bad() const {
    const auto worst = std::max_element(q_.row_errors.begin(), q_.row_errors.end());
    const auto first = std::find_if(q_.row_errors.begin(), q_.row_errors.end(),
                                    [&](double e) { return e > std::max(*worst / 100, q_.rounding); });
    return first == q_.row_errors.end() ? -1 : q_.wanted.position + static_cast<int>(first - q_.row_errors.begin());
  }

  double quickly(const std::vector<const Change*>& changes) { return error_of(screen_.run(changes), quickly_wanted_); }
  void try_one(std::vector<const Change*> changes, std::vector<Tried>& list) {
    const double after = quickly(changes);
    decisive_ = decisive_ || after < quickly_before_ / 1000;
    list.push_back({std::move(changes), after});
  }

  // Looks at more of the best ones.
  void verify(std::vector<Tried>& list) {
    std::stable_sort(list.begin(), list.end(), [](const Tried& a, const Tried& b) { return a.after < b.after; });
    for (size_t i = 0; i < std::min(kMostVerified, list.size()); ++i) {
      if (i >= kVerified && list[i].after > kAsGood * list[0].after + kNothing) break;
      if (!(list[i].after < 0.9 * quickly_before_)) break;
      found_.push_back({list[i].changes, error_of(whole_.run(list[i].changes), wanted_)});
    }
    std::stable_sort(found_.begin(), found_.end(), [](const Tried& a, const Tried& b) { return a.after < b.after; });
  }

  bool fits() const {
    return !found_.empty() && found_[0].after <= std::max(q_.rounding, 1e-4) && found_[0].after < before_ / 4;
  }

  Change best_of(const Dial& dial) {
    constexpr int kSteps = 68;  // 17 · 4: powers of two are among them where a dial spans 17 octaves
    const double from = dial.ratio ? std::log(dial.from) : dial.from, to = dial.ratio ? std::log(dial.to) : dial.to;
    const auto value = [&](double x) { return dial.ratio ? std::exp(x) : x; };
    const auto error = [&](double x) {
      const Change change = at(dial, value(x));
      return quickly({&change});
    };
    const auto wholly = [&](double x) {
      const Change change = at(dial, value(x));
      const Change* const changes[] = {&change};
      return error_of(whole_.run(changes), wanted_);
    };
    std::vector<std::pair<double, double>> scanned;
    for (int i = 0; i <= kSteps; ++i) {
      const double x = from + (to - from) * i / kSteps;
      scanned.emplace_back(error(x), x);
    }
    std::sort(scanned.begin(), scanned.end());
    // A few rows may not tell neighbours apart.
    double best = scanned[0].second, least = wholly(best);
    for (size_t i = 1; i < 4 && scanned[i].first <= kAsGood * scanned[0].first + kNothing; ++i) {
      if (const double e = wholly(scanned[i].second); e < least) least = e, best = scanned[i].second;
    }
    double low = std::max(from, best - (to - from) / kSteps), high = std::min(to, best + (to - from) / kSteps);
    constexpr double kGolden = 0.6180339887498949;
    double a = high - kGolden * (high - low), b = low + kGolden * (high - low), at_a = error(a), at_b = error(b);
    for (int i = 0; i < 40; ++i) {
      if (at_a < at_b) {
        high = b, b = a, at_b = at_a;
        a = high - kGolden * (high - low), at_a = error(a);
      } else {
        low = a, a = b, at_a = at_b;
        b = low + kGolden * (high - low), at_b = error(b);
      }
    }
    const double x = (low + high) / 2;
    return at(dial, value(wholly(x) < least ? x : best));
  }

  // Two choices at once: what helps most alone with every other, then the others among themselves, likely ones first.
  void pairs() {
    constexpr size_t kBest = 3, kOthers = 150;
    std::vector<Tried> tried;
    const uint64_t end = screen_.products() + kPairProducts;
    const auto try_two = [&](size_t a, size_t b) {
      const Change &one = *choices_[a].changes[0], &two = *choices_[b].changes[0];
      if (one.subject != two.subject && screen_.products() < end) try_one({&one, &two}, tried);
    };
    for (size_t a = 0; a < std::min(kBest, choices_.size()); ++a) {
      for (size_t b = a + 1; b < choices_.size(); ++b) try_two(a, b);
    }
    const size_t count = std::min(choices_.size(), kOthers);
    for (size_t sum = 1; sum < 2 * count; ++sum) {
      for (size_t a = sum >= count ? sum - count + 1 : 0; a < (sum + 1) / 2; ++a) {
        if (a >= kBest) try_two(a, sum - a);
      }
    }
    verify(tried);
  }

  std::string describe(const Tried& tried) const {
    std::vector<std::string> names, words;
    for (const Change* change : tried.changes) {
      for (const auto& [s, edit] : change->edits) {
        const std::string& name = q_.model.plan.steps[s].name;
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
      words.push_back(
          q_.of_the_backend
              ? fmt::format("{} {} where the plan says {}", change->subject, change->instead, change->planned)
              : fmt::format("{} {} where {} fits", change->subject, change->planned, change->instead));
    }
    return fmt::format("{}: computed with {}", fmt::join(names, ", "), fmt::join(words, ", and with "));
  }

  Findings findings() const {
    Findings result;
    result.fits = fits();
    for (size_t i = 0; i < std::min<size_t>(3, found_.size()) && found_[i].after < 0.9 * before_; ++i) {
      result.nearest.push_back({describe(found_[i]), before_, found_[i].after});
    }
    if (!result.fits) return result;
    const Tried& best = found_[0];
    result.cause = fmt::format("{}: error {:.2g} → {:.2g}", describe(best), before_, best.after);
    std::vector<std::string> others;
    for (size_t i = 1; i < found_.size() && others.size() < 2; ++i) {
      if (found_[i].after > kAsGood * best.after + kNothing || found_[i].changes.size() > best.changes.size()) break;
      const Change& other = *found_[i].changes[0];
      others.push_back(fmt::format("{} {}", other.subject, other.instead));
    }
    if (!others.empty()) result.cause += fmt::format(" (so does {})", fmt::join(others, ", or "));
    return result;
  }

  const Question& q_;
  Recomputation screen_, whole_;
  std::vector<float> wanted_, quickly_wanted_;
  double before_ = 0, quickly_before_ = 0;
  bool decisive_ = false;
  std::vector<Tried> choices_, found_;
};

}  // namespace

Findings try_alternatives(const Question& question) { return Search(question).run(); }

double error_as_planned(const Question& q, double* element_error) {
  Recomputation plain(q.model, q.source, q.tokens, q.step, sample_of(q, 16, 2048));
  if (!plain.possible()) return -1;
  const std::vector<float> wanted = plain.taken_from(q.wanted), planned = plain.run({});
  if (element_error) {
    const double rms = statistics(planned).rms + 1e-30;
    *element_error = 0;
    for (size_t i = 0; i < planned.size(); ++i) {
      const double e = std::fabs(static_cast<double>(wanted[i]) - planned[i]) / (std::fabs(planned[i]) + rms);
      *element_error = std::max(*element_error, std::isfinite(e) ? e : HUGE_VAL);
    }
  }
  return error_of(wanted, planned);
}

std::vector<const Step*> steps_between(const Question& q) {
  const Recomputation plain(q.model, q.source, q.tokens, q.step, sample_of(q, 1, 1));
  std::vector<const Step*> steps;
  if (!plain.possible()) return steps;
  for (const size_t s : plain.steps()) steps.push_back(&q.model.plan.steps[s]);
  return steps;
}

Stage as_planned(const Question& q) {
  Sample sample;
  for (int p = q.wanted.position; p < q.wanted.position + q.wanted.rows(); ++p) sample.positions.push_back(p);
  Recomputation plain(q.model, q.source, q.tokens, q.step, sample);
  if (!plain.possible()) return {};
  return {q.step.name, q.wanted.width, q.wanted.position, plain.run({})};
}

}  // namespace doppler
