// The tokenizer and chat template that a GGUF file carries in its metadata, as the files of a Hugging Face folder: one
// way to read a tokenizer serves both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "format/gguf.h"

namespace doppler {

// tokenizer.ggml.token_type.
namespace gguf_token {
enum Type : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
}

struct TokenizerFiles {
  std::string tokenizer_json;         // tokenizer.json
  std::string tokenizer_config_json;  // tokenizer_config.json: special tokens, chat template
  size_t tokens = 0;
  bool add_bos = false;
};

// From tokenizer.ggml.*: "llama" (SentencePiece: pieces with scores) and "gpt2" (byte-level BPE with merges). None if
// the file carries no tokenizer, or one without merges and scores. Fails with a sentence on what it cannot read.
std::optional<TokenizerFiles> tokenizer_from_gguf(const GgufFile& file, std::vector<std::string>& notes);

}  // namespace doppler
