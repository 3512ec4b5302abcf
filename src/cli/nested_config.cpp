#include "cli/nested_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/say.h"

namespace doppler {
namespace {

struct Renamed {
  std::string_view nested, flat;
};
constexpr Renamed kRenamed[] = {
    {"shared.debug.pipeline.layers", "layers"},
    {"shared.debug.profiler.enabled", "profile"},
    {"shared.benchmark.run.promptName", "workload"},
    {"shared.benchmark.run.maxNewTokens", "tokens"},
    {"shared.benchmark.run.timedRuns", "runs"},
    {"inference.prompt", "prompt"},
    {"inference.batching.batchSize", "decode_batch"},
    {"inference.batching.maxTokens", "max_tokens"},
    {"inference.sampling.maxTokens", "max_tokens"},
    {"inference.sampling.temperature", "temperature"},
    {"inference.sampling.topK", "top_k"},
    {"inference.sampling.topP", "top_p"},
    {"inference.sampling.minP", "min_p"},
    {"inference.sampling.repetitionPenalty", "repeat_penalty"},
    {"inference.sampling.seed", "seed"},
    {"inference.kvcache.maxSeqLen", "context"},
};

// Keys, and beginnings of keys that end in a dot, which have nothing to set, and why.
struct Idle {
  std::string_view nested, why;
};
constexpr Idle kIdle[] = {
    {"shared.tooling.intent", "the verb says what is meant"},
    {"shared.benchmark.run.warmupRuns", "bench warms up for a second, or one run"},
    {"shared.benchmark.run.customPrompt", "bench makes prompts of a length"},
    {"shared.debug.logOutput.", "lines go to standard error; 2> FILE keeps them"},
    {"shared.debug.logHistory.", "lines go to standard error; 2> FILE keeps them"},
    {"shared.debug.pipeline.", "debug looks at every step, and at all of it"},
    {"shared.debug.profiler.", "every dispatch has a clock where the device has clocks"},
    {"inference.batching.stopCheckMode", "an answer ends at the token that ends it"},
    {"inference.sampling.greedyThreshold", "temperature 0 takes the likeliest token"},
    {"inference.sampling.repetitionPenaltyWindow", "the penalty looks at the whole text"},
    {"inference.kernelPath", "the device decides kind by kind; kernelOverrides and --kernel take kinds and variants"},
    {"inference.compute.", "the artefact and the device decide on number formats"},
    {"inference.largeWeights.", "the artefact and the device decide on number formats"},
    {"inference.kvcache.", "the cache has pages, and as many as the context needs"},
    {"inference.tokenizer.", "the model's tokenizer says it"},
    {"inference.moe.", "the model's config says it"},
    {"loading.expertCache.", "--gpu-memory bounds the whole model, and its experts get what is left"},
    {"loading.", "files are mapped, and the system caches them"},
};

struct Nested {
  std::map<std::string, Json> leaves;  // by path
  const std::string& source;

  void add(const Json& json, const std::string& path) {
    if (json.is_null()) return;
    if (!json.is_object()) {
      leaves[path] = json;
      return;
    }
    for (const auto& [key, value] : json.items()) add(value, path.empty() ? key : path + "." + key);
  }

  // Takes a leaf out; null where it is not set.
  Json take(const std::string& path) {
    const auto found = leaves.find(path);
    if (found == leaves.end()) return {};
    Json value = std::move(found->second);
    leaves.erase(found);
    return value;
  }

  [[noreturn]] void refuse(const std::string& path, const char* expected, const Json& got) const {
    fail({.code = ErrorCode::kFormat,
          .what = "a value that this key does not take",
          .where = source + ": runtime." + path,
          .expected = expected,
          .got = brief(got)});
  }

  Json take_list(const std::string& path) {
    Json value = take(path);
    if (!value.is_null() && !value.is_array()) refuse(path, "a list", value);
    return value;
  }
};

std::string with_commas(const Json& list) {
  std::string text;
  for (const Json& value : list) {
    text += (text.empty() ? "" : ",") + (value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

void set_level(Nested& nested, Json& flat) {
  const std::string path = "shared.debug.logLevel.defaultLogLevel";
  const Json level = nested.take(path);
  if (level.is_null()) return;
  static const std::map<std::string, const char*> kLevels{{"debug", "verbose"}, {"verbose", "verbose"},
                                                          {"info", "info"},     {"warn", "silent"},
                                                          {"error", "silent"},  {"silent", "silent"}};
  const auto found = kLevels.find(level.is_string() ? level.get<std::string>() : "");
  if (found == kLevels.end()) nested.refuse(path, "debug, verbose, info, warn, error or silent", level);
  flat["log"] = found->second;
}

// Categories are traced only where tracing is enabled, and then all of them unless some are named.
void set_trace(Nested& nested, Json& flat) {
  const std::string trace = "shared.debug.trace.";
  const Json enabled = nested.take(trace + "enabled"), categories = nested.take_list(trace + "categories"),
             layers = nested.take_list(trace + "layers"), steps = nested.take(trace + "maxDecodeSteps"),
             file = nested.take(trace + "file");
  if (!enabled.is_null() && !enabled.is_boolean()) nested.refuse(trace + "enabled", "true or false", enabled);
  if (enabled.is_null() || !enabled.get<bool>()) return;
  flat["trace"] = categories.empty() ? "all" : with_commas(categories);
  if (!layers.is_null()) flat["trace_layers"] = with_commas(layers);
  if (!steps.is_null()) flat["trace_steps"] = steps;
  if (!file.is_null()) flat["trace_file"] = file;
}

// [{id, stage, layers, tokens, dims}]. What the nested keys call logits is before the cap, and tokens are [0] where
// they are left out.
void set_probes(Nested& nested, Json& flat) {
  const std::string path = "shared.debug.probes";
  const Json probes = nested.take_list(path);
  if (probes.is_null()) return;
  flat["probe"] = Json::array();
  for (const Json& probe : probes) {
    if (!probe.is_object()) nested.refuse(path, "{id, stage, layers, tokens, dims}", probe);
    const std::string stage = require_string(probe, "stage", nested.source);
    std::string text = "stage=" + (stage == "logits" ? "raw_logits" : stage);
    for (const auto& [key, value] : probe.items()) {
      if (key == "id" && value.is_string()) {
        text += ",id=" + value.get<std::string>();
      } else if ((key == "layers" || key == "tokens" || key == "dims") && value.is_array()) {
        if (!value.empty()) text += "," + key + "=" + with_commas(value);
      } else if (key != "stage" && key != "category" && !value.is_null()) {
        nested.refuse(path + "." + key, "id, stage, layers, tokens, dims or category", value);
      }
    }
    if (const Json* tokens = find(probe, "tokens"); !tokens || tokens->is_null()) text += ",tokens=0";
    flat["probe"].push_back(text);
  }
}

// {matmul: "int8", attention: "plain"}.
void set_kernels(Nested& nested, Json& flat) {
  const std::string path = "inference.kernelOverrides.";
  std::string text;
  for (auto leaf = nested.leaves.lower_bound(path); leaf != nested.leaves.end() && leaf->first.starts_with(path);) {
    if (!leaf->second.is_string()) nested.refuse(leaf->first, "a variant's words", leaf->second);
    text += (text.empty() ? "" : ",") + leaf->first.substr(path.size()) + "=" + leaf->second.get<std::string>();
    leaf = nested.leaves.erase(leaf);
  }
  if (!text.empty()) flat["kernel"] = text;
}

}  // namespace

Json flat_config(const Json& runtime, const std::string& source) {
  Nested nested{.leaves = {}, .source = source};
  nested.add(runtime, "");
  Json flat = Json::object();
  set_level(nested, flat);
  set_trace(nested, flat);
  set_probes(nested, flat);
  set_kernels(nested, flat);
  if (const Json verify = nested.take("loading.shardCache.verifyHashes"); verify.is_boolean() && !verify.get<bool>()) {
    flat["no_verify"] = true;
  }
  for (const auto& [path, value] : nested.leaves) {
    const auto* const renamed =
        std::find_if(std::begin(kRenamed), std::end(kRenamed), [&](const Renamed& r) { return r.nested == path; });
    if (renamed != std::end(kRenamed)) {
      flat[std::string(renamed->flat)] = value;
      continue;
    }
    const auto* const idle = std::find_if(std::begin(kIdle), std::end(kIdle), [&](const Idle& i) {
      return i.nested.ends_with('.') ? path.starts_with(i.nested) : path == i.nested;
    });
    if (idle == std::end(kIdle)) {
      fail({.code = ErrorCode::kUsage,
            .what = "an unknown key in a config",
            .where = source,
            .got = "runtime." + path,
            .todo = "docs/debugging.md lists the nested keys"});
    }
    say("runtime.{} sets nothing: {}", path, idle->why);
  }
  return flat;
}

}  // namespace doppler
