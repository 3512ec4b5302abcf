#include "convert/convert.h"

#include <fmt/format.h>

#include <chrono>

#include "base/error.h"
#include "base/files.h"
#include "convert/gguf_convert.h"
#include "convert/sidecar.h"
#include "convert/stream.h"
#include "convert/tensor_map.h"
#include "format/gguf.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

void check_apart(const fs::path& source, const fs::path& target) {
  std::error_code ec;
  const fs::path from = fs::weakly_canonical(source, ec), to = fs::weakly_canonical(target, ec);
  const auto [end, rest] = std::mismatch(to.begin(), to.end(), from.begin(), from.end());
  if (end == to.end()) {
    fail({ErrorCode::kUsage,
          from == to ? "source and destination are the same folder" : "the source lies inside the destination",
          source.string(), "two folders apart", target.string(), "Choose another destination"});
  }
}

// Patterns of modules that the checkpoint's own quantisation left alone ("model.layers.*.self_attn").
std::vector<std::string> kept_modules(const Json& hf_config, const std::string& where) {
  std::vector<std::string> out;
  const Json* quantization = find(hf_config, "quantization_config");
  if (!quantization || !find(*quantization, "modules_to_not_convert")) return out;
  for (const Json& name : require_array(*quantization, "modules_to_not_convert", where + ": quantization_config")) {
    if (name.is_string()) out.push_back(name.get<std::string>());
  }
  return out;
}

bool is_kept(const std::vector<std::string>& modules, const std::string& tensor) {
  for (const std::string& module : modules) {
    if (glob_match(module, tensor) || glob_match(module + ".*", tensor)) return true;
  }
  return false;
}

DType source_dtype(const MappedTensor& tensor) {
  Tensor plain;
  return tensor.plain && to_tensor(*tensor.plain, plain) ? plain.dtype : DType::kMXFP4;
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

}  // namespace

ArtefactReport convert(const fs::path& source, const fs::path& given_target, const ConvertOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const fs::path target = final_name(given_target);
  if (is_gguf(source)) return convert_gguf(source, target, options);
  const fs::path config_path = source / "config.json";
  check_apart(source, target);
  check_destination(target, options.replace);
  std::error_code ec;
  if (!fs::exists(config_path, ec)) {
    fail({ErrorCode::kFile, "this is not a checkpoint", source.string(), "a folder with config.json", "",
          "Check the path"});
  }
  const Json hf_config = parse_json(read_text_file(config_path), config_path.string());
  const Family own = options.family_file.empty() ? Family{} : load_family(options.family_file);
  const Family& family = options.family_file.empty() ? family_for(hf_config, config_path.string()) : own;
  ModelConfig config = config_from_hf(family, hf_config, config_path.string(), options.ignored_keys);
  config.id = options.id.empty() ? target.filename().string() : options.id;
  add_generation_ids(source, config);
  const int32_t tokens = require_tokenizer(source, options.no_tokenizer);
  const SafetensorsFolder checkpoint(source);
  const TensorMap map = map_tensors(family, config, checkpoint, source.string());

  ArtefactReport report;
  report.notes = map.notes;
  const Recipe& recipe = options.recipe ? *options.recipe : recipe_named("q4_k_m");
  const std::vector<std::string> kept =
      options.recipe ? std::vector<std::string>() : kept_modules(hf_config, config_path.string());
  std::vector<DType> dtypes;
  uint64_t all = 0, bytes = 0;
  int kept_count = 0;
  for (const MappedTensor& tensor : map.tensors) {
    DType dtype = tensor.plain ? dtype_for(recipe, tensor.rule.quant, layer_of(tensor.slot), config.layer_count())
                               : DType::kMXFP4;
    if (tensor.rule.quant != QuantClass::kKeep && tensor.plain && is_kept(kept, tensor.rule.name)) {
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
  const auto on_weights = [&](uint64_t weights) {
    done += weights;
    if (options.progress) options.progress(done, all);
    if (options.cancelled && options.cancelled()) {
      fail({ErrorCode::kFile, "the conversion was interrupted; nothing is left of it", target.string(), "", "", ""});
    }
  };
  for (size_t i = 0; i < map.tensors.size(); ++i) {
    const MappedTensor& tensor = map.tensors[i];
    ClassReport& line = report.of(tensor.rule.quant, dtypes[i]);
    if (tensor.plain)
      stream_plain(tensor, dtypes[i], checkpoint, writer, pool, line, on_weights);
    else
      stream_mxfp4(tensor, checkpoint, writer, pool, line, on_weights);
  }
  Json manifest =
      make_manifest(config, family, recipe,
                    source.filename().empty() ? source.parent_path().filename().string() : source.filename().string());
  copy_sidecars(source, writer.path(), tokens, config, manifest, report.notes);
  report.weights = all;
  report.bytes = writer.written();
  report.shards = static_cast<int>((report.bytes + options.shard_size - 1) / options.shard_size);
  writer.commit(std::move(manifest), options.replace);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace doppler
