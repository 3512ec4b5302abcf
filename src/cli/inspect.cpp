#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>

#include "base/error.h"
#include "base/say.h"
#include "cli/artefact_report.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "engine/loaded_model.h"
#include "format/rdrr.h"
#include "model/cost.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

struct InspectArguments {
  std::string model;
  int context = 0;
  bool tensors = false, plan = false, json = false;
};

// A tensor of an artefact as the file has it; of any other model as the engine gets it.
struct TensorLine {
  std::string name, slot, role;  // the role is empty where nobody says it
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

struct Facts {
  ModelConfig config;
  std::string family, quantization, tokenizer;
  std::string source;  // "3 shards", "a GGUF file"
  size_t shards = 0;   // of an artefact
  bool synthetic = false;
  uint64_t weights = 0, weight_bytes = 0, file_bytes = 0;
  uint64_t mapped_bytes = 0;  // of those that stay in the file
  std::map<std::string, uint64_t> dtype_bytes;
  std::vector<TensorLine> tensors;
  std::vector<std::string> notes;
  int context = 0;
  size_t kv_bytes = 0;
  size_t token_bytes = 0, later_token_bytes = 0;  // of keys and values, of the first token and past all windows
};

Facts artefact_facts(const fs::path& path) {
  static const Json kNothing = Json::object();
  const RdrrReader reader = RdrrReader::open(path);
  Facts facts;
  const Json& manifest = reader.manifest();
  facts.config = read_model_config(manifest, "manifest.json");
  const Json* metadata = find(manifest, "metadata");
  const Json& notes = metadata ? *metadata : kNothing;
  facts.family = string_or(notes, "family", "", "manifest.json: metadata");
  facts.synthetic = bool_or(notes, "synthetic", false, "manifest.json: metadata");
  facts.quantization = string_or(manifest, "quantization", "unknown", "manifest.json");
  if (const Json* tokenizer = find(manifest, "tokenizer")) {
    facts.tokenizer = string_or(*tokenizer, "file", "tokenizer.json", "manifest.json: tokenizer");
  }
  for (const RdrrTensorEntry& entry : reader.entries())
    facts.tensors.push_back({entry.name, entry.slot, entry.role, entry.dtype, entry.shape, entry.size});
  for (const RdrrShard& shard : reader.shards()) facts.file_bytes += shard.size;
  facts.shards = reader.shards().size();
  facts.source = fmt::format("{} shard{}", facts.shards, facts.shards == 1 ? "" : "s");
  return facts;
}

Facts loaded_facts(const fs::path& path, ModelKind kind) {
  const LoadedModel model = LoadedModel::load(path);
  Facts facts;
  facts.config = model.config;
  facts.quantization = model.quantization;
  facts.source = kind == ModelKind::kGguf ? "a GGUF file" : "a Hugging Face folder";
  if (model.tokenizer) facts.tokenizer = kind == ModelKind::kGguf ? "in the file" : "tokenizer.json";
  facts.file_bytes = model.artefact_bytes;
  facts.notes = model.notes;
  for (const auto& [slot, tensor] : model.weights.all())
    facts.tensors.push_back({tensor.name, slot, "", tensor.dtype, tensor.shape, tensor.byte_size()});
  return facts;
}

Facts gather(const fs::path& path, int context) {
  const ModelKind kind = model_kind(path);
  Facts facts = kind == ModelKind::kRdrr ? artefact_facts(path) : loaded_facts(path, kind);
  const Plan plan = build_plan(facts.config);
  for (const TensorLine& tensor : facts.tensors) {
    uint64_t weights = 1;
    for (const int64_t dim : tensor.shape) weights *= static_cast<uint64_t>(dim);
    facts.weights += weights;
    facts.weight_bytes += tensor.bytes;
    if (stays_in_file(plan, tensor.slot)) facts.mapped_bytes += tensor.bytes;
    facts.dtype_bytes[std::string(name_of(tensor.dtype))] += tensor.bytes;
  }
  facts.context = context > 0 ? context : default_context(facts.config);
  if (facts.context > facts.config.max_context) {
    fail({.code = ErrorCode::kUsage,
          .what = "the model was not made for a context this long",
          .where = "--context",
          .expected = fmt::format("at most {}", facts.config.max_context),
          .got = std::to_string(facts.context)});
  }
  const auto kv = [&](int tokens) { return kv_cache_bytes(facts.config, tokens); };
  facts.kv_bytes = kv(facts.context);
  facts.token_bytes = kv(1);
  facts.later_token_bytes = kv(facts.config.max_context) - kv(facts.config.max_context - 1);
  return facts;
}

std::string rope_text(const RopeConfig& rope) {
  std::string text = fmt::format("theta {:g}", rope.theta);
  switch (rope.scaling) {
    case RopeScaling::kNone: break;
    case RopeScaling::kLinear: text += fmt::format(", stretched {:g} times", rope.factor); break;
    case RopeScaling::kLlama3: text += fmt::format(", llama3 scaling by {:g}", rope.factor); break;
    case RopeScaling::kYarn: text += fmt::format(", YaRN by {:g}", rope.factor); break;
    case RopeScaling::kLongRope: text += ", LongRoPE"; break;
    case RopeScaling::kProportional: text += fmt::format(", {:g} of a head's pairs", rope.rotated); break;
  }
  return text;
}

std::string layers_text(const ModelConfig& c) {
  int local = 0, window = 0, convs = 0, deltas = 0;
  for (const LayerConfig& layer : c.layers) {
    convs += layer.mixer == Mixer::kShortConv;
    deltas += layer.mixer == Mixer::kDeltaNet;
    if (layer.window > 0) {
      ++local;
      window = layer.window;
    }
  }
  if (convs + deltas > 0) {
    std::string text = fmt::format("{}: {} with attention", c.layer_count(), c.layer_count() - convs - deltas);
    if (convs > 0) text += fmt::format(", {} short convolutions", convs);
    if (deltas > 0) text += fmt::format(", {} delta nets", deltas);
    return text;
  }
  if (local == 0) return fmt::format("{}, all global", c.layer_count());
  return fmt::format("{}: {} global, {} with a window of {}", c.layer_count(), c.layer_count() - local, local, window);
}

std::string heads_text(const ModelConfig& c) {
  std::string text = fmt::format("{} query, {} key/value, {} wide", c.heads, c.kv_heads, c.head_dim);
  std::map<std::pair<int, int>, int> others;  // key/value heads and their size: layers
  int shared = 0;
  for (int i = 0; i < c.layer_count(); ++i) {
    const std::pair<int, int> heads{c.kv_heads_of(i), c.head_dim_of(i)};
    if (heads != std::pair(c.kv_heads, c.head_dim)) ++others[heads];
    shared += c.layer(i).keys_of >= 0;
  }
  for (const auto& [heads, layers] : others)
    text += fmt::format("; {} key/value, {} wide in {} layers", heads.first, heads.second, layers);
  if (shared > 0) text += fmt::format("; the last {} layers have no keys and values of their own", shared);
  return text;
}

void print_facts(const Facts& f) {
  const ModelConfig& c = f.config;
  const auto line = [](const char* name, const std::string& text) { fmt::print("{:<13} {}\n", name, visible(text)); };
  line("model", fmt::format("{}{}{}", c.id, f.family.empty() ? "" : " (" + f.family + ")",
                            f.synthetic ? ", random weights for measuring" : ""));
  line("layers", layers_text(c));
  line("width", fmt::format("hidden {}, feed-forward {}, vocabulary {}", c.hidden, c.ffn, c.vocab));
  line("heads", heads_text(c));
  if (c.experts > 0) line("experts", fmt::format("{}, {} for a token", c.experts, c.experts_per_token));
  line("rope", c.ropes.size() > 1 ? fmt::format("{} (global); {} (local)", rope_text(c.ropes[0]), rope_text(c.ropes[1]))
                                  : rope_text(c.ropes[0]));
  std::vector<std::string> traits = {std::string(name_of(c.activation))};
  if (c.qk_norm) traits.push_back(c.qk_norm_whole ? "query/key norms over all heads" : "query/key norms");
  if (c.post_attn_norm || c.post_ffn_norm) traits.push_back(c.pre_norms ? "sandwich norms" : "norms after only");
  if (c.residual_scale != 1) traits.push_back(fmt::format("branches times {:g}", c.residual_scale));
  if (c.logit_scale != 1) traits.push_back(fmt::format("logits times {:g}", c.logit_scale));
  if (c.norm_offset != 0) traits.push_back(fmt::format("norm offset {:g}", c.norm_offset));
  if (c.qkv_bias) traits.push_back("biases");
  if (c.attn_sinks) traits.push_back("attention sinks");
  if (c.attn_softcap > 0) traits.push_back(fmt::format("scores capped at {:g}", c.attn_softcap));
  if (c.logit_softcap > 0) traits.push_back(fmt::format("logits capped at {:g}", c.logit_softcap));
  if (!c.causal) traits.push_back("tokens see both ways");
  if (c.makes_text()) traits.push_back(c.tied_output ? "tied output" : "output matrix of its own");
  line("traits", fmt::format("{}", fmt::join(traits, ", ")));
  if (!c.makes_text()) {
    const std::string dense =
        c.embedding.dense.empty() ? "" : fmt::format(", dense layers of {}", fmt::join(c.embedding.dense, " and "));
    line("vectors", fmt::format("{} numbers: {} of the tokens' rows{}{}", c.embedding_width(),
                                c.embedding.pooling == Pooling::kMean ? "the mean" : "the last", dense,
                                c.embedding.normalize ? ", at length 1" : ""));
  }
  line("tokenizer", f.tokenizer.empty() ? "none: takes token ids only" : f.tokenizer);
  line("stops at", c.eos_ids.empty() ? "nothing" : fmt::format("{}", fmt::join(c.eos_ids, ", ")));
  std::vector<std::string> dtypes;
  for (const auto& [name, bytes] : f.dtype_bytes) dtypes.push_back(fmt::format("{} {}", name, megabytes(bytes)));
  line("quantisation", fmt::format("{}: {}", f.quantization, fmt::join(dtypes, ", ")));
  line("weights",
       fmt::format("{:.2f} M in {} tensors and {}, {} ({:.2f} bits each)", static_cast<double>(f.weights) * 1e-6,
                   f.tensors.size(), f.source, megabytes(f.file_bytes),
                   static_cast<double>(f.weight_bytes) * 8 / static_cast<double>(f.weights)));
  const uint64_t held = f.weight_bytes - f.mapped_bytes;
  const std::string left =
      f.mapped_bytes > 0 ? fmt::format("; {} stay in the file, read row by row", megabytes(f.mapped_bytes)) : "";
  line("memory", fmt::format("{} at a context of {} (of {}): {} of weights, {} of keys and values{}",
                             megabytes(held + f.kv_bytes), f.context, c.max_context, megabytes(held),
                             megabytes(f.kv_bytes), left));
  line("cache", fmt::format("{} of keys and values per token{}", megabytes(f.token_bytes),
                            f.later_token_bytes == f.token_bytes
                                ? ""
                                : fmt::format(", {} past the windows", megabytes(f.later_token_bytes))));
  for (const std::string& note : f.notes) line("note", note);
}

Json facts_json(const Facts& f, const InspectArguments& arguments) {
  Json out;
  out["model"] = f.config.id;
  out["family"] = f.family;
  out["synthetic"] = f.synthetic;
  out["quantization"] = f.quantization;
  write_model_config(f.config, out);
  out["tokenizer"] = f.tokenizer.empty() ? Json() : Json(f.tokenizer);
  out["weights"] = f.weights;
  out["weight_bytes"] = f.weight_bytes;
  out["shards"] = f.shards;
  out["dtypes"] = Json::object();
  for (const auto& [dtype, bytes] : f.dtype_bytes) out["dtypes"][dtype] = bytes;
  out["memory"] = {{"context", f.context},
                   {"weights", f.weight_bytes - f.mapped_bytes},
                   {"read_from_file", f.mapped_bytes},
                   {"kv_cache", f.kv_bytes},
                   {"kv_cache_per_token", f.token_bytes},
                   {"kv_cache_per_token_past_windows", f.later_token_bytes}};
  if (arguments.tensors) {
    Json& list = out["tensors"] = Json::array();
    for (const TensorLine& tensor : f.tensors) {
      list.push_back({{"name", tensor.name},
                      {"slot", tensor.slot},
                      {"dtype", name_of(tensor.dtype)},
                      {"shape", tensor.shape},
                      {"role", tensor.role},
                      {"bytes", tensor.bytes}});
    }
  }
  if (arguments.plan) {
    Json& list = out["plan"] = Json::array();
    const Plan plan = build_plan(f.config);
    for (const Step& step : plan.steps) list.push_back(describe(step, plan));
  }
  return out;
}

void run_inspect(const InspectArguments& arguments) {
  const Facts facts = gather(local_model(arguments.model), arguments.context);
  if (arguments.json) {
    fmt::print("{}\n", facts_json(facts, arguments).dump(1));
    return;
  }
  print_facts(facts);
  if (arguments.tensors) {
    fmt::print("\n{:<26} {:<6} {:>20} {:>9}  {}\n", "slot", "dtype", "shape", "bytes", "name");
    for (const TensorLine& tensor : facts.tensors) {
      fmt::print("{:<26} {:<6} {:>20} {:>9}  {}\n", visible(tensor.slot), name_of(tensor.dtype),
                 fmt::format("{}", fmt::join(tensor.shape, "x")), megabytes(tensor.bytes), visible(tensor.name));
    }
  }
  if (arguments.plan) {
    fmt::print("\n");
    const Plan plan = build_plan(facts.config);
    for (const Step& step : plan.steps) fmt::print("{}\n", describe(step, plan));
  }
}

}  // namespace

void add_inspect(Verb app) {
  auto arguments = std::make_shared<InspectArguments>();
  Verb verb = app.add_verb("inspect", "Show what a model is and what it needs");
  verb.add_option("model", arguments->model, kModelHelp);
  verb.add_option("--context", arguments->context, "Tokens of context to reckon memory for").positive();
  verb.add_flag("--tensors", arguments->tensors, "List every tensor");
  verb.add_flag("--plan", arguments->plan, "List every step of the computation");
  verb.finish(arguments->json, "Example:\n  doppler inspect models/tiny --context 1024 --tensors",
              [arguments] { run_inspect(*arguments); });
}

}  // namespace doppler
