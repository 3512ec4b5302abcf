#include "hub/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/error.h"
#include "convert/recipe.h"
#include "format/rdrr.h"
#include "hub/http.h"

namespace doppler {
namespace {

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::toupper(c); });
  return out;
}

bool is_word(std::string_view text, std::string_view punctuation) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return std::isalnum(c) || punctuation.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

[[noreturn]] void refuse(const std::string& text, const char* what) {
  fail({.code = ErrorCode::kUsage,
        .what = what,
        .where = text,
        .expected = "hf:org/repo[@revision][:file or quantisation]",
        .todo = "For example hf:org/repo, hf:org/repo:Q4_K_M or hf:org/repo@v1.0:model.gguf"});
}

// A repository's name is one or two words of letters, digits, '-', '_' and '.', without "--" and ".." (those separate
// names in the cache).
void check(const ModelName& name) {
  const size_t slash = name.repo.find('/');
  const std::string_view repo = name.repo;
  const bool words = slash == std::string::npos
                         ? is_word(repo, "-_.")
                         : is_word(repo.substr(0, slash), "-_.") && is_word(repo.substr(slash + 1), "-_.");
  if (!words || name.repo.find("--") != std::string::npos || name.repo.find("..") != std::string::npos) {
    refuse(name.text, "this is no name of a model on the hub");
  }
  if (!is_word(name.revision, "-_./") || !is_safe_path(name.revision)) refuse(name.text, "this is no revision");
  if (!name.wanted.empty() && !is_safe_path(name.wanted)) refuse(name.text, "this is no file of a repository");
}

// The part after the host of an address on the hub: org/repo[/tree|blob|resolve/REVISION[/FILE]].
std::optional<ModelName> from_address(const std::string& text, std::string path) {
  path = path.substr(0, path.find_first_of("?#"));
  std::vector<std::string> parts;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (end > at) parts.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  if (parts.size() < 2 || parts[0] == "datasets" || parts[0] == "spaces" || parts[0] == "api") return std::nullopt;
  ModelName name{.kind = ModelName::Kind::kHub, .text = text, .repo = parts[0] + "/" + parts[1]};
  if (parts.size() == 2) return name;
  if (parts.size() < 4 || (parts[2] != "tree" && parts[2] != "blob" && parts[2] != "resolve")) return std::nullopt;
  name.revision = parts[3];
  for (size_t i = 4; i < parts.size(); ++i) name.wanted += (i > 4 ? "/" : "") + parts[i];
  return name;
}

bool is_gguf_name(const std::string& name) { return upper(name).ends_with(".GGUF"); }

// Files that are no language model by themselves: a vision projector, a table of importances.
bool is_beside(const std::string& name) {
  const std::string file = upper(name.substr(name.rfind('/') + 1));
  return file.find("MMPROJ") != std::string::npos || file.find("IMATRIX") != std::string::npos;
}

// True if the name carries the quantisation as a word of its own: "m-Q4_K_M.gguf", "Q4_K_M/m.gguf", not "m-IQ4_K_M".
bool has_word(const std::string& name, const std::string& word) {
  const std::string text = upper(name), sought = upper(word);
  for (size_t at = 0; (at = text.find(sought, at)) != std::string::npos; ++at) {
    const size_t end = at + sought.size();
    const auto joins = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    if ((at == 0 || !joins(text[at - 1])) && (end == text.size() || !joins(text[end]))) return true;
  }
  return false;
}

// "m-00002-of-00003.gguf" → ("m-", 2, 3); nothing for a file that is whole.
struct Part {
  std::string stem;
  int index = 0, count = 0;
};
std::optional<Part> part_of(const std::string& name) {
  constexpr std::string_view kShape = "-00000-of-00000.";
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot + 1 < kShape.size()) return std::nullopt;
  const size_t at = dot + 1 - kShape.size();
  const auto digits = [&](size_t from) {
    return std::all_of(name.begin() + static_cast<long>(from), name.begin() + static_cast<long>(from + 5),
                       [](unsigned char c) { return std::isdigit(c); });
  };
  if (name[at] != '-' || name.compare(at + 6, 4, "-of-") != 0 || !digits(at + 1) || !digits(at + 10))
    return std::nullopt;
  return Part{name.substr(0, at + 1), std::stoi(name.substr(at + 1, 5)), std::stoi(name.substr(at + 10, 5))};
}

std::vector<HubFile> with_other_parts(const HubFile& file, const std::vector<HubFile>& files, const ModelName& name) {
  const std::optional<Part> part = part_of(file.name);
  if (!part) return {file};
  std::vector<HubFile> out;
  for (const HubFile& other : files) {
    const std::optional<Part> own = part_of(other.name);
    if (own && own->stem == part->stem && own->count == part->count && is_gguf_name(other.name)) out.push_back(other);
  }
  std::sort(out.begin(), out.end(), [](const HubFile& a, const HubFile& b) { return a.name < b.name; });
  if (static_cast<int>(out.size()) != part->count) {
    fail({.code = ErrorCode::kFile,
          .what = "parts of this GGUF are missing in the repository",
          .where = name.id(),
          .expected = fmt::format("{} parts", part->count),
          .got = std::to_string(out.size())});
  }
  return out;
}

const HubFile* find_file(const std::vector<HubFile>& files, const std::string& name) {
  const auto it = std::find_if(files.begin(), files.end(), [&](const HubFile& file) { return file.name == name; });
  return it == files.end() ? nullptr : &*it;
}

std::string list_names(const std::vector<HubFile>& files) {
  constexpr size_t kShown = 12;
  std::vector<std::string> names;
  for (const HubFile& file : files) {
    if (names.size() < kShown) names.push_back(file.name);
  }
  if (files.size() > kShown) names.push_back(fmt::format("and {} more", files.size() - kShown));
  return files.empty() ? "no file" : fmt::format("{}", fmt::join(names, ", "));
}

bool is_recipe(const std::string& word) {
  return std::any_of(recipes().begin(), recipes().end(),
                     [&](const Recipe& recipe) { return upper(recipe.name) == upper(word); });
}

// model.safetensors, or the shards beside an index; what else is called *.safetensors is for other programs.
std::vector<HubFile> checkpoint_files(const std::vector<HubFile>& files) {
  std::vector<HubFile> weights, out;
  const bool sharded = find_file(files, "model.safetensors.index.json");
  for (const HubFile& file : files) {
    if (file.name.find('/') != std::string::npos || !file.name.ends_with(".safetensors")) continue;
    if (sharded ? file.name.starts_with("model-") && part_of(file.name).has_value() : true) weights.push_back(file);
  }
  if (const HubFile* one = sharded ? nullptr : find_file(files, "model.safetensors")) weights = {*one};
  if (weights.empty() || !find_file(files, "config.json")) return {};
  for (const char* name : {"config.json", "model.safetensors.index.json", "tokenizer.model", "tekken.json"}) {
    if (const HubFile* file = find_file(files, name)) out.push_back(*file);
  }
  for (const std::string_view name : kRdrrSidecars) {
    if (const HubFile* file = find_file(files, std::string(name))) out.push_back(*file);
  }
  // sentence-transformers' modules, in folders with a number: 1_Pooling, 2_Dense.
  if (const HubFile* modules = find_file(files, "modules.json")) {
    out.push_back(*modules);
    for (const HubFile& file : files) {
      const size_t number = file.name.find_first_not_of("0123456789"), slash = file.name.find('/');
      if (number == 0 || number == std::string::npos || file.name[number] != '_' || slash == std::string::npos)
        continue;
      const std::string name = file.name.substr(slash + 1);
      if (name == "config.json" || name == "model.safetensors") out.push_back(file);
    }
  }
  out.insert(out.end(), weights.begin(), weights.end());  // last, so that what is wrong with the rest shows early
  return out;
}

}  // namespace

std::string ModelName::id() const {
  if (kind != Kind::kHub) return text;
  return "hf:" + repo + (revision == "main" ? "" : "@" + revision) + (wanted.empty() ? "" : ":" + wanted);
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > 1000) return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    at = end + 1;
  }
  return std::none_of(path.begin(), path.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '\\'; });
}

bool is_remote_name(std::string_view text) {
  return text.starts_with("hf:") || text.starts_with("https://") || text.starts_with("http://");
}

ModelName parse_model_name(const std::string& text, const std::string& endpoint) {
  ModelName name{.text = text};
  if (!is_remote_name(text)) return name;
  if (!text.starts_with("hf:")) {
    const Url url = parse_url(text), hub = parse_url(endpoint);
    const bool on_hub = url.same_origin(hub) || url.host == "huggingface.co" || url.host == "hf.co";
    const std::optional<ModelName> known = on_hub ? from_address(text, url.path) : std::nullopt;
    if (!known) {
      name.kind = ModelName::Kind::kWeb;
      return name;
    }
    check(*known);
    return *known;
  }
  name.kind = ModelName::Kind::kHub;
  std::string rest = text.substr(3);
  if (const size_t colon = rest.find(':'); colon != std::string::npos) {
    name.wanted = rest.substr(colon + 1);
    rest.resize(colon);
    if (name.wanted.empty()) refuse(text, "nothing stands after the colon");
  }
  if (const size_t at = rest.find('@'); at != std::string::npos) {
    name.revision = rest.substr(at + 1);
    rest.resize(at);
  }
  name.repo = rest;
  check(name);
  return name;
}

Choice choose_files(const std::vector<HubFile>& files, const ModelName& name) {
  std::vector<HubFile> ggufs;
  for (const HubFile& file : files) {
    if (is_gguf_name(file.name) && !is_beside(file.name)) ggufs.push_back(file);
  }
  std::sort(ggufs.begin(), ggufs.end(), [](const HubFile& a, const HubFile& b) { return a.name < b.name; });
  const auto gguf = [&](const HubFile& file) {
    return Choice{Choice::Kind::kGguf, with_other_parts(file, files, name), ""};
  };
  const auto first_with = [&](const std::string& word) -> const HubFile* {
    const auto it =
        std::find_if(ggufs.begin(), ggufs.end(), [&](const HubFile& file) { return has_word(file.name, word); });
    return it == ggufs.end() ? nullptr : &*it;
  };
  const std::vector<HubFile> checkpoint = checkpoint_files(files);
  if (!name.wanted.empty()) {
    const HubFile* exact = find_file(files, name.wanted);
    if (exact && is_gguf_name(exact->name)) return gguf(*exact);
    if (const HubFile* found = first_with(name.wanted)) return gguf(*found);
    if (!exact && is_recipe(name.wanted) && !checkpoint.empty()) {
      return {Choice::Kind::kCheckpoint, checkpoint,
              std::string(recipe_named([&] {
                            std::string word = name.wanted;
                            std::transform(word.begin(), word.end(), word.begin(),
                                           [](unsigned char c) { return std::tolower(c); });
                            return word;
                          }())
                              .name)};
    }
    fail({.code = ErrorCode::kFile,
          .what = exact ? "this file is no model by itself" : "the repository has no such file or quantisation",
          .where = name.id(),
          .expected = ggufs.empty() ? "a GGUF" : "one of " + list_names(ggufs),
          .got = ggufs.empty() ? list_names(files) : name.wanted,
          .todo = "Name one of them after the colon, or leave it out"});
  }
  for (const char* word : {"Q4_K_M", "Q8_0"}) {
    if (const HubFile* found = first_with(word)) return gguf(*found);
  }
  if (!ggufs.empty()) return gguf(ggufs.front());
  if (find_file(files, "manifest.json")) {
    Choice choice{Choice::Kind::kArtefact, {}, ""};
    for (const HubFile& file : files) {
      if (file.name.find('/') == std::string::npos && file.name != ".gitattributes") choice.files.push_back(file);
    }
    return choice;
  }
  if (!checkpoint.empty()) return {Choice::Kind::kCheckpoint, checkpoint, ""};
  const auto has = [&](const char* ending) {
    return std::any_of(files.begin(), files.end(), [&](const HubFile& file) { return file.name.ends_with(ending); });
  };
  std::string todo = "Look for a repository with the model in GGUF or safetensors";
  if (find_file(files, "adapter_config.json")) {
    todo = "This is an adapter: merge it into its base model first, or name the base model";
  } else if (has(".bin") || has(".pt") || has(".pth")) {
    todo =
        "Its weights are pickles, which can run code when they are opened: look for the model in GGUF or safetensors";
  }
  fail({.code = ErrorCode::kUnsupported,
        .what = "the repository holds no model that Doppler runs",
        .where = name.id(),
        .expected = "a GGUF, or config.json with safetensors",
        .got = list_names(files),
        .todo = todo});
}

}  // namespace doppler
