// tokenizer.json -> TokenizerSpec. The vocabulary and the merges, nearly all of the file, are read in one pass without
// a document; the steps of the pipeline are small and go through parse_json (tokenizer_steps.cpp).
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "tokenizer/tokenizer_spec.h"

namespace doppler {
namespace {

class TokenizerReader {
 public:
  TokenizerReader(std::string_view json, const std::string& where) : in_(json, where) {}

  TokenizerSpec run() {
    std::string_view key;
    in_.begin_object();
    while (in_.next_key(key)) {
      if (key == "version") {
        if (in_.string() != "1.0") in_.wrong("this version of tokenizer.json is not known", "version 1.0");
      } else if (key == "truncation" || key == "padding") {
        // A caller's settings that were left in the file; transformers sets both anew at every call.
        in_.raw();
      } else if (key == "added_tokens") {
        added_tokens();
      } else if (key == "normalizer") {
        spec_.normalizer = read_normalizer(step("normalizer"), place("normalizer"));
      } else if (key == "pre_tokenizer") {
        spec_.pre_tokenizer = read_pre_tokenizer(step("pre_tokenizer"), place("pre_tokenizer"));
      } else if (key == "post_processor") {
        spec_.post_processor = read_post_processor(step("post_processor"), place("post_processor"));
      } else if (key == "decoder") {
        spec_.decoder = read_decoder(step("decoder"), place("decoder"));
      } else if (key == "model") {
        has_model_ = true;
        model();
      } else {
        unknown_key("", key);
      }
    }
    in_.finish();
    if (!has_model_) in_.wrong("a key is missing", "'model'");
    for (const PreTokenizerStep& step : spec_.pre_tokenizer) {
      // Whether a piece is the first depends on how offsets pass through the steps before, which we do not follow.
      if (step.kind == PreTokenizerStep::Kind::kMetaspace && step.prepend == PrependScheme::kFirst &&
          (&step != &spec_.pre_tokenizer.front() || !spec_.normalizer.empty())) {
        fail({.code = ErrorCode::kUnsupported,
              .what = "the tokenizer asks for something we do not know",
              .where = place("pre_tokenizer"),
              .got = "prepend_scheme 'first' after other steps"});
      }
    }
    resolve_added_tokens();
    return std::move(spec_);
  }

 private:
  std::string place(const char* key) const { return in_.where() + ": " + key; }
  Json step(const char* key) { return parse_json(in_.raw(), place(key)); }

  // Something may depend on a key we have never heard of, unless it is switched off.
  void unknown_key(const std::string& inside, std::string_view key) {
    const std::string name(key);
    const char kind = in_.kind();
    if (kind == 'n' || kind == 'f') {
      in_.raw();
      return;
    }
    fail({.code = ErrorCode::kUnsupported,
          .what = "the tokenizer asks for something we do not know",
          .where = in_.where(),
          .got = fmt::format("'{}{}'", inside, name)});
  }

  void added_tokens() {
    if (in_.take_null()) return;
    in_.begin_array();
    while (in_.next_element()) {
      AddedToken token;
      bool has_id = false, has_content = false, has_normalized = false;
      std::string_view key;
      in_.begin_object();
      while (in_.next_key(key)) {
        if (key == "id") {
          token.id = id();
          has_id = true;
        } else if (key == "content") {
          token.content = in_.string();
          has_content = true;
        } else if (key == "single_word") {
          token.single_word = in_.boolean();
        } else if (key == "lstrip") {
          token.lstrip = in_.boolean();
        } else if (key == "rstrip") {
          token.rstrip = in_.boolean();
        } else if (key == "normalized") {
          token.normalized = in_.boolean();
          has_normalized = true;
        } else if (key == "special") {
          token.special = in_.boolean();
        } else {
          unknown_key("added_tokens.", key);
        }
      }
      if (!has_id || !has_content) in_.wrong("an added token needs an 'id' and a 'content'");
      if (!has_normalized) token.normalized = !token.special;
      if (!token.content.empty()) spec_.added.push_back(std::move(token));
    }
  }

  int32_t id() {
    const int64_t value = in_.integer();
    if (value < 0 || value >= Vocabulary::kIdLimit) {
      in_.wrong(fmt::format("a token's id is out of range: {}", value),
                fmt::format("0 to {}", Vocabulary::kIdLimit - 1));
    }
    return static_cast<int32_t>(value);
  }

  void model() {
    if (in_.kind() != '{') in_.wrong("a JSON value has the wrong type", "an object");
    std::string_view key;
    size_t merges_at = 0;
    bool has_vocabulary = false, has_merges = false;
    in_.begin_object();
    while (in_.next_key(key)) {
      if (key == "type") {
        const std::string type(in_.string());
        if (type != "BPE") {
          fail({.code = ErrorCode::kUnsupported,
                .what = "this kind of tokenizer is not supported",
                .where = in_.where() + ": model.type",
                .expected = "BPE",
                .got = type});
        }
      } else if (key == "vocab") {
        if (has_vocabulary) in_.wrong("'vocab' comes twice");
        vocabulary();
        has_vocabulary = true;
      } else if (key == "merges") {
        if (has_merges) in_.wrong("'merges' comes twice");
        has_merges = true;
        merges_at = in_.position();
        // They need the vocabulary, the affixes too; whoever wrote the file put them last, but JSON has no order.
        if (has_vocabulary && affixes_seen_) {
          merges();
        } else {
          in_.raw();
          merges_wait_ = true;
        }
      } else {
        option(std::string(key));
      }
    }
    if (!has_vocabulary || !has_merges) in_.wrong("the model needs 'vocab' and 'merges'");
    if (merges_wait_) {
      const size_t end = in_.position();
      in_.go_to(merges_at);
      merges();
      in_.go_to(end);
    }
  }

  void option(const std::string& key) {
    BpeOptions& bpe = spec_.bpe;
    if (key == "dropout") {
      const std::string_view value = in_.raw();
      if (value != "null" && value != "0" && value != "0.0") {
        fail({.code = ErrorCode::kUnsupported,
              .what = "a random tokenizer is not supported",
              .where = place("model.dropout"),
              .expected = "null",
              .got = std::string(value.substr(0, 40))});
      }
    } else if (key == "unk_token") {
      if (!in_.take_null()) bpe.unk_token = in_.string();
    } else if (key == "continuing_subword_prefix") {
      affixes_seen_ = true;
      if (!in_.take_null()) bpe.continuing_subword_prefix = in_.string();
    } else if (key == "end_of_word_suffix") {
      if (!in_.take_null()) bpe.end_of_word_suffix = in_.string();
    } else if (key == "fuse_unk") {
      bpe.fuse_unk = in_.boolean();
    } else if (key == "byte_fallback") {
      bpe.byte_fallback = in_.boolean();
    } else if (key == "ignore_merges") {
      bpe.ignore_merges = in_.boolean();
    } else {
      unknown_key("model.", key);
    }
  }

  void vocabulary() {
    std::string_view token;
    in_.begin_object();
    while (in_.next_key(token)) {
      // Reading a number does not disturb the view of the key.
      const int32_t number = id();
      switch (spec_.vocabulary.add(token, number)) {
        case Vocabulary::Added::kYes: break;
        case Vocabulary::Added::kTokenTaken: in_.wrong(fmt::format("the token '{}' is in the vocabulary twice", token));
        case Vocabulary::Added::kIdTaken: in_.wrong(fmt::format("two tokens have the id {}", number));
      }
    }
  }

  // Merges that have been read but not looked up: left, right and result of each, one after the other.
  struct Batch {
    struct Part {
      size_t begin, length;
      uint32_t hash;
    };
    std::string text;
    std::vector<Part> parts;

    std::string_view view(const Part& part) const { return std::string_view(text).substr(part.begin, part.length); }
    void add(std::string_view token) {
      parts.push_back({text.size(), token.size(), 0});
      text.append(token);
    }
    void clear() {
      text.clear();
      parts.clear();
    }
  };

  void resolve(Batch& batch) {
    const Vocabulary& vocabulary = spec_.vocabulary;
    for (Batch::Part& part : batch.parts) {
      part.hash = Vocabulary::hash_of(batch.view(part));
      vocabulary.prefetch_slot(part.hash);
    }
    for (const Batch::Part& part : batch.parts) vocabulary.prefetch_text(part.hash);
    int32_t ids[3] = {};
    for (size_t i = 0; i < batch.parts.size(); ++i) {
      const Batch::Part& part = batch.parts[i];
      ids[i % 3] = vocabulary.find(batch.view(part), part.hash);
      if (ids[i % 3] < 0) {
        in_.wrong(fmt::format("a merge before this uses '{}', which is not in the vocabulary", batch.view(part)));
      }
      if (i % 3 == 2) spec_.merges.push_back({ids[0], ids[1], ids[2]});
    }
    batch.clear();
  }

  void merges() {
    const size_t prefix = spec_.bpe.continuing_subword_prefix.size();
    Batch batch;
    std::string left, right;
    in_.begin_array();
    while (in_.next_element()) {
      if (in_.kind() == '"') {
        const std::string_view line = in_.string();
        if (line.starts_with("#version")) continue;
        const size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
          in_.wrong("a merge must be two tokens with a space between");
        }
        left = line.substr(0, space);
        right = line.substr(space + 1);
      } else {
        in_.begin_array();
        if (!in_.next_element()) in_.wrong("a merge must be two tokens");
        left = in_.string();
        if (!in_.next_element()) in_.wrong("a merge must be two tokens");
        right = in_.string();
        if (in_.next_element()) in_.wrong("a merge must be two tokens");
      }
      if (left.empty() || right.size() <= prefix) in_.wrong("a merge with nothing on one side");
      batch.add(left);
      batch.add(right);
      left.append(right, prefix);
      batch.add(left);
      if (batch.parts.size() >= 96) resolve(batch);
    }
    resolve(batch);
  }

  // Ids are given as Hugging Face gives them: the vocabulary's, or else the next free one. A file that says otherwise
  // contradicts itself.
  void resolve_added_tokens() {
    const auto count = static_cast<int32_t>(spec_.vocabulary.size());
    Vocabulary seen;  // contents by their place in `resolved`
    std::vector<AddedToken> resolved;
    int32_t largest = -1;
    for (AddedToken& token : spec_.added) {
      const int32_t before = seen.find(token.content);
      if (before >= 0) {
        const AddedToken& old = resolved[static_cast<size_t>(before)];
        if (old.id == token.id && old.single_word == token.single_word && old.lstrip == token.lstrip &&
            old.rstrip == token.rstrip && old.normalized == token.normalized && old.special == token.special) {
          continue;
        }
        fail({.code = ErrorCode::kFormat,
              .what = "an added token is there twice, with different meanings",
              .where = place("added_tokens"),
              .got = token.content});
      }
      const int32_t known_id = spec_.vocabulary.find(token.content);
      const int32_t right_id = known_id >= 0 ? known_id : std::max(largest + 1, count);
      if (token.id != right_id) {
        fail({.code = ErrorCode::kFormat,
              .what = fmt::format("the id of the added token '{}' does not fit the vocabulary", token.content),
              .where = place("added_tokens"),
              .expected = std::to_string(right_id),
              .got = std::to_string(token.id)});
      }
      largest = std::max(largest, token.id);
      seen.add(token.content, static_cast<int32_t>(resolved.size()));
      resolved.push_back(std::move(token));
    }
    spec_.added = std::move(resolved);
  }

  JsonReader in_;
  TokenizerSpec spec_;
  bool has_model_ = false, affixes_seen_ = false, merges_wait_ = false;
};

}  // namespace

TokenizerSpec read_tokenizer_json(std::string_view json, const std::string& where) {
  return TokenizerReader(json, where).run();
}

}  // namespace doppler
