#include "convert/public_manifest.h"

#include <fmt/format.h>

#include <algorithm>

namespace doppler {
namespace {

// A norm's flag says that tensors of this name are there: a model with two norms a layer has postAttentionNorm for the
// one before its feed-forward.
constexpr struct {
  const char *flag, *ending;
} kNormFlags[] = {{"postAttentionNorm", "post_attention_layernorm.weight"},
                  {"preFeedforwardNorm", "pre_feedforward_layernorm.weight"},
                  {"postFeedforwardNorm", "post_feedforward_layernorm.weight"}};

// Everything in f32 but the cache, which that engine widens where a GPU has no f16; one token at a time.
constexpr const char* kSession = R"({
  "compute": {
    "defaults": {"activationDtype": "f32", "mathDtype": "f32", "accumDtype": "f32", "outputDtype": "f32"}
  },
  "kvcache": {
    "kvDtype": "f16", "layout": "contiguous", "pageSize": 256,
    "tiering": {
      "mode": "off", "hotWindow": 1024, "coldPageSize": 256, "coldDtype": "f16",
      "compression": {"mode": "none", "blockSize": 1, "bitWidth": 4, "prodMode": false},
      "gating": {"mode": "auto", "minAluBwRatio": 0}
    },
    "quantization": {"mode": "none", "bitWidth": 4, "prodMode": false}
  },
  "decodeLoop": {
    "batchSize": 1, "stopCheckMode": "batch", "readbackInterval": 1, "readbackMode": "sequential",
    "ringTokens": 1, "ringStop": 1, "ringStaging": 1, "disableCommandBatching": false
  },
  "perLayerInputs": {
    "materialization": "auto",
    "rowCache": {"mode": "lru", "maxRows": 256, "maxBytes": 134217728, "decodedDtype": "f32"},
    "prefetch": {"mode": "next_token", "rowsAhead": 1},
    "gpuUpload": {"mode": "per_step_slices", "stagingRows": 2},
    "hotCache": {"mode": "prepared_tokens", "maxTokens": 1024, "maxBytes": 134217728, "outputDtype": "f32"}
  },
  "prefillChunkSubmitMode": "sync", "useFlashPrefillAttention": false, "useWideTileQ4KPrefill": false,
  "retainQ4KMaterialization": false
})";

// That engine's kernels for a session of f32: its name of the file, where it begins, and the sha256 of both by which
// the graph pins it. The ones for heads of any size.
struct Kernel {
  const char *key, *file, *entry, *digest;
};
constexpr Kernel kKernels[] = {
    {"embed", "gather.wgsl", "main", "4b12653c53247b32ebde7f6cf6a989d6248977e3816c761540b990b5f9818cb6"},
    {"rmsnorm", "rmsnorm.wgsl", "main", "284d3efb0ad0991fc57ece5f634cbc8a931fcab36f193b2b6832561d4cc79ef1"},
    {"gemv", "matmul_gemv_subgroup.wgsl", "main_vec4",
     "2ea9aea659367210fbf61d922c0d4ee17cdac68ffb506b3bc5516e498071e011"},
    {"tiled", "matmul_f16w_f32a_tiled.wgsl", "main",
     "e94ae5374e8b43dd48b663eff59a45c822c3784d5702a1145266b6ffd15ba78c"},
    {"rope", "rope.wgsl", "main", "b2da9d396668981dab9794c2973b668279f768994466b083d2105730555e1a5b"},
    {"attn_decode", "attention_decode_online_f16kv.wgsl", "main",
     "91808be35895e921c0fa43fc47bfe8cab69c437c388ab561f595d9dc983f66e1"},
    {"attn_prefill", "attention_streaming_f16kv.wgsl", "main",
     "c3ec920699a81ee6df04a64eb0ea2477bec168ebb809af29f2d4b0924a4bdf8f"},
    {"residual", "residual.wgsl", "main", "abd19bc08ad668a7cad562e2bc0a4be1aa8827ad4300d8d474b7fc2af4c27117"},
    {"gelu", "gelu.wgsl", "main", "7f8900b69de5107e4cf424cac0d4de1539591ece34e977ff30f6f7364460ab34"},
    {"silu", "silu.wgsl", "main", "d6b21e62031ac0d748617f7ebfb43834552a5b8f9590c18dc19cd0cd41a2fbca"},
    {"lm_head_gemv", "matmul_gemv_subgroup.wgsl", "main_multicol",
     "e41f94574d5ac54dd2710036da5d5acc643a483b79b2d74b86825efdaaa7438f"},
    {"sample", "sample.wgsl", "sample_single_pass", "7ff3dd675b4737d920e0b3889e15c4fedde8410a353bbc6d4651db76ce69eb9b"},
};

Json kernels_of(const std::string& activation) {
  Json out = Json::object();
  for (const Kernel& kernel : kKernels) {
    const std::string key = kernel.key;
    if ((key == "gelu" || key == "silu") && key != activation) continue;
    Json& item = out[key] = {
        {"kernel", kernel.file}, {"entry", kernel.entry}, {"digest", fmt::format("sha256:{}", kernel.digest)}};
    if (key.starts_with("attn_")) item["precision"] = {{"kvDtype", "f16"}};
    if (key == activation) item["constants"] = {{"HAS_GATE", true}};
    if (key == "lm_head_gemv") item["constants"] = {{"MULTICOL_COLS_PER_WG", 8}, {"MULTICOL_THREADS_PER_COL", 32}};
  }
  return out;
}

// The steps of a layer. That engine puts in by itself what a layer's weights and the numbers above call for: norms of
// heads, biases, other mixers than attention.
Json layer_steps(const std::string& matmul, const std::string& attention, const std::string& activation, bool experts) {
  const auto weight = [](const char* name) { return fmt::format("layer.{{L}}.{}", name); };
  Json steps = Json::array();
  steps.push_back({"input_norm", "rmsnorm"});
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) steps.push_back({name, matmul, weight("self_attn.") + name});
  for (const char* name : {"rope_q", "rope_k"}) steps.push_back({name, "rope"});
  steps.push_back({"attention", attention});
  steps.push_back({"o_proj", matmul, weight("self_attn.o_proj")});
  steps.push_back({"attn_residual", "residual"});
  steps.push_back({"post_attn_norm", "rmsnorm"});
  if (experts) {
    steps.push_back({"ffn", activation});
  } else {
    for (const char* name : {"gate_proj", "up_proj"}) steps.push_back({name, matmul, weight("mlp.") + name});
    steps.push_back({"activation", activation});
    steps.push_back({"down_proj", matmul, weight("mlp.down_proj")});
  }
  steps.push_back({"ffn_residual", "residual"});
  return steps;
}

}  // namespace

void add_public_parts(std::span<const RdrrTensorEntry> tensors, Json& manifest) {
  Json& inference = manifest["inference"];
  for (const auto& [flag, ending] : kNormFlags) {
    const std::string_view end = ending;
    inference["normalization"][flag] =
        std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name.ends_with(end); });
  }
  // Projections name their tensors, which are called after their slots.
  Json& postprocessor = inference["output"]["embeddingPostprocessor"];
  for (size_t i = 0; postprocessor.is_object() && i < postprocessor["projections"].size(); ++i) {
    const std::string slot = fmt::format("dense{}.", i);
    const auto tensor =
        std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name.starts_with(slot); });
    if (tensor != tensors.end()) postprocessor["projections"][i]["weightTensor"] = tensor->name;
  }
  if (!inference.contains("chatTemplate")) inference["chatTemplate"] = {{"type", nullptr}, {"enabled", false}};

  const std::string activation = inference["ffn"]["activation"] == "gelu" ? "gelu" : "silu";
  const bool experts = !manifest["moeConfig"].is_null();
  inference["schema"] = "doppler.execution/v1";
  inference["session"] = parse_json(kSession, "kSession");
  Json& graph = inference["execution"];
  graph["kernels"] = kernels_of(activation);
  graph["preLayer"] = Json::array({{"embed", "embed", "embed_tokens"}});
  graph["decode"] = layer_steps("gemv", "attn_decode", activation, experts);
  graph["prefill"] = layer_steps("tiled", "attn_prefill", activation, experts);
  graph["postLayer"] = Json::array({{"final_norm", "rmsnorm"},
                                    {"lm_head", "lm_head_gemv", "lm_head"},
                                    {"lm_head_prefill", "tiled", "lm_head"},
                                    {"sample", "sample"}});
  graph["policies"] = {
      {"unsupportedPrecision", "error"}, {"dtypeTransition", "require_cast_step"}, {"unresolvedKernel", "error"}};
}

}  // namespace doppler
