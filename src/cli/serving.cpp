#include "cli/serving.h"

#include "base/error.h"
#include "cli/open_model.h"
#include "import/adapter.h"

namespace doppler {
namespace {

serve::ModelSpec model_spec(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals != std::string::npos && equals > 0 && word.find('/') > equals)
    return {word.substr(0, equals), local_model(word.substr(equals + 1)), {}};
  std::filesystem::path path = word;
  if (path.filename().empty()) path = path.parent_path();
  return {path.extension() == ".gguf" ? path.stem().string() : path.filename().string(), local_model(word), {}};
}

}  // namespace

std::vector<serve::ModelSpec> model_specs(const std::vector<std::string>& words,
                                          const std::vector<std::string>& adapters) {
  std::vector<serve::ModelSpec> models;
  for (const std::string& word : words) models.push_back(model_spec(word));
  if (models.empty()) models.push_back(model_spec(default_model().string()));
  std::vector<serve::NamedAdapter>& named = models.front().adapters;
  for (const AdapterSpec& spec : adapter_specs(adapters)) {
    named.push_back({name_of_adapter(spec.path), spec});
    for (size_t k = 0; k + 1 < named.size(); ++k) {
      if (named[k].name != named.back().name) continue;
      fail({.code = ErrorCode::kUsage,
            .what = "two adapters have the same name",
            .where = "--lora " + spec.path.string(),
            .got = named.back().name,
            .todo = "Name their folders or files apart"});
    }
  }
  for (size_t i = 0; i < models.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (models[i].name != models[k].name) continue;
      fail({.code = ErrorCode::kUsage,
            .what = "two models have the same name",
            .where = models[i].name,
            .todo = "Give one of them another: NAME=PATH"});
    }
  }
  return models;
}

void add_engine_options(Verb verb, EngineArguments& a) {
  verb.add_option("--context", a.context, "Tokens of a prompt with its answer (default: the model's own, at most 4096)")
      .positive();
  verb.add_option("--cache-memory", a.cache_memory,
                  "Bytes of keys and values that all answers share: 512MiB or 8GiB (default: what --sequences of full "
                  "length need, at most half of the memory beside the weights; on a GPU what four need)")
      .byte_size();
  verb.add_option("--threads", a.threads, "Threads (default: one per core)").range(1, 1024);
  verb.add_option("--backend", a.backend, "auto, webgpu, cpu or ref").show_default();
  verb.add_option("--device", a.device, "Which GPU, as doppler devices counts them");
  add_gpu_memory(verb, a.gpu_memory);
  add_lora(verb, a.adapters);
  add_kernel(verb, a.kernel);
  add_watchdog(verb, a.watchdog);
  add_no_verify(verb, a.no_verify);
}

serve::EngineOptions engine_options(const EngineArguments& a, int sequences) {
  serve::EngineOptions options;
  options.backend = a.backend;
  // Where nobody says how much keys and values may take and nothing is known of the memory: four of full length.
  options.executor = {.context = a.context,
                      .threads = a.threads,
                      .device = a.device,
                      .gpu_memory = a.gpu_memory,
                      .cache_memory = a.cache_memory,
                      .sequences = 4,
                      .kernels = parse_kernel_wishes(a.kernel)};
  options.sequences = sequences;
  options.watchdog = a.watchdog;
  options.verify = !a.no_verify;
  return options;
}

}  // namespace doppler
