// Any bytes as a checkpoint's config.json: an error that says so, or a model whose plan can be built, whose tensors
// have rules, and whose configuration survives being written.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "import/family.h"
#include "import/quantisation_config.h"
#include "model/cost.h"
#include "model/plan.h"
#include "model/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace doppler;
  try {
    const Json json = parse_json({reinterpret_cast<const char*>(data), size}, "config.json");
    if (const Json* quantisation = quantisation_of(json)) {
      check_quantisation(*quantisation, nullptr, "config.json");
      layout_of(quantisation);
    }
    for (const std::string& pattern : unquantised_modules(json))
      matches_module(pattern, "model.layers.0.self_attn.q_proj");
    const Family& family = family_for(json, "config.json");
    ModelConfig config = config_from_hf(family, json, "config.json");
    if (config.vocab == 0) config.vocab = 32;
    const Plan plan = build_plan(config);
    for (const TensorLayout& layout : layouts_of(family)) {
      for (const Step& step : plan.steps) {
        for (const WeightUse& use : step.weights) rule_for(family, use.slot, layout);
      }
    }
    kv_cache_bytes(config, config.max_context);
    for (const RopeConfig& rope : config.ropes) make_rope_table(rope, config.head_dim);
    Json again = {{"modelId", config.id}};
    write_model_config(config, again);
    if (!(read_model_config(again, "again") == config)) std::abort();
  } catch (const Failure&) {
  }
  return 0;
}
