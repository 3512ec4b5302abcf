#include "convert/gguf_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "base/threads.h"
#include "convert/stream.h"
#include "format/decode.h"
#include "import/gguf_config.h"
#include "import/gguf_tokenizer.h"
#include "import/tensor_map.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

struct Mix {
  const char* name;
  DType matrix;
  bool varied;  // output, value and down matrices get more bits
};
constexpr Mix kMixes[] = {{"q4_0", DType::kQ4_0, true}, {"q4_k_m", DType::kQ4_K, true}, {"q8_0", DType::kQ8_0, false},
                          {"f16", DType::kF16, false},  {"bf16", DType::kBF16, false},  {"f32", DType::kF32, false}};

// llama.cpp's choice of layers that get more bits.
bool gets_more_bits(int layer, int layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

bool fits(DType type, int64_t cols) { return cols % info(type).block_weights == 0; }

// What llama.cpp falls back to where a row is not a whole number of blocks.
DType fallback(DType type, int64_t cols) {
  if (fits(type, cols)) return type;
  const DType flat = type == DType::kQ4_K ? DType::kQ5_0 : DType::kQ8_0;
  return fits(flat, cols) ? flat : DType::kF16;
}

// One tensor of the file: rows of `source`, every `step`-th from `first` on, heads turned into the order of pairs; then
// those of `more`, as they are.
struct OutTensor {
  std::string name;
  Tensor source;
  std::vector<Tensor> more = {};
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  QuantClass kind = QuantClass::kKeep;
  int64_t first = 0, step = 1;
  int paired_head = 0;
  float add = 0;

  int64_t rows() const {
    int64_t n = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
    return n;
  }
  int64_t cols() const { return shape.back(); }
  int64_t source_row(int64_t row) const {
    if (paired_head == 0) return first + row * step;
    const int64_t head = row / paired_head, within = row % paired_head;
    return head * paired_head + within % 2 * (paired_head / 2) + within / 2;
  }
};

const Family& family_of(const RdrrReader& reader) {
  const std::string where = (reader.folder() / "manifest.json").string();
  const Json* metadata = find(reader.manifest(), "metadata");
  const std::string name = metadata ? string_or(*metadata, "family", "", where) : "";
  for (const Family& family : families()) {
    if (family.name == name) return family;
  }
  fail({.code = ErrorCode::kUnsupported,
        .what = "the artefact does not say which family it is of",
        .where = where + ": metadata.family",
        .expected = "the name of a family file",
        .got = name});
}

bool is_vector(const Tensor& tensor) { return tensor.dtype == DType::kF32; }

std::vector<OutTensor> plan_tensors(const RdrrReader& reader, const Family& family, const ModelConfig& config,
                                    const std::string& quant) {
  std::vector<OutTensor> out;
  for (const WeightUse& use : weights_of(build_plan(config))) {
    const RdrrTensorEntry* entry = reader.find_slot(use.slot);
    const std::vector<std::string> names = gguf_names(family, use.slot);
    const TensorRule rule = rule_for(family, use.slot, layouts_of(family).front());
    if (!entry || entry->shape != use.shape || names.empty()) {
      fail({.code = ErrorCode::kFormat,
            .what = "the artefact and its config disagree",
            .where = reader.folder().string(),
            .expected = use.slot,
            .todo = "Run doppler verify for the whole list"});
    }
    const auto begun = std::find_if(out.begin(), out.end(), [&](const OutTensor& t) {
      return !rule.stacked.empty() && names.size() == 1 && t.name == names[0];
    });
    OutTensor* stack = begun == out.end() ? nullptr : &*begun;
    const bool output = use.slot == "lm_head" || (use.slot == "embed" && config.tied_output);
    for (size_t part = 0; part < names.size(); ++part) {
      OutTensor tensor;
      tensor.name = names[part];
      tensor.source = reader.tensor(*entry);
      tensor.shape = use.shape;
      tensor.kind = rule.quant;
      tensor.first = static_cast<int64_t>(part);
      tensor.step = static_cast<int64_t>(names.size());
      if (names.size() > 1) tensor.shape[1] /= tensor.step;
      if (gguf_pair_rotated(family, use.slot)) tensor.paired_head = config.head_dim;
      if (rule.role == "norm" && gguf_norms_hold_offset(family)) tensor.add = config.norm_offset;
      tensor.dtype =
          gguf_export_dtype(quant, use.slot, rule.quant, output, entry->dtype, use.shape.back(), config.layer_count());
      if (stack) {  // the whole has the type of the part with the most bits
        stack->more.push_back(std::move(tensor.source));
        stack->shape[0] += use.shape[0];
        if (row_bytes(tensor.dtype, 256) > row_bytes(stack->dtype, 256)) stack->dtype = tensor.dtype;
        continue;
      }
      // A vector in two tensors, or turned: its weights are rows of one.
      if (rule.quant == QuantClass::kKeep && (tensor.step > 1 || tensor.paired_head > 0)) {
        if (!is_vector(tensor.source)) {
          fail({.code = ErrorCode::kUnsupported,
                .what = "a vector is not stored as F32",
                .where = reader.folder().string(),
                .expected = use.slot,
                .got = std::string(name_of(entry->dtype))});
        }
        tensor.source.shape = {static_cast<int64_t>(entry->weights()), 1};
      }
      out.push_back(std::move(tensor));
    }
  }
  return out;
}

// What config.json would call the model's numbers, for the keys that GGUF may have a place for.
Json numbers_of(const ModelConfig& c) {
  Json out = {{"hidden_size", c.hidden},
              {"intermediate_size", c.ffn},
              {"num_hidden_layers", c.layer_count()},
              {"num_attention_heads", c.heads},
              {"num_key_value_heads", c.kv_heads},
              {"head_dim", c.head_dim},
              {"max_position_embeddings", c.max_context}};
  out["rms_norm_eps"] = c.norm_eps;
  out["rope_theta"] = static_cast<float>(c.ropes.front().theta);
  if (c.ropes.size() > 1) out["rope_local_base_freq"] = static_cast<float>(c.ropes[1].theta);
  out["embedding_multiplier"] = out["scale_emb"] = c.embed_scale;
  out["attention_multiplier"] = c.attn_scale;
  out["residual_multiplier"] = c.residual_scale;
  out["logits_scaling"] = 1 / c.logit_scale;
  if (c.ropes.front().original_context > 0) {
    out["original_max_position_embeddings"] = static_cast<uint32_t>(c.ropes.front().original_context);
  }
  if (c.attn_softcap > 0) out["attn_logit_softcapping"] = c.attn_softcap;
  if (c.logit_softcap > 0) out["final_logit_softcapping"] = c.logit_softcap;
  if (c.experts > 0) {
    out["num_local_experts"] = out["num_experts"] = c.experts;
    out["moe_intermediate_size"] = c.expert_ffn > 0 ? c.expert_ffn : c.ffn;
    out["num_experts_per_tok"] = c.experts_per_token;
  }
  int globals = 0, last = -1;
  for (int i = 0; i < c.layer_count(); ++i) {
    const LayerConfig& layer = c.layers[static_cast<size_t>(i)];
    if (layer.window > 0) out["sliding_window"] = layer.window;
    if (layer.window == 0 && globals++ == 0) last = i;
  }
  if (last > 0) out["sliding_window_pattern"] = last + 1;
  return out;
}

void put_config(const ModelConfig& config, const Family& family, GgufHeader& header) {
  const std::string arch = gguf_architecture(family), prefix = arch + ".";
  header.put("general.architecture", arch);
  header.put("general.name", config.id);
  header.put("general.quantization_version", 2u);
  const Json numbers = numbers_of(config);
  const Json& gguf = require_object(family.json, "gguf", family.file);
  const Json* fixed = find(gguf, "set");
  std::map<std::string, bool> done;
  const auto put_all = [&](const Json& keys) {
    for (const auto& item : keys.items()) {
      const Json* value = find(numbers, item.key);
      const Json* by_default = fixed ? find(*fixed, item.key) : nullptr;
      const std::string key = prefix + item.value.get<std::string>();
      if (!value || (by_default && *by_default == *value) || done[key])
        continue;  // readers know the default themselves
      done[key] = true;
      if (value->is_number_float())
        header.put(key, value->get<float>());
      else
        header.put(key, value->get<uint32_t>());
    }
  };
  put_all(require_object(gguf_common(), "keys", "families/common.json: gguf"));
  if (const Json* keys = find(gguf, "keys")) put_all(*keys);
  header.put(prefix + "attention.value_length", static_cast<uint32_t>(config.head_dim));
  header.put(prefix + "rope.dimension_count",
             static_cast<uint32_t>(rotary_dims(config.ropes.front(), config.head_dim)));
  header.put(prefix + "vocab_size", static_cast<uint32_t>(config.vocab));
  if (!config.makes_text()) header.put(prefix + "pooling_type", config.embedding.pooling == Pooling::kMean ? 1u : 3u);
  for (size_t i = 0; i < std::min<size_t>(config.embedding.dense.size(), 2); ++i) {
    const std::string layer = fmt::format("{}dense_{}_feat_", prefix, i + 2);
    header.put(layer + "in", static_cast<uint32_t>(i == 0 ? config.hidden : config.embedding.dense[0]));
    header.put(layer + "out", static_cast<uint32_t>(config.embedding.dense[i]));
  }
  const RopeConfig& rope = config.ropes.front();
  if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kYarn) {
    const bool yarn = rope.scaling == RopeScaling::kYarn;
    header.put(prefix + "rope.scaling.type", yarn ? "yarn" : "linear");
    header.put(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
    if (yarn) {
      const std::string original = prefix + "rope.scaling.original_context_length";
      if (!done[original]) header.put(original, static_cast<uint32_t>(rope.original_context));
      if (rope.beta_fast != 32) header.put(prefix + "rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
      if (rope.beta_slow != 1) header.put(prefix + "rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
      const Json scaling = {{"llama_4_scaling_beta", rope.query_beta}, {"mscale_all_dim", 1.0}};
      if (const Json* keys = find(gguf, "rope_keys")) {
        for (const auto& item : keys->items()) {
          if (const Json* value = find(scaling, item.key))
            header.put(prefix + item.value.get<std::string>(), value->get<float>());
        }
      } else if (rope.attention_factor > 0) {
        header.put(prefix + "rope.scaling.attn_factor", static_cast<float>(rope.attention_factor));
      }
    }
  }
  if (rope.scaling == RopeScaling::kLongRope) {
    header.put(prefix + "rope.scaling.attn_factor", make_rope_table(rope, config.head_dim).magnitude);
  }
}

struct FrequencyDivisors {
  const char* name;  // of the tensor
  std::vector<float> values;
};

// Scalings that GGUF keeps as what each frequency is divided by.
std::vector<FrequencyDivisors> frequency_divisors(const ModelConfig& config) {
  const RopeConfig& rope = config.ropes.front();
  if (rope.scaling == RopeScaling::kLongRope) {
    return {{kLongFactors, {rope.long_factors.begin(), rope.long_factors.end()}},
            {kShortFactors, {rope.short_factors.begin(), rope.short_factors.end()}}};
  }
  if (rope.scaling != RopeScaling::kLlama3) return {};
  std::vector<float> out;
  const RopeTable table = make_rope_table(rope, config.head_dim);
  for (size_t i = 0; i < table.inv_freq.size(); ++i)
    out.push_back(
        static_cast<float>(std::pow(rope.theta, -2.0 * static_cast<double>(i) / config.head_dim) / table.inv_freq[i]));
  return {{"rope_freqs.weight", std::move(out)}};
}

void add_tensors(const std::vector<FrequencyDivisors>& divisors, GgufHeader& header) {
  for (const FrequencyDivisors& d : divisors) {
    header.add_tensor(d.name, DType::kF32, {static_cast<int64_t>(d.values.size())});
  }
}

// The first number that differs, as "path: a, b".
std::string first_difference(const Json& a, const Json& b, const std::string& path) {
  if (a.is_object() && b.is_object()) {
    for (const auto& item : a.items()) {
      const std::string inner = first_difference(item.value, b.value(item.key, Json()), path + "." + item.key);
      if (!inner.empty()) return inner;
    }
    return "";
  }
  if (a.is_array() && b.is_array() && a.size() == b.size()) {
    for (size_t i = 0; i < a.size(); ++i) {
      const std::string inner = first_difference(a[i], b[i], fmt::format("{}.{}", path, i));
      if (!inner.empty()) return inner;
    }
    return "";
  }
  const bool close =
      a.is_number() && b.is_number() && std::abs(a.get<double>() - b.get<double>()) <= 1e-6 * std::abs(a.get<double>());
  return a == b || close ? "" : fmt::format("{}: {}, read back as {}", path.substr(1), brief(a), brief(b));
}

// Reads the metadata back: what the file would mean must be what the model is.
void check_expressible(const ModelConfig& config, const Family& family, GgufHeader header,
                       std::vector<std::string>& notes) {
  const std::vector<FrequencyDivisors> divisors = frequency_divisors(config);
  if (!config.tied_output) header.add_tensor(gguf_names(family, "lm_head").at(0), DType::kF32, {1});
  add_tensors(divisors, header);
  std::string bytes = header.bytes();
  if (!config.tied_output) bytes.append(kGgufAlignment, '\0');
  for (const FrequencyDivisors& d : divisors) {
    bytes.append(reinterpret_cast<const char*>(d.values.data()), d.values.size() * sizeof(float));
    bytes.append((kGgufAlignment - d.values.size() * sizeof(float) % kGgufAlignment) % kGgufAlignment, '\0');
  }
  bytes.append(kGgufAlignment, '\0');
  const GgufFile file(std::as_bytes(std::span(bytes.data(), bytes.size())), "the GGUF to be");
  ModelConfig again = config_from_gguf(file, family);
  again.id = config.id;
  again.vocab = config.vocab;
  if (again.eos_ids != config.eos_ids) notes.push_back("GGUF readers will stop at a different set of tokens");
  again.eos_ids = config.eos_ids;
  Json ours, theirs;
  write_model_config(config, ours);
  write_model_config(again, theirs);
  const std::string difference = first_difference(ours, theirs, "");
  if (!difference.empty()) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "GGUF has no place for a number of this model",
          .where = config.id,
          .got = difference});
  }
}

// One row as the file wants it.
RowOutcome make_row(const OutTensor& tensor, int64_t row, std::byte* out, float* values) {
  const auto cols = static_cast<size_t>(tensor.source.cols());
  const Tensor* from = &tensor.source;
  for (const Tensor& next : tensor.more) {
    if (row < from->rows()) break;
    row -= from->rows();
    from = &next;
  }
  const std::byte* source = from->row(from == &tensor.source ? tensor.source_row(row) : row);
  if (tensor.dtype == from->dtype && tensor.add == 0) {
    std::copy_n(source, row_bytes(tensor.dtype, cols), out);
    return {};
  }
  decode_row(from->dtype, source, values, cols);
  for (size_t i = 0; i < cols; ++i) values[i] += tensor.add;
  return store_values(values, cols, tensor.dtype, out, values + cols);
}

// general.file_type, the mix's number in llama.cpp: of the type that most matrices have.
uint32_t file_type(const std::vector<OutTensor>& tensors) {
  std::map<DType, int64_t> weights;
  for (const OutTensor& tensor : tensors) weights[tensor.dtype] += tensor.rows() * tensor.cols();
  DType most = DType::kF32;
  for (const auto& [dtype, count] : weights) {
    if (count > weights[most]) most = dtype;
  }
  switch (most) {
    case DType::kF16: return 1;
    case DType::kQ4_0: return 2;
    case DType::kQ8_0: return 7;
    case DType::kQ5_0: return 8;
    case DType::kQ4_K: return 15;
    case DType::kQ6_K: return 18;
    case DType::kBF16: return 32;
    case DType::kMXFP4: return 38;
    default: return 0;
  }
}

}  // namespace

DType gguf_export_dtype(const std::string& quant, const std::string& slot, QuantClass kind, bool output, DType own,
                        int64_t cols, int layers) {
  if (kind == QuantClass::kKeep) return DType::kF32;
  if (quant.empty() || (kind == QuantClass::kExpert && own == DType::kMXFP4)) {
    return fits(own, cols) ? own : fits(DType::kQ8_0, cols) ? DType::kQ8_0 : DType::kF16;
  }
  const Mix* mix = nullptr;
  std::vector<std::string> known;
  for (const Mix& candidate : kMixes) {
    if (quant == candidate.name) mix = &candidate;
    known.push_back(candidate.name);
  }
  if (!mix) {
    fail({.code = ErrorCode::kUsage,
          .what = "an unknown mix of types for GGUF",
          .where = "--quant",
          .expected = fmt::format("one of {}", fmt::join(known, ", ")),
          .got = quant});
  }
  DType type = mix->matrix;
  if (mix->varied && output) {
    type = fits(DType::kQ6_K, cols) ? DType::kQ6_K : DType::kQ8_0;
  } else if (mix->matrix == DType::kQ4_K && (kind == QuantClass::kValue || kind == QuantClass::kDown) &&
             gets_more_bits(layer_of(slot), layers)) {
    type = DType::kQ6_K;
  }
  return fallback(type, cols);
}

ArtefactReport export_gguf(const fs::path& artefact, const fs::path& target, const GgufExportOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  if (file_exists(target) && (!options.replace || !is_gguf(target))) {
    fail({.code = ErrorCode::kUsage,
          .what = "something with this name is already there",
          .where = target.string(),
          .todo = options.replace ? "--force replaces GGUF files only"
                                  : "Choose another name, or replace it with --force"});
  }
  const RdrrReader reader = RdrrReader::open(artefact);
  const Family& family = family_of(reader);
  const ModelConfig config = read_model_config(reader.manifest(), (reader.folder() / "manifest.json").string());
  const std::vector<OutTensor> tensors = plan_tensors(reader, family, config, options.quant);

  ArtefactReport report;
  GgufHeader header;
  put_config(config, family, header);
  header.put("general.file_type", file_type(tensors));
  tokenizer_to_gguf(reader.folder(), config, header, report.notes);
  check_expressible(config, family, header, report.notes);
  const std::vector<FrequencyDivisors> divisors = frequency_divisors(config);
  add_tensors(divisors, header);
  std::map<std::pair<DType, DType>, int> changed;
  uint64_t all = 0, done = 0;
  for (const OutTensor& tensor : tensors) {
    header.add_tensor(tensor.name, tensor.dtype, tensor.shape);
    all += static_cast<uint64_t>(tensor.rows() * tensor.cols());
    if (options.quant.empty() && tensor.dtype != tensor.source.dtype) ++changed[{tensor.source.dtype, tensor.dtype}];
  }
  for (const auto& [types, count] : changed) {
    report.notes.push_back(fmt::format("{} matrices are {} here and {} there: GGUF's rows must be whole blocks", count,
                                       name_of(types.first), name_of(types.second)));
  }
  check_room(final_name(target), header.tensor_bytes());

  GgufWriter writer(target, std::move(header));
  for (const FrequencyDivisors& d : divisors) writer.write(std::as_bytes(std::span(d.values)));
  ThreadPool pool(options.threads);
  for (const OutTensor& tensor : tensors) {
    RowStream rows;
    rows.name = tensor.source.name;
    rows.cols = tensor.source.cols();
    rows.rows = tensor.rows() * tensor.cols() / rows.cols;
    rows.dtype = tensor.dtype;
    rows.make = [&](int64_t row, std::byte* out, float* scratch) { return make_row(tensor, row, out, scratch); };
    rows.write = [&](std::span<const std::byte> bytes) { writer.write(bytes); };
    rows.on_weights = on_weights_of(options, done, all, target);
    stream_rows(rows, pool, report.of(tensor.kind, tensor.dtype));
  }
  report.weights = all;
  report.bytes = writer.written();
  report.shards = 1;
  writer.commit();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace doppler
