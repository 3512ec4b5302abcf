// Tokens back to text, one token at a time: what comes out is certain and never changed by what follows.
//
// The steps are those of tokenizer.json, each a stage that hands on parts of tokens as soon as it can. Decoding all at
// once is the same stages fed with every token, so streamed and whole decoding cannot differ.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer_spec.h"

namespace doppler {

class DecoderStage;

class DecoderPipeline {
 public:
  // `steps` must outlive the pipeline. Without steps, tokens are joined by spaces.
  explicit DecoderPipeline(const std::optional<std::vector<DecoderStep>>& steps);
  ~DecoderPipeline();
  DecoderPipeline(DecoderPipeline&&) noexcept;
  DecoderPipeline& operator=(DecoderPipeline&&) noexcept;

  void push(std::string_view token);
  void finish();  // no more tokens

  // The text that became certain since the last call: whole characters, valid UTF-8.
  std::string take();

 private:
  std::unique_ptr<std::string> text_;
  std::vector<std::unique_ptr<DecoderStage>> stages_;  // the last appends to text_
};

// The bytes that the steps make of one token in the midst of others. Fails where that depends on the others.
std::string bytes_of_token(const std::optional<std::vector<DecoderStep>>& steps, std::string_view token);

}  // namespace doppler
