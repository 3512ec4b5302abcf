// From what a person or a program wishes to a session that runs, and to how an answer is drawn: the same for the
// command line and the library.
#pragma once

#include <functional>
#include <optional>

#include "engine/backend.h"
#include "engine/session.h"

namespace doppler {

struct SessionWishes {
  std::string backend = "auto";
  int device = -1;          // which GPU; -1: the best
  int context = 0;          // tokens; 0: default_context()
  int threads = 0;          // 0: one per core
  uint64_t gpu_memory = 0;  // bytes; 0: what it needs
  bool self_test = true;    // of a GPU
  bool verify = true;       // an artefact's bytes, once
  std::vector<AdapterSpec> adapters = {};
  KernelWishes kernels = {};
};

// The tokens that there is room for.
int context_of(const LoadedModel& model, const SessionWishes& wishes);

// `chosen` is told the backend before it is made, which may take a while. The model must outlive what is opened.
using OnBackend = std::function<void(const BackendChoice&, int context)>;
std::unique_ptr<Executor> open_executor(const LoadedModel& model, const SessionWishes& wishes,
                                        const OnBackend& chosen = {});
// Fails for a model that makes no text.
std::unique_ptr<Session> open_session(const LoadedModel& model, const SessionWishes& wishes,
                                      const OnBackend& chosen = {});

// What is absent is what the model's makers recommend; the seed is a random one then.
struct SamplingWishes {
  float temperature = 0;
  std::optional<int> top_k = {};
  std::optional<float> top_p = {}, min_p = {}, repeat_penalty = {};
  std::optional<uint64_t> seed = {};
};
Sampling resolve(const SamplingWishes& wishes, const Sampling& recommended);

// Fails if max_tokens is no number of tokens.
GenerateOptions answer_options(const LoadedModel& model, int max_tokens, const SamplingWishes& wishes,
                               std::vector<std::string> stop_texts);

}  // namespace doppler
