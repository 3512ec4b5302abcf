// tokenizer.json and its companions → tokenizer.ggml.*.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "convert/gguf_export.h"
#include "import/gguf_config.h"
#include "import/gguf_tokenizer.h"
#include "tokenizer/tokenizer_spec.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

bool is_byte_token(std::string_view token) { return token.size() == 6 && token.starts_with("<0x") && token[5] == '>'; }

Json read_settings(const fs::path& folder) {
  const fs::path path = folder / "tokenizer_config.json";
  return is_file(path) ? parse_json(read_text_file(path), path.string()) : Json::object();
}

std::string chat_template(const fs::path& folder, const Json& settings) {
  if (is_file(folder / "chat_template.jinja")) return read_text_file(folder / "chat_template.jinja");
  const Json* value = find(settings, "chat_template");
  if (!value) return "";
  if (value->is_string()) return value->get<std::string>();
  for (const Json& item : value->is_array() ? *value : Json::array()) {
    if (string_or(item, "name", "", "chat_template") == "default")
      return string_or(item, "template", "", "chat_template");
  }
  return "";
}

// "bos_token": its text or {"content": text}.
std::string token_named(const Json& settings, const char* key) {
  const Json* value = find(settings, key);
  if (value && value->is_object()) value = find(*value, "content");
  return value && value->is_string() ? value->get<std::string>() : "";
}

constexpr float kNeverMade = -1e9f;  // the score of pieces that no merge makes

// Pieces whose score is the rank of the merge that makes them: SentencePiece joins the best-scored neighbours first, as
// BPE joins those of the lowest rank.
std::vector<float> scores_of(const TokenizerSpec& spec, size_t tokens) {
  std::vector<float> scores(tokens, kNeverMade);
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto id = static_cast<size_t>(spec.merges[rank].result);
    if (id < tokens && scores[id] == kNeverMade) scores[id] = -static_cast<float>(rank + 1);
  }
  return scores;
}

// Whether joining by score gives the merges that the tokenizer has, in the same order. Added tokens are found in the
// text before anything is joined, so how they could be made does not matter.
bool scores_tell_all(const TokenizerSpec& spec, const std::vector<float>& scores) {
  std::set<int32_t> added;
  for (const AddedToken& token : spec.added) added.insert(token.id);
  const auto is_added = [&](const Merge& merge) { return added.contains(merge.result); };
  std::vector<Merge> again = merges_from_scores(spec.vocabulary, scores), merges = spec.merges;
  std::erase_if(again, is_added);
  std::erase_if(merges, is_added);
  return std::equal(again.begin(), again.end(), merges.begin(), merges.end(),
                    [](const Merge& a, const Merge& b) { return a.left == b.left && a.right == b.right; });
}

// The name of the first regular expression that the tokenizer cuts text by.
std::string pre_name(const std::string& tokenizer_json, const std::string& where) {
  Json cutter;
  JsonReader in(tokenizer_json, where);
  std::string_view key;
  in.begin_object();
  while (in.next_key(key)) {
    const bool found = key == "pre_tokenizer";
    const std::string_view value = in.raw();
    if (found) cutter = parse_json(value, where + ": pre_tokenizer");
  }
  const Json* steps = find(cutter, "pretokenizers");
  const Json& known = require_object(gguf_common(), "pre_tokenizers", "families/common.json: gguf");
  for (const Json& step : steps && steps->is_array() ? *steps : Json::array({cutter})) {
    const Json* pattern = find(step, "pattern");
    const Json* regex = pattern ? find(*pattern, "Regex") : nullptr;
    for (const auto& item : known.items()) {
      const Json* split = find(item.value, "split");
      if (regex && split && *regex == *split) return item.key;
    }
  }
  fail({.code = ErrorCode::kUnsupported,
        .what = "GGUF has no name for the way this tokenizer cuts text",
        .where = where});
}

// llama.cpp will not load a vocabulary without tokens for bytes: as many of them as there is room for come first.
void put_placeholders(const ModelConfig& config, GgufHeader& header) {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int i = 0; i < config.vocab; ++i) {
    tokens.push_back(i < 256 ? fmt::format("<0x{:02X}>", i) : fmt::format("[{}]", i));
    types.push_back(i < 256 ? gguf_token::kByte : gguf_token::kNormal);
  }
  header.put("tokenizer.ggml.model", "llama");
  header.put("tokenizer.ggml.tokens", tokens);
  header.put("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0));
  header.put("tokenizer.ggml.token_type", types);
  header.put("tokenizer.ggml.add_bos_token", false);
}

}  // namespace

void tokenizer_to_gguf(const fs::path& folder, const ModelConfig& config, GgufHeader& header,
                       std::vector<std::string>& notes) {
  const char* const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                              "tokenizer.ggml.eom_token_id"};
  for (size_t i = 0; i < config.eos_ids.size() && i < std::size(ends); ++i)
    header.put(ends[i], static_cast<uint32_t>(config.eos_ids[i]));
  if (config.bos_id >= 0) header.put("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(config.bos_id));
  const fs::path path = folder / "tokenizer.json";
  if (!is_file(path)) {
    put_placeholders(config, header);
    notes.push_back("there is no tokenizer: the file's tokens are numbered placeholders");
    return;
  }
  const std::string tokenizer_json = read_text_file(path);
  const TokenizerSpec spec = read_tokenizer_json(tokenizer_json, path.string());
  const Json settings = read_settings(folder);
  const auto count = static_cast<size_t>(config.vocab);
  std::vector<std::string> tokens(count);
  std::vector<int32_t> types(count, gguf_token::kUnused);
  for (size_t i = 0; i < count; ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!spec.vocabulary.has(id)) continue;
    tokens[i] = spec.vocabulary.token(id);
    types[i] = spec.bpe.byte_fallback && is_byte_token(tokens[i]) ? gguf_token::kByte : gguf_token::kNormal;
  }
  for (const AddedToken& token : spec.added) {
    if (static_cast<size_t>(token.id) >= count) continue;
    tokens[static_cast<size_t>(token.id)] = token.content;
    types[static_cast<size_t>(token.id)] = token.special ? gguf_token::kControl : gguf_token::kUserDefined;
  }
  for (size_t i = 0; i < count; ++i) {
    if (types[i] == gguf_token::kUnused && tokens[i].empty()) tokens[i] = fmt::format("[PAD{}]", i);
    if (spec.bpe.unk_token && tokens[i] == *spec.bpe.unk_token) {
      types[i] = gguf_token::kUnknown;
      header.put("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(i));
    }
    if (!tokens[i].empty() && tokens[i] == token_named(settings, "pad_token"))
      header.put("tokenizer.ggml.padding_token_id", static_cast<uint32_t>(i));
  }
  const bool byte_level = std::any_of(spec.pre_tokenizer.begin(), spec.pre_tokenizer.end(),
                                      [](const auto& step) { return step.kind == PreTokenizerStep::Kind::kByteLevel; });
  if (byte_level) {
    header.put("tokenizer.ggml.model", "gpt2");
    header.put("tokenizer.ggml.pre", pre_name(tokenizer_json, path.string()));
    std::vector<std::string> merges;
    for (const Merge& merge : spec.merges)
      merges.push_back(fmt::format("{} {}", spec.vocabulary.token(merge.left), spec.vocabulary.token(merge.right)));
    header.put("tokenizer.ggml.merges", merges);
  } else if (spec.bpe.byte_fallback) {
    header.put("tokenizer.ggml.model", "llama");
    header.put("tokenizer.ggml.pre", "default");
    const std::vector<float> scores = scores_of(spec, count);
    header.put("tokenizer.ggml.scores", scores);
    header.put("tokenizer.ggml.add_space_prefix",
               std::any_of(spec.normalizer.begin(), spec.normalizer.end(),
                           [](const auto& step) { return step.kind == NormalizerStep::Kind::kPrepend; }));
    if (!scores_tell_all(spec, scores)) {
      notes.push_back(
          "GGUF joins pieces by score, this tokenizer by a list of merges that scores cannot express wholly: rare "
          "words "
          "may be cut otherwise");
    }
  } else {
    fail({.code = ErrorCode::kUnsupported,
          .what = "GGUF has no tokenizer of this kind",
          .where = path.string(),
          .expected = "byte-level BPE, or BPE that falls back to bytes"});
  }
  header.put("tokenizer.ggml.tokens", tokens);
  header.put("tokenizer.ggml.token_type", types);
  const bool framed = !spec.post_processor.empty();
  header.put("tokenizer.ggml.add_bos_token", framed && !spec.post_processor.front().is_text);
  header.put("tokenizer.ggml.add_eos_token", framed && !spec.post_processor.back().is_text);
  const std::string chat = chat_template(folder, settings);
  if (!chat.empty()) header.put("tokenizer.chat_template", chat);
}

}  // namespace doppler
