// An executor with one sequence of its own, for tests that need no more.
#pragma once

#include <memory>
#include <utility>

#include "model/executor.h"

namespace doppler::testing {

class Runner : public Context {
 public:
  explicit Runner(std::unique_ptr<Executor> executor) : Context(*executor), executor_(std::move(executor)) {}
  ~Runner() { release(); }

  operator Executor&() { return *executor_; }  // NOLINT: it stands for its executor
  void set_tap(Tap tap) { executor_->set_tap(std::move(tap)); }
  void set_tap_at(Tap tap, TapSteps steps) { executor_->set_tap_at(std::move(tap), std::move(steps)); }
  std::string_view name() const { return executor_->name(); }
  std::string kernel_of(const Step& step) const { return executor_->kernel_of(step); }
  DeviceCounters counters() const { return executor_->counters(); }
  size_t context_bytes() const { return executor_->context_bytes(); }

 private:
  std::unique_ptr<Executor> executor_;
};

inline std::unique_ptr<Runner> one_sequence(std::unique_ptr<Executor> executor) {
  return std::make_unique<Runner>(std::move(executor));
}

}  // namespace doppler::testing
