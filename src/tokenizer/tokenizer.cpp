#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/files.h"
#include "base/json_reader.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/pipeline.h"

namespace doppler {
namespace {

// The token's text out of a value that is a string, null, or an object with "content".
std::string token_name(JsonReader& in) {
  if (in.kind() == '"') return std::string(in.string());
  std::string name;
  if (in.kind() != '{') {
    in.raw();
    return name;
  }
  std::string_view key;
  in.begin_object();
  while (in.next_key(key)) {
    if (key == "content") {
      name = in.string();
    } else {
      in.raw();
    }
  }
  return name;
}

}  // namespace

struct Tokenizer::Parts {
  Bpe bpe;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<TemplatePiece> post_processor;
  std::optional<std::vector<DecoderStep>> decoder;
  Vocabulary added;           // added tokens, those of the vocabulary too
  std::vector<bool> special;  // by id
  // Tokens that are looked for in normalised text also come out of it: what the decoder is given for them, where that
  // is not their content.
  std::unordered_map<int32_t, std::string> normalized_forms;
  AddedTokenFinder in_text, in_normalized;

  std::string_view form(int32_t id) const {
    const auto it = normalized_forms.find(id);
    return it != normalized_forms.end() ? it->second : added.has(id) ? added.token(id) : bpe.vocabulary().token(id);
  }
};

Tokenizer::Tokenizer(TokenizerSpec spec, const std::string& where) {
  auto parts = std::make_shared<Parts>();
  parts->bpe = Bpe(std::move(spec.vocabulary), spec.merges, std::move(spec.bpe), where);
  parts->normalizer = std::move(spec.normalizer);
  parts->pre_tokenizer = std::move(spec.pre_tokenizer);
  parts->post_processor = std::move(spec.post_processor);
  parts->decoder = std::move(spec.decoder);
  size_t added_bytes = 0;
  for (const AddedToken& token : spec.added) added_bytes += token.content.size();
  TextEffort effort(added_bytes);
  for (const bool special : {true, false}) {  // of two tokens that look alike the special one counts
    for (const AddedToken& token : spec.added) {
      if (token.special != special) continue;
      if (token.id < 0 || token.id >= Vocabulary::kIdLimit ||
          parts->added.add(token.content, token.id) != Vocabulary::Added::kYes) {
        fail({.code = ErrorCode::kFormat,
              .what = fmt::format("the added token '{}' or its id is there twice or out of range", token.content),
              .where = where,
              .got = std::to_string(token.id)});
      }
      if (special) {
        if (static_cast<size_t>(token.id) >= parts->special.size()) parts->special.resize(token.id + 1u);
        parts->special[static_cast<size_t>(token.id)] = true;
      }
      if (token.normalized) {
        std::string form = run_normalizer(parts->normalizer, token.content, effort);
        parts->in_normalized.add(form, token);
        if (form != token.content) parts->normalized_forms.emplace(token.id, std::move(form));
      } else {
        parts->in_text.add(token.content, token);
      }
    }
  }
  parts->in_text.build();
  parts->in_normalized.build();
  for (const TemplatePiece& piece : parts->post_processor) {
    for (const int32_t id : piece.ids) {
      if (!parts->added.has(id) && !parts->bpe.vocabulary().has(id)) {
        fail({.code = ErrorCode::kFormat,
              .what = "the post-processor adds a token that is not there",
              .where = where,
              .got = std::to_string(id)});
      }
    }
  }
  parts_ = std::move(parts);
}

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& where) {
  return Tokenizer(read_tokenizer_json(json, where), where);
}

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.json";
  if (!file_exists(file)) {
    fail({.code = ErrorCode::kFile,
          .what = "this folder has no tokenizer.json",
          .where = folder.string(),
          .todo = "Give the folder of a model as it was downloaded or converted"});
  }
  Tokenizer tokenizer = [&] {
    const MappedFile mapped(file);
    const auto bytes = mapped.bytes();
    return from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
  }();
  const std::filesystem::path config = folder / "tokenizer_config.json";
  if (!file_exists(config)) return tokenizer;
  tokenizer.read_named(read_text_file(config), config.string());
  return tokenizer;
}

Tokenizer Tokenizer::from_files(std::string_view json, std::string_view config, const std::string& where) {
  Tokenizer tokenizer = from_json(json, where);
  tokenizer.read_named(config, where);
  return tokenizer;
}

void Tokenizer::read_named(std::string_view config, const std::string& where) {
  JsonReader in(config, where);
  std::string_view key;
  in.begin_object();
  while (in.next_key(key)) {
    int32_t* id = key == "bos_token"   ? &named_.bos
                  : key == "eos_token" ? &named_.eos
                  : key == "pad_token" ? &named_.pad
                  : key == "unk_token" ? &named_.unk
                                       : nullptr;
    if (id) {
      *id = token_id(token_name(in));
    } else {
      in.raw();
    }
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special, std::function<bool()> cancelled) const {
  check_length(text.size());
  std::string repaired;
  if (find_invalid_utf8(text) != text.size()) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  const Parts& p = *parts_;
  TextEffort effort(text.size(), std::move(cancelled));
  BpeScratch scratch;
  scratch.effort = &effort;
  std::vector<int32_t> ids;
  const auto encode_text = [&](std::string part, bool at_start) {
    const Pieces pieces = run_pre_tokenizer(p.pre_tokenizer, std::move(part), at_start, effort);
    size_t begin = 0;
    for (const size_t end : pieces.ends) {
      effort.tick();
      p.bpe.encode(std::string_view(pieces.text).substr(begin, end - begin), ids, scratch);
      begin = end;
    }
  };
  p.in_text.split(text, [&](AddedTokenFinder::Part outer) {
    if (outer.id >= 0) {
      ids.push_back(outer.id);
      return;
    }
    const std::string normal = run_normalizer(p.normalizer, text.substr(outer.begin, outer.end - outer.begin), effort);
    p.in_normalized.split(normal, [&](AddedTokenFinder::Part inner) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
      } else {
        encode_text(normal.substr(inner.begin, inner.end - inner.begin), outer.begin == 0 && inner.begin == 0);
      }
    });
  });
  if (!add_special || p.post_processor.empty()) return ids;
  std::vector<int32_t> framed;
  for (const TemplatePiece& piece : p.post_processor) {
    const std::vector<int32_t>& from = piece.is_text ? ids : piece.ids;
    framed.insert(framed.end(), from.begin(), from.end());
  }
  return framed;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  DecoderPipeline pipeline(parts_->decoder);
  for (const int32_t id : ids) {
    if (has(id) && !(skip_special && is_special(id))) pipeline.push(parts_->form(id));
  }
  pipeline.finish();
  return pipeline.take();
}

std::string_view Tokenizer::piece(int32_t id) const {
  return parts_->added.has(id) ? parts_->added.token(id) : parts_->bpe.vocabulary().token(id);
}

int32_t Tokenizer::token_id(std::string_view token) const {
  const int32_t added = parts_->added.find(token);
  return added >= 0 ? added : parts_->bpe.vocabulary().find(token);
}

std::string Tokenizer::token_bytes(int32_t id) const {
  return has(id) ? bytes_of_token(parts_->decoder, parts_->form(id)) : "";
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < parts_->special.size() && parts_->special[static_cast<size_t>(id)];
}

bool Tokenizer::has(int32_t id) const { return parts_->added.has(id) || parts_->bpe.vocabulary().has(id); }

int32_t Tokenizer::vocab_size() const { return std::max(parts_->added.id_end(), parts_->bpe.vocabulary().id_end()); }

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), pipeline_(tokenizer_.parts_->decoder) {}

std::string StreamDecoder::push(int32_t id) {
  if (tokenizer_.has(id) && !(skip_special_ && tokenizer_.is_special(id))) pipeline_.push(tokenizer_.parts_->form(id));
  return pipeline_.take();
}

std::string StreamDecoder::finish() {
  pipeline_.finish();
  return pipeline_.take();
}

}  // namespace doppler
