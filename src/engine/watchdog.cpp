#include "engine/watchdog.h"

#include "base/error.h"
#include "base/say.h"
#include "debug/health.h"

namespace doppler {
namespace {

class Watchdog : public AnswerWatch {
 public:
  Watchdog(const LoadedModel& model, bool stops, bool gpu)
      : id_(model.config.id),
        stops_(stops),
        gpu_(gpu),
        health_(model.config, model.plan, health_records(model.config)) {}

  HealthWatch& health() { return health_; }

  std::optional<Error> look(std::span<const int32_t> answer) override {
    const std::optional<std::string> repeated = HealthWatch::repeated(answer);
    // Told once, when it begins.
    if (!repeated || (!stops_ && HealthWatch::repeated(answer.first(answer.size() - 1)))) return std::nullopt;
    return tell(
        {"logits", static_cast<int>(answer.size()), "the answer repeats itself", "an answer that goes on", *repeated});
  }

  std::optional<Error> take_error() override {
    std::optional<Error> first;
    for (const Anomaly& anomaly : health_.take()) {
      std::optional<Error> error = tell(anomaly);
      if (!first) first = std::move(error);
    }
    return first;
  }

 private:
  // A line, or what ends the answer.
  std::optional<Error> tell(const Anomaly& anomaly) const {
    if (!stops_) {
      say("watchdog: {}", anomaly.text());
      return std::nullopt;
    }
    return Error{.code = gpu_ ? ErrorCode::kDevice : ErrorCode::kFormat,
                 .what = "the watchdog stopped the answer: " + anomaly.what,
                 .where = id_ + ": " + anomaly.step + " at position " + std::to_string(anomaly.position),
                 .expected = anomaly.expected,
                 .got = anomaly.got,
                 .todo = "doppler debug MODEL --compare ref tells whether it is the machine; --watchdog warn goes on"};
  }

  const std::string id_;
  const bool stops_, gpu_;
  HealthWatch health_;
};

}  // namespace

std::shared_ptr<AnswerWatch> set_watchdog(const std::string& mode, Executor& executor, const LoadedModel& model) {
  if (mode == "off") return nullptr;
  if (!executor.can_tap()) {
    fail({.code = ErrorCode::kUsage,
          .what = "the watchdog looks at steps, and those of several ranks cannot be seen",
          .where = "--watchdog",
          .todo = "Leave --watchdog or mpirun out"});
  }
  auto watchdog = std::make_shared<Watchdog>(model, mode == "stop", executor.name() == "webgpu");
  trace_steps(
      executor, model,
      [watchdog](const Step& step, std::span<const float> data, int tokens, int position) {
        watchdog->health().see(step, data, tokens, position);
      },
      watchdog->health().steps());
  return watchdog;
}

}  // namespace doppler
