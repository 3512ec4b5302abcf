// --watchdog: looks at a model while it answers, for what no healthy model does (debug/health.h), and warns or stops.
#pragma once

#include <memory>
#include <string>

#include "engine/backend.h"
#include "engine/generation.h"

namespace doppler {

inline constexpr const char* kWatchdogNames[] = {"off", "warn", "stop"};

// Taps the executor's steps, beside those that --trace asks for: of the first sequence of each batch. For
// GenerateOptions::watch of what it answers; null for "off", where nothing is tapped. What is found is told in a line,
// and with "stop" it ends the answer as well.
std::shared_ptr<AnswerWatch> set_watchdog(const std::string& mode, Executor& executor, const LoadedModel& model);

}  // namespace doppler
