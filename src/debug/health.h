// What no healthy model does, told without a reference: values that grow or shrink from layer to layer as those of
// recorded runs never did, heads that are silent, an expert that takes every token, logits that say nothing or leave no
// doubt. Records are data (families/health/*.json); what they say of a model is found by its shape.
#pragma once

#include <optional>
#include <set>

#include "debug/stages.h"

namespace doppler {

// A healthy run's largest absolute values at a position, by stage: the least and the most of several prompts, whose
// first position is left out.
struct HealthRecord {
  struct Range {
    float least = 0, most = 0;
  };
  std::string model, about, prompt, next;  // next: the likeliest token behind the prompt; empty where nobody says
  std::map<std::string, Range> max_abs;
  Json shape, like;  // see shape_of_model()

  // The most that one layer's values are of those of the layer before that is known.
  double growth() const;
};
HealthRecord parse_health_record(const std::string& text, const std::string& where);

// By what a record is found: its numbers ("shape") and how it is built ("like").
Json shape_of_model(const ModelConfig& config);
Json kind_of_model(const ModelConfig& config);

struct EmbeddedHealth {
  const char *file, *text;
};
std::span<const EmbeddedHealth> embedded_health();

// What is recorded of models like this one; the record of this very model, if there is one, comes first.
std::vector<HealthRecord> health_records(const ModelConfig& config);
bool is_of(const HealthRecord& record, const ModelConfig& config);

// Ranges may be left by this factor: prompts differ by less, and the faults that are looked for by more (a missing
// scale by √hidden, 16 for the smallest models; a norm left out by its weights).
inline constexpr double kHealthMargin = 4;

struct Anomaly {
  std::string step;
  int position = 0;
  std::string what, expected, got;

  std::string text() const;  // "layer3.out at position 7: …"
};

// Sees the steps of one sequence after another, as a tap does. Each kind of anomaly is told once for each step.
class HealthWatch {
 public:
  HealthWatch(const ModelConfig& config, const Plan& plan, std::vector<HealthRecord> records);
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

  const TapSteps& steps() const { return steps_; }  // those that are looked at
  void see(const Step& step, std::span<const float> data, int tokens, int position);
  std::vector<Anomaly> take();

  // Do the last tokens say the same over and over?
  static std::optional<std::string> repeated(std::span<const int32_t> tokens);

 private:
  void see_layer(const Step& step, std::span<const float> row, int position);
  void see_heads(const Step& step, const Attention& op, std::span<const float> row, int position);
  void see_route(const Step& step, const Route& op, std::span<const float> data, int tokens, int position);
  void see_logits(const Step& step, std::span<const float> row, int position);
  void add(const char* kind, Anomaly anomaly);

  const HealthRecord* own_ = nullptr;  // of this very model
  double growth_ = 0;                  // the most from layer to layer; 0: nothing is known
  std::vector<HealthRecord> records_;
  TapSteps steps_;
  struct LayerOutput {
    int layer = -1, position = -1;
    float max_abs = 0;
  };
  LayerOutput last_;
  struct Chosen {
    int expert = -1, tokens = 0;
  };
  std::map<std::string, Chosen> chosen_;  // by the route's name: the same expert, so many tokens in a row
  int certain_ = 0;                       // tokens in a row
  std::set<std::pair<std::string, std::string>> told_;
  std::vector<Anomaly> found_;
};

// The anomalies of a captured run, in the order of its steps.
std::vector<Anomaly> find_anomalies(const Stages& run, const ModelConfig& config, const Plan& plan);

// What is recorded of this very model beside what the run has; empty where nothing is recorded. `next` is the run's
// likeliest token.
std::string health_table(const Stages& run, const ModelConfig& config, const std::string& next);

}  // namespace doppler
