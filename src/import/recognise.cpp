#include "import/recognise.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "import/family.h"
#include "import/quantisation_config.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

std::string head_of(const fs::path& path, size_t bytes) {
  std::error_code ec;
  if (!fs::is_regular_file(path, ec)) return "";  // opening a pipe would wait for a writer
  std::ifstream in(path, std::ios::binary);
  std::string head(bytes, '\0');
  in.read(head.data(), static_cast<std::streamsize>(bytes));
  head.resize(static_cast<size_t>(in.gcount()));
  return head;
}

// What git leaves in a folder in place of a large file, until git-lfs fetches it: three lines of text.
bool is_lfs_pointer(const fs::path& path) {
  return head_of(path, 64).starts_with("version https://git-lfs.github.com/spec/");
}

// PyTorch writes a zip archive, and wrote a bare pickle (protocol 2) before.
bool is_pickle(const fs::path& path) {
  static const std::set<std::string> kEndings = {".bin", ".pt", ".pth", ".ckpt", ".pkl"};
  if (!kEndings.contains(path.extension().string())) return false;
  const std::string head = head_of(path, 4);
  return head.starts_with("PK\x03\x04") || head.starts_with("\x80\x02");
}

// Models for other programs, by the ending of a file's name.
std::string_view foreign_format(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kFormats[] = {{".onnx", "ONNX"},
                                                                               {"openvino_model.xml", "OpenVINO"},
                                                                               {"mlc-chat-config.json", "MLC"},
                                                                               {".engine", "TensorRT"},
                                                                               {".mlpackage", "Core ML"},
                                                                               {".mlmodelc", "Core ML"},
                                                                               {".litertlm", "LiteRT"},
                                                                               {".tflite", "LiteRT"},
                                                                               {".msgpack", "Flax"},
                                                                               {"tf_model.h5", "TensorFlow"}};
  for (const auto& [ending, format] : kFormats) {
    if (name.ends_with(ending)) return format;
  }
  return {};
}

bool is_first_part(const std::string& name) {
  return name.find("-of-") == std::string::npos || name.find("-00001-of-") != std::string::npos;
}

[[noreturn]] void refuse(const fs::path& path, const std::string& what, const std::string& got, const std::string& todo,
                         ErrorCode code = ErrorCode::kFormat) {
  fail({.code = code, .what = what, .where = path.string(), .got = got, .todo = todo});
}

void refuse_foreign(const fs::path& path, const std::string& name) {
  const std::string_view format = foreign_format(name);
  if (format.empty()) return;
  refuse(path, fmt::format("this is a model for {}, which Doppler does not read", format), name,
         "Look for the same model in safetensors or GGUF", ErrorCode::kUnsupported);
}

constexpr const char* kLfsAdvice =
    "Fetch the file itself: git lfs pull in that folder, or name the model as hf:org/repo";

struct Content {
  std::vector<std::string> names, ggufs, safetensors, pickles, folders;
  bool has(const std::string& name) const { return std::find(names.begin(), names.end(), name) != names.end(); }
};

Content content_of(const fs::path& folder) {
  Content content;
  std::error_code ec;
  for (fs::directory_iterator item(folder, ec), end; !ec && item != end; item.increment(ec)) {
    const std::string name = item->path().filename().string();
    std::error_code broken;
    content.names.push_back(name);
    if (item->is_directory(broken)) {
      content.folders.push_back(name);
      continue;
    }
    if (name.ends_with(".gguf")) content.ggufs.push_back(name);
    if (name.ends_with(".safetensors")) content.safetensors.push_back(name);
    if (is_pickle(item->path())) content.pickles.push_back(name);
  }
  if (ec && ec != std::errc::no_such_file_or_directory) fail_io("the folder cannot be read", folder, ec.value());
  for (auto* list : {&content.names, &content.ggufs, &content.safetensors, &content.pickles, &content.folders})
    std::sort(list->begin(), list->end());
  return content;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  const std::vector<std::string> shown(names.begin(),
                                       names.begin() + static_cast<long>(std::min(names.size(), kShown)));
  const std::string rest = names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), rest);
}

// The snapshot that refs/main names, or the only one.
fs::path snapshot_in(const fs::path& root) {
  const fs::path main = root / "refs/main";
  if (is_file(main)) {
    std::string commit = read_text_file(main);
    commit.erase(commit.find_last_not_of(" \r\n") + 1);
    const fs::path snapshot = root / "snapshots" / commit;
    if (commit.find('/') == std::string::npos && !commit.empty() && is_folder(snapshot)) return snapshot;
  }
  const Content snapshots = content_of(root / "snapshots");
  if (snapshots.folders.size() == 1) return root / "snapshots" / snapshots.folders.front();
  refuse(root, "this is a model's root in Hugging Face's cache, and it is not clear which snapshot is meant",
         snapshots.folders.empty() ? "no snapshot" : listed(snapshots.folders),
         snapshots.folders.empty() ? "Fetch the model with doppler pull" : "Name one of the folders in snapshots/");
}

// A checkpoint that is quantised for MLX says "quantization": {"group_size": …, "bits": …} in config.json; others say
// "quantization_config".
void check_config_file(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  if (is_lfs_pointer(path)) refuse(path, "this is a git-LFS pointer, not the file", "", kLfsAdvice);
  const Json config = parse_json(read_text_file(path), path.string());
  const Json* quantization = config.is_object() ? find(config, "quantization") : nullptr;
  if (!quantization || !quantization->is_object() || !find(*quantization, "group_size")) return;
  refuse(folder, "this checkpoint is quantised for MLX, whose packing Doppler does not read",
         fmt::format("\"quantization\": {} in config.json", brief(*quantization)),
         "Use the model it was made from, in safetensors, or a GGUF of it", ErrorCode::kUnsupported);
}

// Methods that one family or another reads in a way of its own.
Json methods_of_families() {
  Json methods = Json::array();
  for (const Family& family : families()) {
    const Json* own = find(family.json, "quantization_methods");
    for (const Json& method : own ? *own : Json::array()) methods.push_back(method);
  }
  return methods;
}

fs::path recognise_folder(const fs::path& folder) {
  const Content content = content_of(folder);
  if (content.has("manifest.json")) return folder;
  if (content.names.empty()) refuse(folder, "the folder is empty", "", "Name a folder with a model, or hf:org/repo");
  if (content.has("snapshots") && (content.has("blobs") || content.has("refs"))) {
    return recognise(snapshot_in(folder));
  }
  if (std::any_of(content.folders.begin(), content.folders.end(),
                  [](const std::string& name) { return name.starts_with("models--"); })) {
    std::vector<std::string> models = content.folders;
    std::erase_if(models, [](const std::string& name) { return !name.starts_with("models--"); });
    refuse(folder, "this is Hugging Face's cache, not a model", listed(models), "Name one of its models");
  }
  const bool config = content.has("config.json");
  for (const auto* list : {&content.safetensors, &content.ggufs}) {
    for (const std::string& name : *list) {
      if (is_lfs_pointer(folder / name))
        refuse(folder / name, "this is a git-LFS pointer, not the weights", "", kLfsAdvice);
    }
  }
  if (content.has("tokenizer.json") && is_lfs_pointer(folder / "tokenizer.json"))
    refuse(folder / "tokenizer.json", "this is a git-LFS pointer, not the tokenizer", "", kLfsAdvice);
  if (config && !content.safetensors.empty()) {
    check_config_file(folder);
    return folder;
  }
  if (content.has("adapter_config.json")) {
    const fs::path path = folder / "adapter_config.json";
    const std::string base =
        string_or(parse_json(read_text_file(path), path.string()), "base_model_name_or_path", "", path.string());
    refuse(folder, "this is an adapter (LoRA), not a whole model", base.empty() ? "" : "an adapter for " + base,
           "Run it beside its base model: doppler run BASE --lora " + folder.string() +
               ", or merge it: doppler convert BASE OUT --merge-lora " + folder.string(),
           ErrorCode::kUnsupported);
  }
  if (!content.ggufs.empty()) {
    std::vector<std::string> first = content.ggufs;
    std::erase_if(first, [](const std::string& name) { return !is_first_part(name); });
    if (first.size() == 1) return folder / first.front();
    refuse(folder, "the folder holds several GGUF files", listed(content.ggufs), "Name one of them", ErrorCode::kUsage);
  }
  if (!content.pickles.empty()) {
    refuse(folder, "the weights are pickles, which can run code when they are opened, and Doppler does not",
           listed(content.pickles), "Look for the same model in safetensors or GGUF, or convert it with its own tools",
           ErrorCode::kUnsupported);
  }
  if (!config && !content.safetensors.empty()) {
    refuse(folder, "there are weights, but no config.json that says what they are", listed(content.safetensors),
           "Fetch the rest of the checkpoint, or name it as hf:org/repo");
  }
  if (content.safetensors.empty()) {
    for (const std::string& name : content.names) refuse_foreign(folder, name);
  }
  for (const char* name : {"tokenizer.model", "tekken.json", "tokenizer.json"}) {
    if (content.has(name) && content.safetensors.empty()) {
      refuse(folder, "this is a tokenizer without a model", name,
             "Fetch the weights that belong to it, or name the model as hf:org/repo");
    }
  }
  return folder;
}

}  // namespace

void check_before_weights(const fs::path& folder) {
  check_config_file(folder);
  const fs::path path = folder / "config.json";
  const Json config = parse_json(read_text_file(path), path.string());
  const Json* quantisation = quantisation_of(config);
  const Json also = methods_of_families();
  if (quantisation) check_quantisation(*quantisation, &also, path.string() + ": quantization_config");
}

fs::path recognise(const fs::path& path) {
  if (is_folder(path)) return recognise_folder(path);
  if (!is_file(path)) return path;
  if (is_lfs_pointer(path)) refuse(path, "this is a git-LFS pointer, not the file", "", kLfsAdvice);
  if (is_pickle(path)) {
    refuse(path, "this is a pickle, which can run code when it is opened, and Doppler does not", "",
           "Look for the same model in safetensors or GGUF, or convert it with its own tools", ErrorCode::kUnsupported);
  }
  const std::string name = path.filename().string();
  if (name == "tokenizer.model" || name == "tekken.json" || name == "tokenizer.json")
    refuse(path, "this is a tokenizer, not a model", "", "Name the folder it lies in", ErrorCode::kUsage);
  refuse_foreign(path, name);
  if (name.ends_with(".safetensors"))
    refuse(path, "a .safetensors file alone does not say what its weights are", "",
           "Name the folder that holds config.json beside it", ErrorCode::kUsage);
  return path;
}

}  // namespace doppler
