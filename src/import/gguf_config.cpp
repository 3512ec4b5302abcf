#include "import/gguf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "format/decode.h"

namespace doppler {
namespace {

const Json kNothing = Json::object();

const Json& gguf_of(const Family& family) {
  const Json* gguf = find(family.json, "gguf");
  return gguf ? require_object(family.json, "gguf", family.file) : kNothing;
}

bool lists(const Json& object, const char* key, const std::string& word) {
  const Json* list = find(object, key);
  return list && list->is_array() && std::find(list->begin(), list->end(), Json(word)) != list->end();
}

// A metadata value as JSON. A number that is given for every layer must be the same for all.
Json to_json(const GgufValue& value, const std::string& where) {
  if (const auto* u = std::get_if<uint64_t>(&value.value)) return *u;
  if (const auto* i = std::get_if<int64_t>(&value.value)) return *i;
  if (const auto* d = std::get_if<double>(&value.value)) return *d;
  if (const bool* b = value.boolean()) return *b;
  if (const GgufArray* array = value.array(); array && array->count > 0 && array->type != GgufType::kString) {
    for (uint64_t i = 1; i < array->count; ++i) {
      if (array->number(i) != array->number(0)) {
        fail({.code = ErrorCode::kUnsupported,
              .what = "a number of the model differs from layer to layer",
              .where = where,
              .expected = "one for all layers",
              .got = fmt::format("{} and {}", array->number(0), array->number(i))});
      }
    }
    return array->number(0);
  }
  return std::string(value.string());
}

class MetadataReader {
 public:
  MetadataReader(const GgufFile& file, const Family& family)
      : file_(file), arch_(file.find("general.architecture")->string()), gguf_(gguf_of(family)) {}

  // The key after the architecture's name, or null.
  const GgufValue* find_key(const std::string& suffix) {
    used_.insert(arch_ + "." + suffix);
    return file_.find(arch_ + "." + suffix);
  }
  double number_or(const std::string& suffix, double otherwise) {
    const GgufValue* value = find_key(suffix);
    return value && value->is_number() ? value->number() : otherwise;
  }

  void copy_keys(const Json& map, Json& config, const std::string& where) {
    for (const auto& item : map.items()) {
      const std::string suffix = item.value.is_string() ? item.value.get<std::string>() : "";
      if (const GgufValue* value = find_key(suffix))
        config[item.key] = to_json(*value, place(suffix));
      else if (suffix.empty())
        fail({.code = ErrorCode::kFormat, .what = "a GGUF key must be a string", .where = where, .got = item.key});
    }
  }

  void check_unread(const std::set<std::string>& harmless) const {
    std::vector<std::string> unread;
    const std::string prefix = arch_ + ".";
    for (const auto& [key, value] : file_.metadata()) {
      if (!key.starts_with(prefix) || used_.contains(std::string(key))) continue;
      const std::string suffix(key.substr(prefix.size()));
      if (lists(gguf_common(), "ignored_keys", suffix) || lists(gguf_, "ignored_keys", suffix)) continue;
      if (harmless.contains(suffix) || harmless.contains(std::string(key))) continue;
      unread.push_back(fmt::format("{} = {}", key, brief(value.array() ? Json("a list") : to_json(value, ""))));
    }
    if (unread.empty()) return;
    fail({.code = ErrorCode::kUnsupported,
          .what = "the file's metadata has keys that may change what the model computes",
          .where = file_.where(),
          .got = fmt::format("{}", fmt::join(unread, "; ")),
          .todo = "If a key changes nothing, say so with --ignore-key"});
  }

  std::string place(const std::string& suffix) const { return file_.where() + ": " + arch_ + "." + suffix; }
  const Json& gguf() const { return gguf_; }

 private:
  const GgufFile& file_;
  std::string arch_;
  const Json& gguf_;
  std::set<std::string> used_;
};

// Numbers that llama.cpp keeps apart and this engine does not: they must agree.
void check_agree(MetadataReader& in, const char* suffix, const Json& config, const char* key) {
  const GgufValue* value = in.find_key(suffix);
  if (!value || !config.contains(key)) return;
  const Json got = to_json(*value, in.place(suffix));
  if (got.is_number() && config[key].is_number() && got.get<double>() == config[key].get<double>()) return;
  fail({.code = ErrorCode::kUnsupported,
        .what = "two numbers of the model must be the same",
        .where = in.place(suffix),
        .expected = fmt::format("{} as {} says", brief(config[key]), key),
        .got = brief(got)});
}

// A small vector of the file, as JSON.
Json floats_of(const Tensor& tensor, const std::string& where) {
  if (tensor.shape.size() != 1 || tensor.cols() > 4096)
    fail({.code = ErrorCode::kFormat, .what = "the frequency divisors have a wrong shape", .where = where});
  std::vector<float> values(static_cast<size_t>(tensor.cols()));
  decode_row(tensor.dtype, tensor.bytes.data(), values.data(), values.size());
  Json out = Json::array();
  for (const float value : values) out.push_back(value);
  return out;
}

// longrope keeps the divisors of frequencies, for short and for long contexts.
void read_long_rope(const GgufFile& file, Json& config) {
  const Tensor *near = file.tensor(kShortFactors), *far = file.tensor(kLongFactors);
  if (!near || !far) return;
  Json& scaling = config["rope_scaling"];
  scaling["rope_type"] = "longrope";
  scaling["short_factor"] = floats_of(*near, file.where() + ": " + kShortFactors);
  scaling["long_factor"] = floats_of(*far, file.where() + ": " + kLongFactors);
}

void read_rope_scaling(const GgufFile& file, MetadataReader& in, Json& config) {
  const GgufValue* type = in.find_key("rope.scaling.type");
  const double factor = in.number_or("rope.scaling.factor", 1),
               original = in.number_or("rope.scaling.original_context_length", 0);
  const double fast = in.number_or("rope.scaling.yarn_beta_fast", 32),
               slow = in.number_or("rope.scaling.yarn_beta_slow", 1);
  if (type && type->string() != "none" && !type->string().empty()) {
    Json scaling = {{"rope_type", std::string(type->string())}, {"factor", factor}};
    if (type->string() == "yarn") {
      scaling["beta_fast"] = fast;
      scaling["beta_slow"] = slow;
      scaling["original_max_position_embeddings"] = original;
    }
    if (const Json* extra = find(in.gguf(), "rope_scaling")) scaling.update(*extra);
    config["rope_scaling"] = std::move(scaling);
  }
  read_long_rope(file, config);
  const double magnitude = in.number_or("rope.scaling.attn_factor", 0);
  if (config.contains("rope_scaling")) {
    if (magnitude > 0) config["rope_scaling"]["attention_factor"] = magnitude;
    if (const Json* keys = find(in.gguf(), "rope_keys")) in.copy_keys(*keys, config["rope_scaling"], "gguf.rope_keys");
  }
  if (const Tensor* divisors = file.tensor("rope_freqs.weight")) {
    if (config.contains("rope_scaling")) {
      fail({.code = ErrorCode::kUnsupported,
            .what = "the file scales its rotary embedding in two ways",
            .where = file.where(),
            .got = "rope.scaling.type and rope_freqs.weight"});
    }
    const auto values = floats_of(*divisors, file.where() + ": rope_freqs.weight").get<std::vector<float>>();
    const double theta = number_or(config, "rope_theta", 10000, file.where());
    Json scaling = llama3_scaling_from(values, theta, file.where() + ": rope_freqs.weight");
    if (!scaling.is_null()) config["rope_scaling"] = std::move(scaling);
  }
}

// llama.cpp's pooling_type, and the dense layers that its converter takes along where it is asked to.
EmbeddingConfig embedding_of(MetadataReader& in) {
  EmbeddingConfig out;
  const double pooling = in.number_or("pooling_type", 0);
  if (pooling == 1) out.pooling = Pooling::kMean;
  if (pooling == 3) out.pooling = Pooling::kLast;
  if (pooling != 0 && out.pooling == Pooling::kNone) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "rows of tokens become one in a way that is not known",
          .where = in.place("pooling_type"),
          .expected = "1 (mean) or 3 (last)",
          .got = fmt::format("{}", pooling)});
  }
  for (const char* layer : {"dense_2", "dense_3"}) {
    in.find_key(fmt::format("{}_feat_in", layer));  // the layer before says so
    const double width = in.number_or(fmt::format("{}_feat_out", layer), 0);
    if (width > 0) out.dense.push_back(static_cast<int>(std::min(width, 1.0 * (1 << 28))));
  }
  return out;
}

void read_ids(const GgufFile& file, const Json& gguf, Json& config) {
  const auto id = [&](const char* key) -> int64_t {
    const GgufValue* value = file.find(key);
    const double n = value && value->is_number() ? value->number() : -1;
    return n >= 0 && n <= 0x7fffffff ? static_cast<int64_t>(n) : -1;
  };
  Json ends = Json::array();
  std::set<int64_t> seen;
  const auto add = [&](int64_t n) {
    if (n >= 0 && seen.insert(n).second) ends.push_back(n);
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    add(id(key));
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  if (const GgufArray* array = tokens ? tokens->array() : nullptr) {
    for (size_t i = 0; i < array->strings.size(); ++i) {
      if (lists(gguf, "end_tokens", std::string(array->strings[i].substr(0, 64)))) add(static_cast<int64_t>(i));
    }
  }
  if (!ends.empty()) config["eos_token_id"] = ends;
  if (const int64_t bos = id("tokenizer.ggml.bos_token_id"); bos >= 0) config["bos_token_id"] = bos;
}

}  // namespace

const Json& gguf_common() {
  static const Json common = [] {
    for (const EmbeddedFamily& embedded : embedded_families()) {
      if (embedded.file == "common.json") {
        return require_object(parse_json(embedded.text, "families/common.json"), "gguf", "families/common.json");
      }
    }
    return Json::object();
  }();
  return common;
}

const Family& family_for_gguf(const GgufFile& file) {
  const GgufValue* told = file.find("general.architecture");
  const std::string arch(told ? told->string().substr(0, 64) : "");
  std::vector<std::string> known;
  // An architecture may stand for two families, told apart by a key that one of them has.
  const auto marked = [&](const Family& family) {
    const Json* when = find(gguf_of(family), "when");
    return when && when->is_string() && file.find(arch + "." + when->get<std::string>());
  };
  for (const Family& family : families()) {
    if (!arch.empty() && lists(gguf_of(family), "architectures", arch) && marked(family)) return family;
  }
  for (const Family& family : families()) {
    const bool unmarked = !find(gguf_of(family), "when");
    if (!arch.empty() && unmarked && lists(gguf_of(family), "architectures", arch)) return family;
    if (const Json* names = find(gguf_of(family), "architectures")) {
      for (const Json& name : *names) known.push_back(name.get<std::string>());
    }
  }
  fail({.code = ErrorCode::kUnsupported,
        .what = "no family serves this model",
        .where = file.where() + ": general.architecture",
        .expected = fmt::format("one of {}", fmt::join(known, ", ")),
        .got = arch.empty() ? "no architecture" : brief(arch),
        .todo = "A family is one JSON file: see families/README.md and --family"});
}

std::string gguf_architecture(const Family& family) {
  const Json* names = find(gguf_of(family), "architectures");
  if (!names || !names->is_array() || names->empty() || !(*names)[0].is_string()) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "this family has no name in GGUF",
          .where = family.file,
          .expected = "gguf.architectures"});
  }
  return (*names)[0].text();
}

std::vector<std::string> gguf_names(const Family& family, const std::string& slot) {
  const int layer = layer_of(slot);
  const std::string pattern = layer < 0 ? slot : "layer{i}" + slot.substr(slot.find('.'));
  const Json* own = find(gguf_of(family), "tensors");
  const Json* names = own ? find(*own, pattern) : nullptr;
  if (!names) names = find(require_object(gguf_common(), "tensors", "families/common.json: gguf"), pattern);
  std::vector<std::string> out;
  if (!names) return out;
  for (const Json& name : names->is_array() ? *names : Json::array({*names})) {
    std::string text = name.is_string() ? name.get<std::string>() : "";
    const size_t at = text.find("{i}");
    if (at != std::string::npos) text.replace(at, 3, std::to_string(layer));
    out.push_back(std::move(text));
  }
  return out;
}

bool gguf_pair_rotated(const Family& family, const std::string& slot) {
  return lists(gguf_of(family), "pair_rotated", slot.substr(slot.find('.') + 1));
}

bool gguf_norms_hold_offset(const Family& family) {
  return bool_or(gguf_of(family), "norms_hold_offset", false, family.file + ": gguf");
}

ModelConfig config_from_gguf(const GgufFile& file, const Family& family, const std::set<std::string>& harmless) {
  if (!file.find("general.architecture") || file.find("general.architecture")->string().empty()) {
    fail({.code = ErrorCode::kFormat,
          .what = "the file does not say what model it is",
          .where = file.where(),
          .expected = "general.architecture"});
  }
  MetadataReader in(file, family);
  Json config = Json::object();
  in.copy_keys(require_object(gguf_common(), "keys", "families/common.json: gguf"), config, "families/common.json");
  if (const Json* keys = find(in.gguf(), "keys")) in.copy_keys(*keys, config, family.file);
  if (const Json* set = find(in.gguf(), "set")) {
    for (const auto& item : set->items()) {
      if (!config.contains(item.key)) config[item.key] = item.value;
    }
  }
  if (const Json* cases = find(in.gguf(), "cases")) {
    const std::string where = family.file + ": gguf.cases";
    for (const Json& item : *cases) {
      if (in.number_or(require_string(item, "key", where), -1) == require_number(item, "equals", where))
        config.update(require_object(item, "set", where));
    }
  }
  const Tensor* embed = file.tensor(gguf_names(family, "embed").at(0));
  const double vocabulary = in.number_or("vocab_size", 0);
  if (embed && embed->shape.size() == 2)
    config["vocab_size"] = embed->shape[0];
  else if (vocabulary > 0)
    config["vocab_size"] = vocabulary;
  config["tie_word_embeddings"] = file.tensor(gguf_names(family, "lm_head").at(0)) == nullptr;
  check_agree(in, "attention.value_length", config, "head_dim");
  read_rope_scaling(file, in, config);
  read_ids(file, in.gguf(), config);
  const double width = number_or(config, "hidden_size", 0, in.place("embedding_length"));
  const double heads = number_or(config, "num_attention_heads", 0, in.place("attention.head_count"));
  const double head = number_or(config, "head_dim", heads > 0 ? width / heads : 0, in.place("attention.key_length"));
  const double rotated = in.number_or("rope.dimension_count", head);
  if (head > 0 && rotated != head) config["partial_rotary_factor"] = rotated / head;
  EmbeddingConfig embedding = embedding_of(in);
  in.check_unread(harmless);
  config.erase("quantization_config");
  const std::string where = file.where() + ": metadata, as config.json";
  ModelConfig out = config_from_hf(family, config, where);
  out.embedding = std::move(embedding);
  const GgufValue* name = file.find("general.name");
  if (name && !name->string().empty()) out.id = std::string(name->string().substr(0, 200));
  return out;
}

Json llama3_scaling_from(std::span<const float> divisors, double theta, const std::string& where) {
  const double head_dim = 2.0 * static_cast<double>(divisors.size());
  double factor = 1;
  for (const float d : divisors) {
    if (!(d > 0) || !std::isfinite(d))
      fail({.code = ErrorCode::kFormat, .what = "a frequency divisor is no number", .where = where});
    factor = std::max(factor, static_cast<double>(d));
  }
  if (factor == 1) return {};
  // Between the two cut-offs the share that is kept grows linearly with 1 / wavelength: keep = a / wavelength − b.
  const auto inverse_wavelength = [&](size_t i) {
    return std::pow(theta, -2.0 * static_cast<double>(i) / head_dim) / (2 * M_PI);
  };
  const auto kept = [&](size_t i) { return (1 / static_cast<double>(divisors[i]) - 1 / factor) / (1 - 1 / factor); };
  std::vector<Json> guesses = {
      {{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}}};
  std::vector<size_t> blended;
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (kept(i) > 1e-4 && kept(i) < 1 - 1e-4) blended.push_back(i);
  }
  if (blended.size() > 1) {
    const size_t i = blended.front(), j = blended.back();
    const double a = (kept(i) - kept(j)) / (inverse_wavelength(i) - inverse_wavelength(j));
    const double b = a * inverse_wavelength(i) - kept(i);
    if (b > 0) {  // only ratios matter: low is 1
      guesses.push_back({{"low_freq_factor", 1.0},
                         {"high_freq_factor", 1 + 1 / b},
                         {"original_max_position_embeddings", std::round(a / b)}});
    }
  }
  // Fewer blended frequencies leave a choice: the default ratio of the cut-offs, and the context that fits the one
  // there is, or that lies between the last frequency kept and the first divided.
  const auto default_ratio = [&](double context) {
    guesses.push_back(
        {{"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", context}});
  };
  if (blended.size() == 1) default_ratio(std::round((3 * kept(blended[0]) + 1) / inverse_wavelength(blended[0])));
  for (size_t i = 1; i < divisors.size(); ++i) {
    if (blended.empty() && kept(i - 1) > 0.5 && kept(i) < 0.5)
      default_ratio(std::round((4 / inverse_wavelength(i - 1) + 1 / inverse_wavelength(i)) / 2));
  }
  for (Json& guess : guesses) {
    RopeConfig rope{.theta = theta, .scaling = RopeScaling::kLlama3, .factor = factor};
    rope.high_freq_factor = guess["high_freq_factor"].get<double>();
    rope.original_context = guess["original_max_position_embeddings"].get<double>();
    const RopeTable table = make_rope_table(rope, static_cast<int>(head_dim));
    bool fits = true;
    for (size_t i = 0; i < divisors.size() && fits; ++i) {
      const double expected = std::pow(theta, -2.0 * static_cast<double>(i) / head_dim) / divisors[i];
      fits = std::abs(table.inv_freq[i] - expected) <= 1e-4 * expected;
    }
    if (!fits) continue;
    guess["rope_type"] = "llama3";
    guess["factor"] = factor;
    return guess;
  }
  fail({.code = ErrorCode::kUnsupported,
        .what = "the frequencies are scaled in a way that is not known",
        .where = where,
        .expected = "llama3 scaling"});
}

}  // namespace doppler
