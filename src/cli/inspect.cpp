#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>

#include "base/error.h"
#include "cli/artefact_report.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "engine/loaded_model.h"
#include "format/rdrr.h"
#include "model/cost.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string model;
  int context = 0;
  bool tensors = false, plan = false, json = false;
};

struct Facts {
  ModelConfig config;
  std::string family, quantization, tokenizer;
  bool synthetic = false;
  uint64_t weights = 0, weight_bytes = 0, shard_bytes = 0;
  std::map<std::string, uint64_t> dtype_bytes;
  int context = 0;
  size_t kv_bytes = 0;
};

Facts gather(const RdrrReader& reader, int context) {
  static const Json kNothing = Json::object();
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
  for (const RdrrTensorEntry& entry : reader.entries()) {
    facts.weights += entry.weights();
    facts.weight_bytes += entry.size;
    facts.dtype_bytes[std::string(name_of(entry.dtype))] += entry.size;
  }
  for (const RdrrShard& shard : reader.shards()) facts.shard_bytes += shard.size;
  facts.context = context > 0 ? context : default_context(facts.config);
  if (facts.context > facts.config.max_context) {
    fail({.code = ErrorCode::kUsage,
          .what = "the model was not made for a context this long",
          .where = "--context",
          .expected = fmt::format("at most {}", facts.config.max_context),
          .got = std::to_string(facts.context)});
  }
  facts.kv_bytes = kv_cache_bytes(facts.config, facts.context);
  return facts;
}

std::string rope_text(const RopeConfig& rope) {
  std::string text = fmt::format("theta {:g}", rope.theta);
  switch (rope.scaling) {
    case RopeScaling::kNone: break;
    case RopeScaling::kLinear: text += fmt::format(", stretched {:g} times", rope.factor); break;
    case RopeScaling::kLlama3: text += fmt::format(", llama3 scaling by {:g}", rope.factor); break;
    case RopeScaling::kYarn: text += fmt::format(", YaRN by {:g}", rope.factor); break;
  }
  return text;
}

std::string layers_text(const ModelConfig& c) {
  int local = 0, window = 0;
  for (const LayerConfig& layer : c.layers) {
    if (layer.window > 0) {
      ++local;
      window = layer.window;
    }
  }
  if (local == 0) return fmt::format("{}, all global", c.layer_count());
  return fmt::format("{}: {} global, {} with a window of {}", c.layer_count(), c.layer_count() - local, local, window);
}

void print_facts(const Facts& f, size_t tensors, size_t shards) {
  const ModelConfig& c = f.config;
  const auto line = [](const char* name, const std::string& text) { fmt::print("{:<13} {}\n", name, text); };
  line("model", fmt::format("{}{}{}", c.id, f.family.empty() ? "" : " (" + f.family + ")",
                            f.synthetic ? ", random weights for measuring" : ""));
  line("layers", layers_text(c));
  line("width", fmt::format("hidden {}, feed-forward {}, vocabulary {}", c.hidden, c.ffn, c.vocab));
  line("heads", fmt::format("{} query, {} key/value, {} wide", c.heads, c.kv_heads, c.head_dim));
  if (c.experts > 0) line("experts", fmt::format("{}, {} for a token", c.experts, c.experts_per_token));
  line("rope", c.ropes.size() > 1 ? fmt::format("{} (global); {} (local)", rope_text(c.ropes[0]), rope_text(c.ropes[1]))
                                  : rope_text(c.ropes[0]));
  std::vector<std::string> traits = {std::string(name_of(c.activation))};
  if (c.qk_norm) traits.push_back("query/key norms");
  if (c.post_attn_norm || c.post_ffn_norm) traits.push_back("sandwich norms");
  if (c.norm_offset != 0) traits.push_back(fmt::format("norm offset {:g}", c.norm_offset));
  if (c.qkv_bias) traits.push_back("biases");
  if (c.attn_sinks) traits.push_back("attention sinks");
  if (c.attn_softcap > 0) traits.push_back(fmt::format("scores capped at {:g}", c.attn_softcap));
  if (c.logit_softcap > 0) traits.push_back(fmt::format("logits capped at {:g}", c.logit_softcap));
  traits.push_back(c.tied_output ? "tied output" : "output matrix of its own");
  line("traits", fmt::format("{}", fmt::join(traits, ", ")));
  line("tokenizer", f.tokenizer.empty() ? "none: takes token ids only" : f.tokenizer);
  line("stops at", c.eos_ids.empty() ? "nothing" : fmt::format("{}", fmt::join(c.eos_ids, ", ")));
  std::vector<std::string> dtypes;
  for (const auto& [name, bytes] : f.dtype_bytes) dtypes.push_back(fmt::format("{} {}", name, megabytes(bytes)));
  line("quantisation", fmt::format("{}: {}", f.quantization, fmt::join(dtypes, ", ")));
  line("weights",
       fmt::format("{:.2f} M in {} tensors and {} shard{}, {} ({:.2f} bits each)",
                   static_cast<double>(f.weights) * 1e-6, tensors, shards, shards == 1 ? "" : "s",
                   megabytes(f.shard_bytes), static_cast<double>(f.weight_bytes) * 8 / static_cast<double>(f.weights)));
  line("memory", fmt::format("{} at a context of {} (of {}): {} of weights, {} of keys and values",
                             megabytes(f.weight_bytes + f.kv_bytes), f.context, c.max_context,
                             megabytes(f.weight_bytes), megabytes(f.kv_bytes)));
}

Json to_json(const Facts& f, const RdrrReader& reader, const Arguments& arguments) {
  Json out;
  out["model"] = f.config.id;
  out["family"] = f.family;
  out["synthetic"] = f.synthetic;
  out["quantization"] = f.quantization;
  write_model_config(f.config, out);
  out["tokenizer"] = f.tokenizer.empty() ? Json() : Json(f.tokenizer);
  out["weights"] = f.weights;
  out["weight_bytes"] = f.weight_bytes;
  out["shards"] = reader.shards().size();
  out["dtypes"] = f.dtype_bytes;
  out["memory"] = {{"context", f.context}, {"weights", f.weight_bytes}, {"kv_cache", f.kv_bytes}};
  if (arguments.tensors) {
    Json& list = out["tensors"] = Json::array();
    for (const RdrrTensorEntry& entry : reader.entries()) {
      list.push_back({{"name", entry.name},
                      {"slot", entry.slot},
                      {"dtype", name_of(entry.dtype)},
                      {"shape", entry.shape},
                      {"role", entry.role},
                      {"bytes", entry.size}});
    }
  }
  if (arguments.plan) {
    Json& list = out["plan"] = Json::array();
    const Plan plan = build_plan(f.config);
    for (const Step& step : plan.steps) list.push_back(describe(step, plan));
  }
  return out;
}

void run(const Arguments& arguments) {
  const fs::path path = arguments.model.empty() ? default_model() : fs::path(arguments.model);
  const RdrrReader reader = RdrrReader::open(path);
  const Facts facts = gather(reader, arguments.context);
  if (arguments.json) {
    fmt::print("{}\n", to_json(facts, reader, arguments).dump(1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  print_facts(facts, reader.entries().size(), reader.shards().size());
  if (arguments.tensors) {
    fmt::print("\n{:<26} {:<6} {:>20} {:>9}  {}\n", "slot", "dtype", "shape", "bytes", "name");
    for (const RdrrTensorEntry& entry : reader.entries()) {
      fmt::print("{:<26} {:<6} {:>20} {:>9}  {}\n", entry.slot, name_of(entry.dtype),
                 fmt::format("{}", fmt::join(entry.shape, "x")), megabytes(entry.size), entry.name);
    }
  }
  if (arguments.plan) {
    fmt::print("\n");
    const Plan plan = build_plan(facts.config);
    for (const Step& step : plan.steps) fmt::print("{}\n", describe(step, plan));
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("inspect", "Show what a model is and what it needs");
  verb->add_option("model", arguments->model, "An RDRR folder (default: the model that ships with Doppler)");
  verb->add_option("--context", arguments->context, "Tokens of context to reckon memory for")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--tensors", arguments->tensors, "List every tensor");
  verb->add_flag("--plan", arguments->plan, "List every step of the computation");
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  verb->footer("Example:\n  doppler inspect models/tiny --context 1024 --tensors");
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace doppler
