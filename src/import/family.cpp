#include "import/family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/files.h"

namespace doppler {
namespace {

std::vector<std::string> strings(const Json& object, const char* key, const std::string& where) {
  std::vector<std::string> out;
  if (!find(object, key)) return out;
  for (const Json& item : require_array(object, key, where)) {
    if (!item.is_string())
      fail({.code = ErrorCode::kFormat,
            .what = "a list of strings is needed",
            .where = where + ": " + key,
            .got = brief(item)});
    out.push_back(item.get<std::string>());
  }
  return out;
}

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

QuantClass quant_class(const std::string& word, const std::string& where) {
  for (int i = 0; i <= static_cast<int>(QuantClass::kKeep); ++i) {
    if (name_of(static_cast<QuantClass>(i)) == word) return static_cast<QuantClass>(i);
  }
  fail({.code = ErrorCode::kFormat,
        .what = "an unknown quantisation class",
        .where = where,
        .expected = "embedding, matrix, value, down, expert or keep",
        .got = word});
}

QuantClass default_class(const std::string& role) {
  if (role == "embedding" || role == "lm_head") return QuantClass::kEmbedding;
  if (role == "matmul") return QuantClass::kMatrix;
  if (role == "expert") return QuantClass::kExpert;
  return QuantClass::kKeep;
}

Family make_family(std::string_view text, const std::string& file) {
  Family family{"", file, parse_json(text, file)};
  family.name = require_string(family.json, "family", file);
  return family;
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> out;
    for (const EmbeddedFamily& embedded : embedded_families()) {
      const std::string file = "families/" + std::string(embedded.file);
      if (embedded.file != "common.json") out.push_back(make_family(embedded.text, file));
    }
    return out;
  }();
  return all;
}

Family load_family(const std::filesystem::path& path) { return make_family(read_text_file(path), path.string()); }

const Family& family_for(const Json& hf_config, const std::string& where) {
  const std::vector<std::string> wanted = strings(hf_config, "architectures", where);
  const std::string type = string_or(hf_config, "model_type", "", where);
  for (const Family& family : families()) {
    for (const std::string& architecture : strings(family.json, "architectures", family.file)) {
      if (contains(wanted, architecture)) return family;
    }
  }
  for (const Family& family : families()) {
    if (wanted.empty() && contains(strings(family.json, "model_types", family.file), type)) return family;
  }
  std::vector<std::string> known;
  for (const Family& family : families()) {
    for (std::string& architecture : strings(family.json, "architectures", family.file)) known.push_back(architecture);
  }
  fail({.code = ErrorCode::kUnsupported,
        .what = "no family serves this model",
        .where = where,
        .expected = fmt::format("one of {}", fmt::join(known, ", ")),
        .got = wanted.empty() ? (type.empty() ? "no architecture" : type) : wanted.front(),
        .todo = "A family is one JSON file: see families/README.md and --family"});
}

std::vector<TensorLayout> layouts_of(const Family& family) {
  std::vector<TensorLayout> out;
  for (const Json& item : require_array(family.json, "layouts", family.file)) {
    out.push_back({require_string(item, "body", family.file), require_string(item, "head", family.file)});
  }
  if (out.empty()) fail({.code = ErrorCode::kFormat, .what = "a family needs a tensor layout", .where = family.file});
  return out;
}

std::string_view name_of(QuantClass quant) {
  switch (quant) {
    case QuantClass::kEmbedding: return "embedding";
    case QuantClass::kMatrix: return "matrix";
    case QuantClass::kValue: return "value";
    case QuantClass::kDown: return "down";
    case QuantClass::kExpert: return "expert";
    case QuantClass::kKeep: return "keep";
  }
  return "?";
}

int layer_of(std::string_view slot) {
  constexpr std::string_view kLayer = "layer";
  if (!slot.starts_with(kLayer)) return -1;
  int layer = -1;
  const auto result = std::from_chars(slot.data() + kLayer.size(), slot.data() + slot.size(), layer);
  return result.ec == std::errc() && result.ptr != slot.data() + slot.size() && *result.ptr == '.' ? layer : -1;
}

TensorRule rule_for(const Family& family, const std::string& slot, const TensorLayout& layout) {
  const int layer = layer_of(slot);
  const std::string pattern = layer < 0 ? slot : "layer{i}" + slot.substr(slot.find('.'));
  const std::string where = family.file + ": tensors";
  if (slot.starts_with("dense")) {  // sentence-transformers' own name, whatever the family
    const std::string name = slot + ".linear.weight";
    return {name, "matmul", QuantClass::kEmbedding, "", "", name, "", {}};
  }
  const Json* item = find(require_object(family.json, "tensors", family.file), pattern);
  if (!item) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "the model needs a tensor that its family does not name",
          .where = where,
          .expected = "'" + pattern + "'"});
  }
  const std::string at = where + ": " + pattern;
  const auto expand = [&](std::string name) {
    name = replaced(std::move(name), "{body}", layout.body);
    name = replaced(std::move(name), "{head}", layout.head);
    return replaced(std::move(name), "{i}", std::to_string(layer));
  };
  TensorRule rule{expand(require_string(*item, "name", at)), require_string(*item, "role", at), {}, "", "", "", "", {}};
  const Json* quant = find(*item, "quant");
  rule.quant = quant ? quant_class(require_string(*item, "quant", at), at) : default_class(rule.role);
  if (find(*item, "second")) rule.second = expand(require_string(*item, "second", at));
  for (const std::string& other : strings(*item, "stacked", at)) {
    rule.stacked.push_back(layer < 0 ? other : fmt::format("layer{}.{}", layer, other));
  }
  const bool whole = rule.stacked.empty() && rule.second.empty() && rule.name.find("{e}") == std::string::npos;
  rule.stored = whole ? rule.name : slot;
  if (find(*item, "mxfp4")) {
    const std::vector<std::string> ends = strings(*item, "mxfp4", at);
    if (ends.size() != 2)
      fail({.code = ErrorCode::kFormat,
            .what = "mxfp4 needs the endings of blocks and scales",
            .where = at,
            .expected = "two strings"});
    rule.blocks = rule.name + ends[0];
    rule.scales = rule.name + ends[1];
  }
  return rule;
}

bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string why_ignored(const Family& family, const std::string& tensor) {
  if (!find(family.json, "ignored_tensors")) return "";
  for (const Json& item : require_array(family.json, "ignored_tensors", family.file)) {
    const std::string where = family.file + ": ignored_tensors";
    if (glob_match(require_string(item, "match", where), tensor)) return require_string(item, "why", where);
  }
  return "";
}

std::vector<Preset> presets() {
  std::vector<Preset> out;
  for (const Family& family : families()) {
    if (const Json* list = find(family.json, "presets")) {
      for (const auto& item : list->items()) out.push_back({item.key, &family, &item.value});
    }
  }
  return out;
}

Preset preset_named(const std::string& name) {
  std::vector<std::string> known;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    known.push_back(preset.name);
  }
  fail({.code = ErrorCode::kUsage,
        .what = "there is no such architecture",
        .where = name,
        .expected = fmt::format("one of {}", fmt::join(known, ", "))});
}

}  // namespace doppler
