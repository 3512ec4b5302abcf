// Any bytes as an artefact's manifest: an error that says so, a list of faults, or places inside the shards and a model
// whose plan can be built and held against its tensors, and whose configuration survives being written.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "format/rdrr.h"
#include "model/cost.h"
#include "model/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace doppler;
  try {
    const RdrrManifest manifest =
        parse_rdrr_manifest(parse_json({reinterpret_cast<const char*>(data), size}, "fuzz"), nullptr, "fuzz");
    Weights weights;
    for (const RdrrTensorEntry& entry : manifest.tensors) {
      if (!manifest.faults.empty()) break;
      uint64_t bytes = 0;
      for (const RdrrSpan& span : entry.spans) {
        const RdrrShard& shard = manifest.shards.at(static_cast<size_t>(span.shard));
        if (span.offset > shard.size || span.size > shard.size - span.offset) std::abort();
        bytes += span.size;
      }
      if (bytes != entry.size || entry.shape.empty()) std::abort();
      if (!entry.slot.empty()) weights.add(entry.slot, {entry.name, entry.dtype, entry.shape, {}});
    }
    const ModelConfig config = read_model_config(manifest.json, "fuzz");
    const Plan plan = build_plan(config);
    weight_faults(plan, weights);
    kv_cache_bytes(config, config.max_context);
    for (const RopeConfig& rope : config.ropes) make_rope_table(rope, config.head_dim);
    Json again = {{"modelId", config.id}};  // whoever writes a manifest names it
    write_model_config(config, again);
    if (!(read_model_config(again, "again") == config)) std::abort();
  } catch (const Failure&) {
  }
  return 0;
}
