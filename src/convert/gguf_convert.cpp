#include "convert/gguf_convert.h"

#include <fmt/format.h>

#include <chrono>

#include "base/error.h"
#include "base/files.h"
#include "convert/gguf_model.h"
#include "convert/stream_rows.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

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

}  // namespace

ArtefactReport convert_gguf(const fs::path& source, const fs::path& target, const ConvertOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
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
    report.notes.push_back(
        fmt::format("{} matrices are {}, which there are no kernels for: they become Q8_0", count, name_of(dtype)));
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
    writer.begin({slot.rule.name, slot.slot, dtypes[i], slot.shape, slot.rule.role, {}, 0});
    RowStream stream;
    stream.name = source.string() + ": " + slot.parts[0]->name;
    stream.rows = rows_of(slot).count;
    stream.cols = rows_of(slot).cols;
    stream.dtype = dtypes[i];
    stream.make = [&](int64_t row, std::byte* out, float* scratch) {
      return fetch_row(slot, row, dtypes[i], out, scratch);
    };
    stream.write = [&](std::span<const std::byte> piece) { writer.write(piece); };
    stream.on_weights = [&](uint64_t weights) {
      done += weights;
      if (options.progress) options.progress(done, all);
      if (options.cancelled && options.cancelled()) {
        fail({ErrorCode::kFile, "the conversion was interrupted; nothing is left of it", target.string(), "", "", ""});
      }
    };
    stream_rows(stream, pool, report.of(slot.rule.quant, dtypes[i]));
    for (const Tensor* part : slot.parts) model.file.release(part->bytes);
    writer.end();
  }
  Json manifest = make_manifest(config, *model.family, options.recipe ? *options.recipe : recipe_of(model),
                                source.filename().string());
  write_tokenizer(tokenizer, writer.path(), manifest);
  report.weights = all;
  report.bytes = writer.written();
  report.shards = static_cast<int>((report.bytes + options.shard_size - 1) / options.shard_size);
  writer.commit(std::move(manifest), options.replace);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace doppler
