#include "convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/files.h"
#include "convert/stream.h"
#include "format/gguf.h"
#include "import/gguf_model.h"
#include "import/quantisation_config.h"
#include "import/tensor_map.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

void check_distinct(const fs::path& source, const fs::path& target) {
  std::error_code ec;
  const fs::path from = fs::weakly_canonical(source, ec);
  if (ec) fail_io("it cannot be told where the source lies", source, ec.value());
  const fs::path to = fs::weakly_canonical(target, ec);
  if (ec) fail_io("it cannot be told where the destination lies", target, ec.value());
  const auto [end, rest] = std::mismatch(to.begin(), to.end(), from.begin(), from.end());
  if (end == to.end()) {
    fail({.code = ErrorCode::kUsage,
          .what = from == to ? "source and destination are the same folder" : "the source lies inside the destination",
          .where = source.string(),
          .expected = "two folders apart",
          .got = target.string(),
          .todo = "Choose another destination"});
  }
}

bool is_kept(const std::vector<std::string>& modules, const std::string& tensor) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const std::string& module) { return matches_module(module, tensor); });
}

// What quantising weights added that somebody had quantised before.
struct Requantised {
  int matrices = 0;
  double error_squares = 0, source_squares = 0;
  std::string note() const {
    return fmt::format(
        "{} matrices were quantised already: they are decoded exactly, and quantising them again adds a relative error "
        "of {:.5f} (root mean square, against the decoded values)",
        matrices, source_squares > 0 ? std::sqrt(error_squares / source_squares) : 0);
  }
};

// Every matrix that an adapter changes is there, in its shape.
std::vector<LoraAdapter> open_adapters(const ConvertOptions& options, const TensorMap& map,
                                       const CheckpointTensors& checkpoint, std::vector<std::string>& notes) {
  std::vector<LoraAdapter> adapters;
  std::set<std::string> used;
  for (const MappedTensor& tensor : map.tensors) {
    for (const RawTensor& raw : tensor.plain) used.insert(raw.name);
  }
  for (const std::string& folder : options.adapters) {
    const LoraAdapter& adapter = adapters.emplace_back(folder);
    for (const auto& [name, delta] : adapter.deltas()) {
      const RawTensor* base = used.count(name) ? checkpoint.find(name) : nullptr;
      const std::vector<int64_t> shape{delta.b.rows(), delta.a.cols()};
      if (base && base->shape == shape) continue;
      fail({.code = ErrorCode::kFormat,
            .what = "the adapter does not fit the model",
            .where = folder + ": " + name,
            .expected = fmt::format("a matrix [{}, {}]", shape[0], shape[1]),
            .got = base ? "another shape" : "no such matrix",
            .todo = "Name the adapter's own base model"});
    }
    notes.push_back(fmt::format("{} matrices have the adapter {} merged in", adapter.deltas().size(), folder));
  }
  return adapters;
}

DType source_dtype(const MappedTensor& tensor) {
  Tensor plain;
  return !tensor.plain.empty() && to_tensor(tensor.plain[0], plain) ? plain.dtype : DType::kMXFP4;
}

uint64_t count_weights(const std::vector<int64_t>& shape) {
  uint64_t n = 1;
  for (const int64_t dim : shape) n *= static_cast<uint64_t>(dim);
  return n;
}

uint64_t count_bytes(const std::vector<int64_t>& shape, DType dtype) {
  const auto cols = static_cast<uint64_t>(shape.back());
  const uint64_t bytes = count_weights(shape) / cols * row_bytes(dtype, cols);
  return (bytes + kRdrrAlignment - 1) / kRdrrAlignment * kRdrrAlignment;
}

// What the manifest is told where every tensor keeps its type.
Recipe recipe_of(const GgufModel& model) {
  Recipe recipe{"gguf", "", DType::kF32, DType::kF32, DType::kF32, DType::kF32};
  std::map<DType, uint64_t> weights;
  for (const GgufSlot& slot : model.slots) {
    const DType dtype = gguf_target_dtype(slot);
    if (slot.slot == "embed") recipe.embedding = dtype;
    if (slot.rule.role == "matmul" || slot.rule.role == "expert")
      weights[dtype] += static_cast<uint64_t>(rows_of(slot).count * rows_of(slot).cols);
  }
  for (const auto& [dtype, count] : weights) {
    if (count > weights[recipe.matrix]) recipe.matrix = dtype;
  }
  recipe.published = recipe.matrix == DType::kQ4_K ? "Q4_K_M" : name_of(recipe.matrix);
  return recipe;
}

void write_tokenizer(const std::optional<TokenizerFiles>& files, const fs::path& folder, Json& manifest) {
  manifest["tokenizer"] = nullptr;
  if (!files) return;
  write_file_whole(folder / "tokenizer.json", files->tokenizer_json);
  write_file_whole(folder / "tokenizer_config.json", files->tokenizer_config_json);
  manifest["tokenizer"] = {
      {"type", "bundled"}, {"file", "tokenizer.json"}, {"vocabSize", files->tokens}, {"addBosToken", files->add_bos}};
}

// A row of a GGUF as `to`; `scratch` has room for two rows of floats.
RowOutcome convert_row(const GgufSlot& slot, int64_t row, DType to, std::byte* out, float* scratch) {
  const auto cols = static_cast<size_t>(rows_of(slot).cols);
  switch (read_row(slot, row, to, out, scratch)) {
    case RowState::kStored: return {};
    case RowState::kNotFinite: return {.fault = RowOutcome::kNotFinite};
    case RowState::kDecoded: break;
  }
  return store_values(scratch, cols, to, out, scratch + cols);
}

void commit(RdrrWriter& writer, Json manifest, const ConvertOptions& options, ArtefactReport& report) {
  report.bytes = writer.written();
  report.shards = static_cast<int>((report.bytes + options.shard_size - 1) / options.shard_size);
  writer.commit(std::move(manifest), options.replace);
}

// `target` as final_name() gives it.
ArtefactReport convert_gguf(const fs::path& source, const fs::path& target, const ConvertOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  if (!options.adapters.empty()) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "an adapter is merged into a checkpoint, not into weights that may be quantised",
          .where = source.string(),
          .expected = "a Hugging Face folder",
          .todo = "Convert the checkpoint that the file was made of"});
  }
  check_destination(target, options.replace);
  const Family own = options.family_file.empty() ? Family{} : load_family(options.family_file);
  GgufModel model = read_gguf_model(source, options.family_file.empty() ? nullptr : &own, options.ignored_keys);
  ModelConfig& config = model.config;
  config.id = options.id.empty() ? target.filename().string() : options.id;
  ArtefactReport report;
  report.notes = model.notes;
  const std::optional<TokenizerFiles> tokenizer = tokenizer_from_gguf(model.file, report.notes);

  std::vector<DType> dtypes;
  std::map<DType, int> decoded;
  uint64_t all = 0, bytes = 0, done = 0;
  for (const GgufSlot& slot : model.slots) {
    const bool packed = slot.rule.quant == QuantClass::kExpert && slot.dtype() == DType::kMXFP4;
    const DType dtype = options.recipe && !packed
                            ? dtype_for(*options.recipe, slot.rule.quant, layer_of(slot.slot), config.layer_count())
                            : gguf_target_dtype(slot);
    if (!options.recipe && dtype != slot.dtype() && slot.rule.quant != QuantClass::kKeep) ++decoded[slot.dtype()];
    dtypes.push_back(dtype);
    const GgufRows rows = rows_of(slot);
    all += static_cast<uint64_t>(rows.count * rows.cols);
    bytes += static_cast<uint64_t>(rows.count) * row_bytes(dtype, static_cast<size_t>(rows.cols)) + kRdrrAlignment;
  }
  for (const auto& [dtype, count] : decoded) {
    report.notes.push_back(fmt::format("{} matrices are {}, which not every backend has kernels for: they become Q8_0",
                                       count, name_of(dtype)));
  }
  if (options.recipe) {
    report.notes.push_back(
        "weights that were already quantised are quantised again: errors add up, and the table's are "
        "those of the second time only");
  }
  check_room(target, bytes);

  RdrrWriter writer(target, options.shard_size);
  ThreadPool pool(options.threads);
  for (size_t i = 0; i < model.slots.size(); ++i) {
    const GgufSlot& slot = model.slots[i];
    writer.begin({slot.rule.stored, slot.slot, dtypes[i], slot.shape, slot.rule.role, {}, 0});
    RowStream stream;
    stream.name = source.string() + ": " + slot.parts[0]->name;
    stream.rows = rows_of(slot).count;
    stream.cols = rows_of(slot).cols;
    stream.dtype = dtypes[i];
    stream.make = [&](int64_t row, std::byte* out, float* scratch) {
      return convert_row(slot, row, dtypes[i], out, scratch);
    };
    stream.write = [&](std::span<const std::byte> piece) { writer.write(piece); };
    stream.on_weights = on_weights_of(options, done, all, target);
    stream_rows(stream, pool, report.of(slot.rule.quant, dtypes[i]));
    for (const Tensor* part : slot.parts) model.file.release(part->bytes);
    writer.end();
  }
  Json manifest = make_manifest(config, *model.family, options.recipe ? *options.recipe : recipe_of(model),
                                source.filename().string(), writer.tensors());
  write_tokenizer(tokenizer, writer.path(), manifest);
  report.weights = all;
  commit(writer, std::move(manifest), options, report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace

ArtefactReport convert(const fs::path& source, const fs::path& given_target, const ConvertOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const fs::path target = final_name(given_target);
  if (is_gguf(source)) return convert_gguf(source, target, options);
  const fs::path config_path = source / "config.json";
  check_distinct(source, target);
  check_destination(target, options.replace);
  if (!file_exists(config_path)) {
    const bool is_artefact = file_exists(source / "manifest.json");
    fail({.code = ErrorCode::kFile,
          .what = "this is not a checkpoint",
          .where = source.string(),
          .expected = "a folder with config.json",
          .got = is_artefact ? "an artefact" : "",
          .todo = is_artefact ? "It runs as it is; to export it, name a target that ends in .gguf" : "Check the path"});
  }
  const Json hf_config = parse_json(read_text_file(config_path), config_path.string());
  const Family own = options.family_file.empty() ? Family{} : load_family(options.family_file);
  const Family& family = options.family_file.empty() ? family_for(hf_config, config_path.string()) : own;
  ModelConfig config = config_from_hf(family, hf_config, config_path.string(), options.ignored_keys);
  config.id = options.id.empty() ? target.filename().string() : options.id;
  add_generation_ids(source, config);
  add_embedding(source, config);
  const int32_t tokens = require_tokenizer(source, options.no_tokenizer);
  const CheckpointTensors checkpoint(source, hf_config);
  const TensorMap map = map_tensors(family, config, checkpoint, source.string());

  ArtefactReport report;
  report.notes = map.notes;
  const std::vector<LoraAdapter> adapters = open_adapters(options, map, checkpoint, report.notes);
  const Recipe& recipe = options.recipe ? *options.recipe : recipe_named("q4_k_m");
  const std::vector<std::string> kept = options.recipe ? std::vector<std::string>() : unquantised_modules(hf_config);
  std::vector<DType> dtypes;
  uint64_t all = 0, bytes = 0;
  int kept_count = 0;
  for (const MappedTensor& tensor : map.tensors) {
    const bool plain = !tensor.plain.empty();
    DType dtype =
        plain ? dtype_for(recipe, tensor.rule.quant, layer_of(tensor.slot), config.layer_count()) : DType::kMXFP4;
    if (tensor.rule.quant != QuantClass::kKeep && plain && !tensor.is_decoded() && is_kept(kept, tensor.rule.name)) {
      dtype = source_dtype(tensor);
      ++kept_count;
    }
    dtypes.push_back(dtype);
    all += count_weights(tensor.shape);
    bytes += count_bytes(tensor.shape, dtype);
  }
  if (kept_count > 0) {
    report.notes.push_back(fmt::format(
        "{} matrices keep their precision, as the checkpoint's quantization_config asks; --quant overrides it",
        kept_count));
  }
  check_room(target, bytes);

  RdrrWriter writer(target, options.shard_size);
  ThreadPool pool(options.threads);
  uint64_t done = 0;
  Requantised requantised;
  const auto on_weights = on_weights_of(options, done, all, target);
  for (size_t i = 0; i < map.tensors.size(); ++i) {
    const MappedTensor& tensor = map.tensors[i];
    ClassReport& line = report.of(tensor.rule.quant, dtypes[i]);
    const ClassReport before = line;
    if (!tensor.plain.empty())
      stream_plain(tensor, dtypes[i], checkpoint, adapters, writer, pool, line, on_weights);
    else
      stream_mxfp4(tensor, checkpoint, writer, pool, line, on_weights);
    if (!tensor.is_decoded()) continue;
    ++requantised.matrices;
    requantised.error_squares += line.error_squares - before.error_squares;
    requantised.source_squares += line.source_squares - before.source_squares;
  }
  if (requantised.matrices > 0) report.notes.push_back(requantised.note());
  Json manifest =
      make_manifest(config, family, recipe,
                    source.filename().empty() ? source.parent_path().filename().string() : source.filename().string(),
                    writer.tensors());
  copy_sidecars(source, writer.path(), tokens, config, manifest, report.notes);
  report.weights = all;
  commit(writer, std::move(manifest), options, report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace doppler
