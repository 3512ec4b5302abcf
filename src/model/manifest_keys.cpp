// Which keys of a manifest may be there. A key that is read over gives a model that speaks, and speaks wrongly: so what
// is not in this table stops the load.
#include "model/manifest_keys.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace doppler {
namespace {

// A word is a key that read_model_config reads; `key=VALUE` one that may have that value only, which changes nothing;
// `key=*` one that concerns other programs, or what they do with the model's answers. Null is a key that is not there.
struct Section {
  std::string_view path, keys;
};
constexpr Section kSections[] = {
    {"architecture",
     "numLayers hiddenSize intermediateSize numAttentionHeads numKeyValueHeads headDim vocabSize maxSeqLen ropeTheta "
     "rmsNormEps numGlobalKeyValueHeads globalHeadDim hiddenSizePerLayerInput vocabSizePerLayerInput=* "
     "numKvSharedLayers linearNumKeyHeads linearNumValueHeads linearKeyHeadDim linearValueHeadDim "
     "linearConvKernelDim linearNormMode=\"shared\""},
    {"moeConfig",
     "numExperts numExpertsPerToken expertFormat expertIntermediateSize expertBias normalizedWeights denseLayers "
     "sharedExpertIntermediateSize besideFeedForward "
     "sharedExperts=[] expertShardMap=* expertTensors=* expertBytes=*"},
    {"inference",
     "attention normalization ffn rope output layerPattern layerRopes unsupported=null pipeline=null "
     "sequence=null rerank=* supportsEmbedding=* supportsRerank=* supportsSequence=* "
     "supportsTranscription=* supportsVision=* chatTemplate=* schema=* session=* sessionDefaults=* execution=* "
     "largeWeights=*"},
    {"inference.attention",
     "queryPreAttnScalar attnLogitSoftcapping slidingWindow queryKeyNorm queryKeyNormAxis attentionBias outputBias "
     "attentionSinks causal queryKeyNormType=\"rmsnorm\" queryKeyNormLayers=null queryKeyNormWeightLayers=null "
     "queryKeyNormWhole=false valueNorm attentionOutputGate outputGateType=\"sigmoid\""},
    {"inference.normalization",
     "rmsNormEps rmsNormWeightOffset postAttentionNorm preFeedforwardNorm preAttentionNorm postFeedforwardNorm "
     "type=\"rmsnorm\" finalNormBiasTensor=null residualScale=1"},
    {"inference.ffn", "activation branchMode swigluLimit swigluAlpha gatedActivation=true useDoubleWideMlp"},
    {"inference.rope",
     "ropeTheta ropeScalingType ropeScalingFactor partialRotaryFactor ropeQueryScaleBeta yarnBetaFast yarnBetaSlow "
     "yarnOriginalMaxPos yarnTruncate yarnAttentionFactor longropeShortFactor longropeLongFactor "
     "longropeOriginalMaxPos longropeAttentionFactor llama3LowFreqFactor llama3HighFreqFactor llama3OriginalMaxPos "
     "ropeInterleaved=false mropeInterleaved=* mropeSection ropeFrequencyBaseDim"},
    {"inference.output",
     "tieWordEmbeddings scaleEmbeddings embeddingScale logitInputScale finalLogitSoftcapping embeddingVocabSize "
     "embeddingTranspose=false embeddingPostprocessor lmHeadBiasTensor=null logitScale=1"},
    {"inference.output.embeddingPostprocessor", "poolingMode includePrompt=true projections normalize"},
    {"inference.layerPattern",
     "type period offset globalPattern layerTypes layers residualBranchScale layerScale "
     "layerHeadDims layerKeyValueHeads layerFeedForwards layerKeysOf valuesAreKeys"},
};

// The value that the section allows the key: empty for any, "?" for none since the key is unknown.
std::string_view allowed(const Section& section, std::string_view key) {
  const bool rope = section.path == "inference.rope";
  for (std::string_view rest = section.keys; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name != key && !(rope && local_rope_key(name) == key)) continue;
    const std::string_view value = entry.substr(std::min(name.size() + 1, entry.size()));
    return value == "*" ? "" : value;
  }
  return "?";
}

}  // namespace

std::string local_rope_key(std::string_view global_name) {
  if (global_name.starts_with("rope")) return "ropeLocal" + std::string(global_name.substr(4));
  std::string name(global_name);
  name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
  return "ropeLocal" + name;
}

void check_manifest_keys(const Json& manifest, const std::string& where) {
  for (const Section& section : kSections) {
    const Json* object = &manifest;
    for (std::string_view rest = section.path; object && !rest.empty();) {
      const std::string_view part = rest.substr(0, rest.find('.'));
      rest.remove_prefix(std::min(part.size() + 1, rest.size()));
      object = find(*object, part);
    }
    if (!object || !object->is_object()) continue;
    for (const auto& [key, value] : object->items()) {
      const std::string_view expected = allowed(section, key);
      if (value.is_null() || expected.empty()) continue;
      const bool unknown = expected == "?";
      if (!unknown && value == parse_json(expected, where)) continue;
      fail({.code = ErrorCode::kUnsupported,
            .what = unknown ? "the manifest has a key that this engine does not know"
                            : "the manifest asks for something that this engine does not compute",
            .where = where + ": " + std::string(section.path) + "." + key,
            .expected = std::string(unknown ? "" : expected),
            .got = brief(value),
            .todo = "Read over, it would give wrong text. Convert the model's source with this version, or use the "
                    "program that the artefact was made for"});
    }
  }
}

}  // namespace doppler
