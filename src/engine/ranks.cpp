#include "engine/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/say.h"
#include "base/threads.h"
#include "cluster/mpi_transport.h"
#include "cluster/pipeline.h"
#include "engine/backend.h"
#include "engine/sampler.h"

namespace doppler {
namespace {

std::unique_ptr<MpiTransport> ranks;  // null: this process is all there is

// Cores that belong to this rank alone. Where the launcher bound it to some, those; else its share of all.
int own_cores() {
  const int cores = available_cores();
  const bool bound = cores < static_cast<int>(std::thread::hardware_concurrency());
  return bound ? cores : std::max(1, cores / launched_ranks_here());
}

// DOPPLER_STAGE_SPEED: a number in proportion to the other ranks'.
double stated_speed() {
  const char* text = std::getenv("DOPPLER_STAGE_SPEED");
  if (!text) return 0;
  char* end = nullptr;
  const double speed = std::strtod(text, &end);
  if (end == text || *end != 0 || !(speed > 0)) {
    fail({.code = ErrorCode::kUsage,
          .what = "this is no speed",
          .where = "DOPPLER_STAGE_SPEED",
          .expected = "a number above 0",
          .got = text});
  }
  return speed;
}

StageBackend stage_backend(const LoadedModel& model, const std::string& asked, ExecutorOptions options) {
  if (options.adapters) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "a model that is divided among ranks cannot have adapters beside it",
          .where = "--lora",
          .todo = "Merge the adapter: doppler convert BASE OUT --merge-lora FOLDER"});
  }
  const std::string chosen = choose_backend(asked, options.device).name;
  if (chosen == "webgpu") {
    fail({.code = ErrorCode::kUnsupported,
          .what = "a GPU cannot run some of a model's layers",
          .where = "--backend",
          .expected = "cpu or ref on every rank",
          .got = chosen});
  }
  if (!model.config.makes_text()) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "ranks run models that make text, and this one makes vectors",
          .where = model.config.id,
          .todo = "Run one process"});
  }
  if (options.threads == 0) options.threads = own_cores();
  StageBackend backend;
  backend.make = [&model, chosen](const Plan& plan, const ExecutorOptions& stage) {
    return make_local_executor(chosen, model.config, plan, weights_of(plan, model.weights), stage);
  };
  backend.choose = [](std::span<const float> logits) {
    const Likeliest choice = likeliest(logits);
    return choice.finite ? choice.id : ~choice.id;
  };
  backend.speed = stated_speed();
  // What is mapped counts as free; ranks on one machine share it.
  backend.memory = available_memory() / static_cast<uint64_t>(launched_ranks_here());
  backend.options = std::move(options);
  return backend;
}

}  // namespace

bool join_ranks() {
  if (ranks || launched_ranks() == 1) return !ranks || ranks->rank() == 0;
  ranks = MpiTransport::open();
  if (ranks->rank() == 0) return true;
  set_log_level("silent");
  return false;
}

bool several_ranks() { return ranks && ranks->size() > 1; }

void work_for_first_rank(const LoadedModel& model, const std::string& backend, const ExecutorOptions& options) {
  // Whoever wants the job to end tells the first rank, which has answers to finish.
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  run_stages(*ranks, model.plan, model.weights, stage_backend(model, backend, options));
}

std::unique_ptr<Executor> make_ranks_executor(const LoadedModel& model, const std::string& backend,
                                              const ExecutorOptions& options) {
  const auto about = [](const std::string& line) {
    if (info_enabled()) say_dim("[{}]", line);
  };
  std::unique_ptr<Executor> executor =
      make_pipeline(*ranks, model.config, model.plan, model.weights, stage_backend(model, backend, options), about);
  executor->set_model({&model.config, &model.plan, &model.weights});
  return executor;
}

void leave_ranks(int exit_code) {
  if (!ranks) return;
  if (exit_code != 0) ranks->abort(exit_code);
  if (ranks->rank() == 0) end_stages(*ranks);
  ranks->leave();
  ranks.reset();
}

}  // namespace doppler
