#include "import/gguf_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "import/gguf_config.h"
#include "tokenizer/tokenizer_spec.h"

namespace doppler {
namespace {

constexpr size_t kLongestToken = 1024;  // bytes

// Every way to cut a token of n bytes in two is looked at, which reads n bytes n times; published vocabularies come to
// some 25 MB in all. What comes of it is written down as text, whose published sizes are five times the vocabulary's.
constexpr uint64_t kMostCutBytes = uint64_t{1} << 29;
constexpr uint64_t kMostMergeBytes = 32;  // for each byte of the vocabulary

// JSON string of valid UTF-8.
void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

class TokenizerReader {
 public:
  explicit TokenizerReader(const GgufFile& file) : file_(file) {}

  bool present() const {
    const GgufValue* model = file_.find("tokenizer.ggml.model");
    return model && model->string() != "no_vocab" && model->string() != "none" && find_array("tokens");
  }

  TokenizerFiles run(std::vector<std::string>& notes) {
    const std::string model(file_.find("tokenizer.ggml.model")->string());
    if (model != "llama" && model != "gpt2") {
      fail({.code = ErrorCode::kUnsupported,
            .what = "this kind of tokenizer is not supported",
            .where = place("model"),
            .expected = "llama or gpt2",
            .got = brief(model)});
    }
    const GgufArray& tokens = strings("tokens");
    if (tokens.strings.size() > static_cast<size_t>(Vocabulary::kIdLimit)) {
      fail({.code = ErrorCode::kFormat,
            .what = "the vocabulary is too large",
            .where = place("tokens"),
            .got = std::to_string(tokens.count)});
    }
    tokens_ = tokens.strings;
    for (const std::string_view token : tokens_) check_text(token, "tokens");
    types_ = find_array("token_type");
    TokenizerFiles out;
    out.tokens = tokens_.size();
    out.add_bos = flag("add_bos_token", model == "llama");
    std::string json = R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [)";
    append_added(json);
    json += "],\n";
    if (model == "llama") {
      append_sentencepiece(json, out);
    } else {
      append_byte_level(json, out, notes);
    }
    json += "}\n";
    out.tokenizer_json = std::move(json);
    out.tokenizer_config_json = settings(out).dump(1);
    return out;
  }

 private:
  std::string place(const char* key) const { return file_.where() + ": tokenizer.ggml." + key; }

  const GgufArray* find_array(const char* key) const {
    const GgufValue* value = file_.find(std::string("tokenizer.ggml.") + key);
    return value ? value->array() : nullptr;
  }
  const GgufArray& strings(const char* key) const {
    const GgufArray* array = find_array(key);
    if (!array || array->type != GgufType::kString || array->count == 0) {
      fail({.code = ErrorCode::kFormat, .what = "the tokenizer lacks a list of strings", .where = place(key)});
    }
    return *array;
  }
  bool flag(const char* key, bool otherwise) const {
    const GgufValue* value = file_.find(std::string("tokenizer.ggml.") + key);
    return value && value->boolean() ? *value->boolean() : otherwise;
  }
  // A token's id from the metadata; -1 if it is not there or no token of this vocabulary.
  int64_t id(const char* key) const {
    const GgufValue* value = file_.find(std::string("tokenizer.ggml.") + key);
    const double n = value && value->is_number() ? value->number() : -1;
    return n >= 0 && n < static_cast<double>(tokens_.size()) ? static_cast<int64_t>(n) : -1;
  }
  int type(size_t i) const {
    const double n = types_ && i < types_->count ? types_->number(i) : double{gguf_token::kNormal};
    return n >= 0 && n <= double{gguf_token::kByte} ? static_cast<int>(n) : gguf_token::kNormal;
  }
  void check_text(std::string_view text, const char* key, size_t longest = kLongestToken) const {
    if (text.size() > longest) {
      fail({.code = ErrorCode::kFormat,
            .what = "a token is absurdly long",
            .where = place(key),
            .expected = fmt::format("at most {} bytes", longest),
            .got = std::to_string(text.size())});
    }
    if (find_invalid_utf8(text) == text.size()) return;
    fail(
        {ErrorCode::kFormat, "a token is not valid UTF-8", place(key), "", brief(std::string(text.substr(0, 40))), ""});
  }

  void append_added(std::string& json) {
    bool first = true;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const int t = type(i);
      if ((t != gguf_token::kControl && t != gguf_token::kUserDefined && t != gguf_token::kUnknown) ||
          tokens_[i].empty())
        continue;
      json += first ? "\n{\"id\": " : ",\n{\"id\": ";
      first = false;
      json += std::to_string(i) + ", \"content\": ";
      append_quoted(json, tokens_[i]);
      json += R"(, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": )";
      json += t == gguf_token::kUserDefined ? "false}" : "true}";
    }
  }

  void append_frame(std::string& json, bool add_bos) {
    const int64_t bos = id("bos_token_id"), eos = id("eos_token_id");
    const bool add_eos = flag("add_eos_token", false) && eos >= 0;
    add_bos = add_bos && bos >= 0;
    if (!add_bos && !add_eos) {
      json += "\"post_processor\": null,\n";
      return;
    }
    Json single = Json::array(), special = Json::object();
    const auto token = [&](int64_t number) {
      const std::string text(tokens_[static_cast<size_t>(number)]);
      single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
      special[text] = {{"id", text}, {"ids", Json::array({number})}, {"tokens", Json::array({text})}};
    };
    if (add_bos) token(bos);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (add_eos) token(eos);
    const Json frame = {
        {"type", "TemplateProcessing"}, {"single", single}, {"pair", single}, {"special_tokens", special}};
    json += "\"post_processor\": " + frame.dump() + ",\n";
  }

  void append_vocabulary(std::string& json) const {
    json += "\"vocab\": {";
    for (size_t i = 0; i < tokens_.size(); ++i) {
      json += i == 0 ? "\n" : ",\n";
      append_quoted(json, tokens_[i]);
      json += ": " + std::to_string(i);
    }
    json += "}";
  }

  void append_merge(std::string& json, bool first, std::string_view left, std::string_view right) const {
    json += first ? "\n[" : ",\n[";
    append_quoted(json, left);
    json += ", ";
    append_quoted(json, right);
    json += "]";
  }

  // Pieces with scores; every way to make a piece of two others is a merge, the best piece's first.
  void append_sentencepiece(std::string& json, const TokenizerFiles& out) {
    const bool prefix = flag("add_space_prefix", true);
    const std::string replace = R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})";
    json += "\"normalizer\": ";
    json += prefix ? R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, )" + replace + "]},\n"
                   : replace + ",\n";
    json += "\"pre_tokenizer\": null,\n";
    append_frame(json, out.add_bos);
    json +=
        R"("decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, )";
    json += R"({"type": "ByteFallback"}, {"type": "Fuse"})";
    if (prefix) json += R"(, {"type": "Strip", "content": " ", "start": 1, "stop": 0})";
    json += "]},\n";
    const GgufArray* scores = find_array("scores");
    if (!scores || scores->count != tokens_.size() || scores->type == GgufType::kString) {
      fail({.code = ErrorCode::kFormat,
            .what = "the tokenizer needs a score for every token",
            .where = place("scores"),
            .expected = std::to_string(tokens_.size()),
            .got = scores ? std::to_string(scores->count) : "none"});
    }
    Vocabulary vocabulary;
    std::vector<float> values(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (vocabulary.add(tokens_[i], static_cast<int32_t>(i)) != Vocabulary::Added::kYes) {
        fail({.code = ErrorCode::kFormat,
              .what = "a token is in the vocabulary twice",
              .where = place("tokens"),
              .got = brief(std::string(tokens_[i]))});
      }
      const auto score = static_cast<float>(scores->number(i));
      values[i] = score == score ? score : 0;
    }
    json += R"("model": {"type": "BPE", "dropout": null, )";
    if (const int64_t unknown = unknown_id(); unknown >= 0) {
      json += "\"unk_token\": ";
      append_quoted(json, tokens_[static_cast<size_t>(unknown)]);
      json += ", ";
    }
    json +=
        R"("continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false, )";
    append_vocabulary(json);
    json += ",\n\"merges\": [";
    bool first = true;
    for (const Merge& merge : score_merges(vocabulary, values)) {
      append_merge(json, first, vocabulary.token(merge.left), vocabulary.token(merge.right));
      first = false;
    }
    json += "]}";
  }

  std::vector<Merge> score_merges(const Vocabulary& vocabulary, const std::vector<float>& scores) const {
    const auto check = [&](uint64_t bytes, uint64_t most) {
      if (bytes <= most) return;
      fail({.code = ErrorCode::kFormat,
            .what = "the tokens can be put together from each other in absurdly many ways",
            .where = place("tokens"),
            .expected = fmt::format("at most {} bytes of them", most),
            .got = std::to_string(bytes)});
    };
    uint64_t all = 0, cuts = 0, written = 0;
    for (const std::string_view token : tokens_) {
      all += token.size();
      cuts += token.size() * token.size();
    }
    check(cuts, kMostCutBytes);
    std::vector<Merge> merges = merges_from_scores(vocabulary, scores);
    for (const Merge& merge : merges) written += vocabulary.token(merge.result).size();
    check(written, kMostMergeBytes * all);
    return merges;
  }

  int64_t unknown_id() const {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (type(i) == gguf_token::kUnknown) return static_cast<int64_t>(i);
    }
    return id("unknown_token_id");
  }

  void append_byte_level(std::string& json, TokenizerFiles& out, std::vector<std::string>& notes) {
    const GgufValue* told = file_.find("tokenizer.ggml.pre");
    std::string pre(told ? told->string() : "default");
    const Json& known = require_object(gguf_common(), "pre_tokenizers", "families/common.json: gguf");
    const Json* rule = find(known, pre);
    if (!rule) {
      std::vector<std::string> names;
      for (const auto& item : known.items()) names.push_back(item.key);
      fail({.code = ErrorCode::kUnsupported,
            .what = "the file cuts text in a way that is not known",
            .where = place("pre"),
            .expected = fmt::format("one of {}", fmt::join(names, ", ")),
            .got = brief(pre)});
    }
    if (!told) notes.push_back("the file does not say how to cut text (tokenizer.ggml.pre): GPT-2's way is taken");
    const std::string where = "families/common.json: gguf.pre_tokenizers";
    out.add_bos = flag("add_bos_token", bool_or(*rule, "add_bos", false, where));
    const std::string normalizer = string_or(*rule, "normalizer", "", where);
    json += normalizer.empty() ? "\"normalizer\": null,\n" : "\"normalizer\": {\"type\": \"" + normalizer + "\"},\n";
    json += R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": )";
    append_quoted(json, require_string(*rule, "split", where));
    json += R"(}, "behavior": "Isolated", "invert": false}, )";
    json += R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},)";
    json += "\n";
    append_frame(json, out.add_bos);
    json += R"("decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},)";
    json += "\n\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, ";
    json +=
        R"("continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, )";
    json += fmt::format("\"ignore_merges\": {}, ", bool_or(*rule, "ignore_merges", false, where));
    append_vocabulary(json);
    json += ",\n\"merges\": [";
    bool first = true;
    for (const std::string_view merge : strings("merges").strings) {
      check_text(merge, "merges", 2 * kLongestToken + 1);
      const size_t gap = merge.find(' ', 1);  // a token may begin with a space only if it is one
      if (gap == std::string_view::npos || gap + 1 >= merge.size()) {
        fail({.code = ErrorCode::kFormat,
              .what = "a merge is not two tokens with a space between",
              .where = place("merges"),
              .got = brief(std::string(merge.substr(0, 40)))});
      }
      append_merge(json, first, merge.substr(0, gap), merge.substr(gap + 1));
      first = false;
    }
    json += "]}";
  }

  Json settings(const TokenizerFiles& out) const {
    Json json = {{"add_bos_token", out.add_bos}, {"add_eos_token", flag("add_eos_token", false)}};
    const std::pair<const char*, const char*> named[] = {{"bos_token", "bos_token_id"},
                                                         {"eos_token", "eos_token_id"},
                                                         {"unk_token", "unknown_token_id"},
                                                         {"pad_token", "padding_token_id"}};
    for (const auto& [name, key] : named) {
      if (const int64_t number = id(key); number >= 0) json[name] = std::string(tokens_[static_cast<size_t>(number)]);
    }
    const GgufValue* chat = file_.find("tokenizer.chat_template");
    const GgufValue* tools = file_.find("tokenizer.chat_template.tool_use");
    if (chat && !chat->string().empty()) {
      json["chat_template"] = std::string(chat->string());
      if (tools && !tools->string().empty()) {
        json["chat_template"] = Json::array({{{"name", "default"}, {"template", std::string(chat->string())}},
                                             {{"name", "tool_use"}, {"template", std::string(tools->string())}}});
      }
    }
    return json;
  }

  const GgufFile& file_;
  std::vector<std::string_view> tokens_;
  const GgufArray* types_ = nullptr;
};

}  // namespace

std::optional<TokenizerFiles> tokenizer_from_gguf(const GgufFile& file, std::vector<std::string>& notes) {
  TokenizerReader reader(file);
  if (!reader.present()) {
    notes.push_back("the file carries no tokenizer: run takes token ids only (--prompt-ids)");
    return std::nullopt;
  }
  return reader.run(notes);
}

}  // namespace doppler
