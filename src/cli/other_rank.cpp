#include "cli/other_rank.h"

#include "base/error.h"
#include "cli/open_model.h"
#include "engine/ranks.h"

namespace doppler {

bool worked_as_other_rank(const std::string& model, const std::string& backend, int device, int threads,
                          uint64_t gpu_memory, bool sandbox) {
  if (join_ranks()) {
    if (sandbox && several_ranks()) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "ranks reach each other by what a sandbox forbids",
            .where = "--sandbox",
            .todo = "Leave it out, or run one process"});
    }
    return false;
  }
  const LoadedModel loaded = LoadedModel::load(local_model(model));
  work_for_first_rank(loaded, backend, {.threads = threads, .device = device, .gpu_memory = gpu_memory});
  return true;
}

void check_one_model(size_t models) {
  if (models == 1 || !several_ranks()) return;
  fail({.code = ErrorCode::kUnsupported,
        .what = "ranks run one model",
        .expected = "one",
        .got = std::to_string(models),
        .todo = "Start others by themselves"});
}

}  // namespace doppler
