#include "tokenizer/tokenizer_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <initializer_list>

#include "base/error.h"
#include "base/utf8.h"

namespace doppler {
namespace {

// The pattern with which ByteLevel splits when it is asked to: that of GPT-2.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void unknown(const std::string& where, const std::string& got) {
  fail({.code = ErrorCode::kUnsupported,
        .what = "the tokenizer asks for something we do not know",
        .where = where,
        .got = "'" + got + "'"});
}

// Every key must be one we act upon, or be switched off.
void only_keys(const Json& step, std::initializer_list<std::string_view> keys, const std::string& where) {
  for (const auto& [key, value] : step.items()) {
    if (key == "type" || value.is_null() || value == false) continue;
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) unknown(where, key);
  }
}

// Calls `read` for each step, in order, through sequences in sequences.
void each_step(const Json& json, const char* list, const std::string& where,
               const std::function<void(const Json&, const std::string& type, const std::string& where)>& read) {
  if (json.is_null()) return;
  const std::string type = require_string(json, "type", where);
  if (type != "Sequence") return read(json, type, where + ": " + type);
  only_keys(json, {list}, where);
  const Json& steps = require_array(json, list, where);
  for (size_t i = 0; i < steps.size(); ++i) each_step(steps[i], list, fmt::format("{}[{}]", where, i), read);
}

bool flag(const Json& step, const char* key, const std::string& where) {
  const Json& value = require(step, key, where);
  if (!value.is_boolean()) {
    fail({.code = ErrorCode::kFormat,
          .what = "a JSON value has the wrong type",
          .where = where + ": " + key,
          .expected = "true or false",
          .got = brief(value)});
  }
  return value.get<bool>();
}

TextPattern read_pattern(const Json& step, const std::string& where) {
  const Json& pattern = require_object(step, "pattern", where);
  if (pattern.size() == 1 && find(pattern, "String")) {
    std::string text = require_string(pattern, "String", where);
    if (text.empty()) unknown(where, "an empty pattern");
    return TextPattern::literal(std::move(text));
  }
  if (pattern.size() == 1 && find(pattern, "Regex")) {
    const std::string text = require_string(pattern, "Regex", where);
    if (text.empty()) unknown(where, "an empty pattern");
    return TextPattern::regex(text, where);
  }
  unknown(where, "pattern " + brief(pattern));
}

std::string one_character(const Json& step, const char* key, const std::string& where) {
  std::string text = require_string(step, key, where);
  uint32_t length = 0;
  if (!text.empty()) read_valid_utf8(text, 0, length);
  if (text.empty() || length != text.size()) {
    fail({.code = ErrorCode::kFormat,
          .what = "this must be one character",
          .where = where + ": " + key,
          .got = "'" + text + "'"});
  }
  return text;
}

SplitBehavior read_behavior(const std::string& name, const std::string& where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  unknown(where, name);
}

// Newer files say prepend_scheme, older ones add_prefix_space.
PrependScheme read_prepend_scheme(const Json& step, const std::string& where) {
  const bool prefix = bool_or(step, "add_prefix_space", true, where);
  const std::string name = string_or(step, "prepend_scheme", prefix ? "always" : "never", where);
  if (!prefix && name != "never") {
    fail({.code = ErrorCode::kFormat,
          .what = "add_prefix_space and prepend_scheme contradict each other",
          .where = where,
          .got = name});
  }
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  unknown(where, name);
}

// What a list of steps can do to a text at worst. A file may not ask for more steps or growth than any use would
// explain: a few short lines could otherwise turn a word into gigabytes.
class Growth {
 public:
  explicit Growth(const std::string& where) : where_(where) {}
  void step(size_t factor) {
    factor_ *= std::max<size_t>(factor, 1);
    if (++steps_ > 64 || factor_ > kMost) unknown(where_, "steps that grow without bound");
  }
  // Replacing what matches by `content`.
  void replace(const TextPattern& pattern, const std::string& content) {
    if (content.size() > 4096) unknown(where_, "steps that grow without bound");
    // An expression may match nothing at all, before every character.
    const size_t from = pattern.literal() ? pattern.literal()->size() : 0;
    step(from ? (content.size() + from - 1) / from : content.size() + 1);
  }

 private:
  static constexpr size_t kMost = 1 << 16;
  const std::string& where_;
  size_t steps_ = 0, factor_ = 1;
};

// How many times longer a step other than Replace can make a text.
size_t bytes_for_one(NormalizerStep::Kind kind) {
  switch (kind) {
    case NormalizerStep::Kind::kNfkc:
    case NormalizerStep::Kind::kNfkd: return 11;
    case NormalizerStep::Kind::kNfc:
    case NormalizerStep::Kind::kNfd: return 3;
    case NormalizerStep::Kind::kLowercase: return 2;
    default: return 1;
  }
}

size_t count(const Json& step, const char* key, const std::string& where) {
  const int64_t value = require_int(step, key, where);
  if (value < 0)
    fail({.code = ErrorCode::kFormat,
          .what = "a negative count",
          .where = where + ": " + key,
          .got = std::to_string(value)});
  return static_cast<size_t>(value);
}

}  // namespace

std::vector<NormalizerStep> read_normalizer(const Json& json, const std::string& where) {
  std::vector<NormalizerStep> steps;
  Growth growth(where);
  each_step(json, "normalizers", where, [&](const Json& j, const std::string& type, const std::string& place) {
    using Kind = NormalizerStep::Kind;
    NormalizerStep step;
    if (type == "Replace") {
      only_keys(j, {"pattern", "content"}, place);
      step.kind = Kind::kReplace;
      step.pattern = read_pattern(j, place);
      step.content = require_string(j, "content", place);
    } else if (type == "Prepend") {
      only_keys(j, {"prepend"}, place);
      step.kind = Kind::kPrepend;
      step.content = require_string(j, "prepend", place);
      if (step.content.empty() || step.content.size() > 4096) unknown(place, "nothing or too much to prepend");
    } else if (type == "Strip") {
      only_keys(j, {"strip_left", "strip_right"}, place);
      step.kind = Kind::kStrip;
      step.strip_left = flag(j, "strip_left", place);
      step.strip_right = flag(j, "strip_right", place);
    } else {
      only_keys(j, {}, place);
      if (type == "NFC") {
        step.kind = Kind::kNfc;
      } else if (type == "NFD") {
        step.kind = Kind::kNfd;
      } else if (type == "NFKC") {
        step.kind = Kind::kNfkc;
      } else if (type == "NFKD") {
        step.kind = Kind::kNfkd;
      } else if (type == "Lowercase") {
        step.kind = Kind::kLowercase;
      } else {
        unknown(place, "the normalizer " + type);
      }
    }
    if (step.kind == Kind::kReplace) {
      growth.replace(step.pattern, step.content);
    } else {
      growth.step(bytes_for_one(step.kind));
    }
    steps.push_back(std::move(step));
  });
  return steps;
}

std::vector<PreTokenizerStep> read_pre_tokenizer(const Json& json, const std::string& where) {
  std::vector<PreTokenizerStep> steps;
  Growth growth(where);
  each_step(json, "pretokenizers", where, [&](const Json& j, const std::string& type, const std::string& place) {
    using Kind = PreTokenizerStep::Kind;
    PreTokenizerStep step;
    if (type == "Split") {
      only_keys(j, {"pattern", "behavior", "invert"}, place);
      step.kind = Kind::kSplit;
      step.pattern = read_pattern(j, place);
      step.behavior = read_behavior(require_string(j, "behavior", place), place);
      step.invert = flag(j, "invert", place);
    } else if (type == "ByteLevel") {
      only_keys(j, {"add_prefix_space", "trim_offsets", "use_regex"}, place);
      step.kind = Kind::kByteLevel;
      step.add_prefix_space = flag(j, "add_prefix_space", place);
      if (bool_or(j, "use_regex", true, place)) step.pattern = TextPattern::regex(kByteLevelPattern, place);
    } else if (type == "Metaspace") {
      only_keys(j, {"replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}, place);
      step.kind = Kind::kMetaspace;
      step.replacement = one_character(j, "replacement", place);
      step.prepend = read_prepend_scheme(j, place);
      step.split = bool_or(j, "split", true, place);
    } else if (type == "Digits") {
      only_keys(j, {"individual_digits"}, place);
      step.kind = Kind::kDigits;
      step.individual_digits = flag(j, "individual_digits", place);
    } else {
      unknown(place, "the pre-tokenizer " + type);
    }
    growth.step(step.kind == Kind::kMetaspace ? 5 : step.kind == Kind::kByteLevel ? 3 : 1);
    steps.push_back(std::move(step));
  });
  return steps;
}

std::vector<TemplatePiece> read_post_processor(const Json& json, const std::string& where) {
  std::vector<TemplatePiece> pieces;
  each_step(json, "processors", where, [&](const Json& j, const std::string& type, const std::string& place) {
    if (type == "ByteLevel") return;  // it only moves offsets
    if (type != "TemplateProcessing") unknown(place, "the post-processor " + type);
    if (!pieces.empty()) unknown(where, "two templates");
    only_keys(j, {"single", "pair", "special_tokens"}, place);
    size_t total = 0;
    const Json& special = require_object(j, "special_tokens", place);
    for (const Json& item : require_array(j, "single", place)) {
      TemplatePiece piece;
      if (const Json* sequence = find(item, "Sequence")) {
        if (require_string(*sequence, "id", place) != "A") unknown(place, "a second text in 'single'");
        piece.is_text = true;
      } else {
        const std::string id = require_string(require_object(item, "SpecialToken", place), "id", place);
        for (const Json& value : require_array(require_object(special, id, place), "ids", place)) {
          const int64_t number = value.is_number_integer() ? value.get<int64_t>() : -1;
          if (number < 0 || number >= Vocabulary::kIdLimit) {
            fail({.code = ErrorCode::kFormat,
                  .what = "a special token's id is wrong",
                  .where = place + ": " + id,
                  .got = brief(value)});
          }
          piece.ids.push_back(static_cast<int32_t>(number));
        }
      }
      total += piece.ids.size() + 1;
      if (total > 4096) unknown(place, "thousands of special tokens around a text");
      pieces.push_back(std::move(piece));
    }
    if (std::count_if(pieces.begin(), pieces.end(), [](const TemplatePiece& p) { return p.is_text; }) != 1) {
      unknown(place, "a template that does not hold the text once");
    }
  });
  return pieces;
}

std::optional<std::vector<DecoderStep>> read_decoder(const Json& json, const std::string& where) {
  if (json.is_null()) return std::nullopt;
  std::vector<DecoderStep> steps;
  Growth growth(where);
  each_step(json, "decoders", where, [&](const Json& j, const std::string& type, const std::string& place) {
    using Kind = DecoderStep::Kind;
    DecoderStep step;
    if (type == "Replace") {
      only_keys(j, {"pattern", "content"}, place);
      step.kind = Kind::kReplace;
      step.pattern = read_pattern(j, place);
      step.content = require_string(j, "content", place);
    } else if (type == "ByteFallback") {
      only_keys(j, {}, place);
      step.kind = Kind::kByteFallback;
    } else if (type == "Fuse") {
      only_keys(j, {}, place);
      step.kind = Kind::kFuse;
    } else if (type == "Strip") {
      only_keys(j, {"content", "start", "stop"}, place);
      step.kind = Kind::kStrip;
      step.content = one_character(j, "content", place);
      step.start = count(j, "start", place);
      step.stop = count(j, "stop", place);
    } else if (type == "ByteLevel") {
      only_keys(j, {"add_prefix_space", "trim_offsets", "use_regex"}, place);
      step.kind = Kind::kByteLevel;
    } else if (type == "Metaspace") {
      only_keys(j, {"replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}, place);
      step.kind = Kind::kMetaspace;
      step.content = one_character(j, "replacement", place);
      step.drop_first = read_prepend_scheme(j, place) != PrependScheme::kNever;
    } else {
      unknown(place, "the decoder " + type);
    }
    if (step.kind == Kind::kReplace) {
      growth.replace(step.pattern, step.content);
    } else {
      growth.step(step.kind == Kind::kByteLevel ? 3 : 1);
    }
    steps.push_back(std::move(step));
  });
  return steps;
}

}  // namespace doppler
