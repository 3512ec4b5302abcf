// Steps computed once more in plain code, from stages that are known: as the plan has them, or with something changed.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "debug/attention_math.h"
#include "debug/stages.h"
#include "model/adapters.h"
#include "model/weights.h"

namespace doppler {

// A count or number of the plan as an index.
template <class T>
size_t index(T i) {
  return static_cast<size_t>(i);
}

// The run's model, as the run has it.
struct DebuggedModel {
  const ModelConfig& config;
  const Plan& plan;
  const Weights& weights;
  int context = 0;                     // tokens that the executor has room for; some ropes depend on it
  const Adapters* adapters = nullptr;  // null: none. The run has those that are standard
};

// Which numbers of a matrix are taken for its own.
struct WeightReading {
  std::vector<std::string> slots;           // stacked row by row; as a rule one
  std::function<int64_t(int64_t row)> row;  // of the stack; none: as they lie. Within an expert where there are some
  std::function<int64_t(int64_t column)> column;  // likewise
  bool transposed = false;                        // square ones
  DType rounded = DType::kF32;                    // kBF16, kF16: to so many bits
  int expert_shift = 0;
};

// The activation of a gate; `a` is a clamped one's alpha.
using Activate = double (*)(double gate, double a);
Activate activate_of(Activation activation);

enum class Routing : uint8_t { kChosen, kAll, kSigmoid, kSigmoidNormalized, kEqual };  // what the weights come from

// A step with more freedom than a Plan gives it.
struct Formula {
  Operation op;
  std::vector<int> inputs;
  WeightReading matrix, second;  // Step::weights, by position: the matrix (or norm, sinks) and its bias
  bool left_out = false;         // its output is its first input
  double factor = 1, cap = 0;    // of the output; cap · tanh(x / cap) where it is not 0
  double beta = 0;               // of the output, too: times 1 + beta · ln(1 + ⌊position / length⌋)
  int length = 1;
  double bias_times = 1;  // matrices
  double learned = 1;     // of a Scale
  int token_shift = 0;    // embeddings: of the ids
  bool centred = false,
       unweighted = false;  // norms: the mean is subtracted first; w is 1. Mixing experts: weights are 1
  RopeConfig rope = {};     // filled in; and how its table is used
  int context = 0;
  bool neighbours = false, backwards = false, over_head = false;
  int shift = 0, shift_from = 0;  // positions from shift_from on are counted so much later
  AttentionGuess attention;       // op and sinks are filled in
  Activate activate = nullptr;
  double plus = 0;  // what a clamped activation adds to `up`
  bool swapped = false, halves = false;
  Routing routing = Routing::kChosen;
};

using Edit = std::function<void(Formula&)>;

// A change of some steps, in the words of a report: "computed with SUBJECT PLANNED where INSTEAD fits".
struct Change {
  std::vector<std::pair<size_t, Edit>> edits;  // by number of the step in the plan
  std::string subject, planned, instead;
};

// What is looked at of the target's output.
struct Sample {
  std::vector<int> positions;  // ascending
  std::vector<int> columns;    // empty: all
};

// Computes `target` from the nearest values that `source` has (its own output is not one of them) or from the tokens.
class Recomputation {
 public:
  Recomputation(const DebuggedModel& model, const Stages& source, std::span<const int32_t> tokens, const Step& target,
                Sample sample);

  bool possible() const { return possible_; }                  // all that it takes is known
  const std::vector<size_t>& steps() const { return steps_; }  // that it takes, target last
  bool recorded(int value) const { return stage_of(value) != nullptr; }
  const DebuggedModel& model() const { return model_; }
  const Step& target() const { return target_; }
  const Sample& sample() const { return sample_; }
  int rows() const { return end_; }                // positions 0 … rows() - 1 are in play
  uint64_t products() const { return products_; }  // multiplications so far

  // The target's output [positions, columns] with these changes; empty where it cannot be computed.
  std::vector<float> run(std::span<const Change* const> changes);
  // The sample's elements of the stage itself.
  std::vector<float> taken_from(const Stage& stage) const;

 private:
  struct Key {
    int value;
    bool all, columns;  // at all positions or the sample's; the sample's columns only
    auto operator<=>(const Key&) const = default;
  };
  using Values = std::shared_ptr<const std::vector<float>>;

  const Stage* stage_of(int value) const;
  Formula planned(size_t step) const;
  Formula current(size_t step) const;
  bool find_steps(int value, bool all, std::vector<char>& seen);
  bool is_leaf(int value) const;
  bool changed(int value);
  Values get(int value, bool all, bool columns);
  std::vector<float> compute(size_t step, bool all, bool columns);
  std::span<const int> positions(bool all) const { return all ? all_ : sample_.positions; }
  std::vector<float> small(const WeightReading& reading) const;

  std::vector<float> embed(const Formula& f, bool all);
  std::vector<float> norm(const Formula& f, bool all);
  std::vector<float> matmul(const Formula& f, bool all, bool columns);
  std::vector<float> rope(const Formula& f, bool all);
  std::vector<float> attention(const Formula& f, bool all);
  std::vector<float> glu(const Formula& f, bool all, bool columns);
  std::vector<float> route(const Formula& f, bool all);
  std::vector<float> experts(const Formula& f, bool all);
  std::vector<float> combine(const Formula& f, bool all);
  void adapt(const std::string& slot, size_t r, std::vector<float>& row) const;
  void finish(const Formula& f, std::vector<float>& out, size_t width, bool all) const;

  const DebuggedModel model_;
  const Stages& source_;
  std::vector<int32_t> tokens_;
  const Step& target_;
  Sample sample_;
  std::vector<int> all_;
  int end_ = 0;
  bool possible_ = false;
  std::vector<size_t> steps_;
  std::vector<size_t> maker_;  // value -> step
  std::vector<const Stage*> stages_;
  std::map<Key, Values> base_, now_;
  std::map<size_t, Formula> formulas_;  // of this run's changed steps
  std::map<int, bool> dirty_;
  uint64_t products_ = 0;
};

}  // namespace doppler
