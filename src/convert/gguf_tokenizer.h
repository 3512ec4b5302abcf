// The tokenizer and chat template that a GGUF file carries in its metadata, as the files of a Hugging Face folder: one
// way to read a tokenizer serves both.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "format/gguf.h"
#include "format/gguf_writer.h"
#include "model/model_config.h"

namespace doppler {

struct TokenizerFiles {
  std::string tokenizer_json;         // tokenizer.json
  std::string tokenizer_config_json;  // tokenizer_config.json: special tokens, chat template
  size_t tokens = 0;
  bool add_bos = false;
};

// From tokenizer.ggml.*: "llama" (SentencePiece: pieces with scores) and "gpt2" (byte-level BPE with merges). None if
// the file carries no tokenizer, or one without merges and scores. Fails with a sentence on what it cannot read.
std::optional<TokenizerFiles> tokenizer_from_gguf(const GgufFile& file, std::vector<std::string>& notes);

// The other way: adds tokenizer.ggml.* and the chat template from the files in `folder` to a header. Without a
// tokenizer.json there, the tokens are numbered placeholders, which `notes` says.
void tokenizer_to_gguf(const std::filesystem::path& folder, const ModelConfig& config, GgufHeader& header,
                       std::vector<std::string>& notes);

}  // namespace doppler
