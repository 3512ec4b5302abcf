// Strings to token ids and back, exactly as Hugging Face's tokenizers does it.
//
//   Tokenizer tokenizer = Tokenizer::load("models/tiny");
//   std::vector<int32_t> ids = tokenizer.encode("Once upon a time", /*add_special=*/true);
//   std::string text = tokenizer.decode(ids, /*skip_special=*/true);
//
// The way of a text: added tokens are found in it; what lies between is normalised, cut into pieces, and each piece
// encoded by BPE; special tokens are put around the whole. A Tokenizer is cheap to copy and may be used by several
// threads at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/decoder.h"
#include "tokenizer/tokenizer_spec.h"

namespace doppler {

class Tokenizer {
 public:
  // A folder with tokenizer.json and, if it is there, tokenizer_config.json, which names the tokens below.
  static Tokenizer load(const std::filesystem::path& folder);
  static Tokenizer from_json(std::string_view json, const std::string& where);
  // The same two files as texts.
  static Tokenizer from_files(std::string_view json, std::string_view config, const std::string& where);
  Tokenizer(TokenizerSpec spec, const std::string& where);

  // Any bytes are welcome: each maximal sequence that is not UTF-8 counts as U+FFFD. A character that the vocabulary
  // cannot express at all (no token, no bytes, no unknown token) leaves no trace, as with Hugging Face.
  // add_special: with the special tokens that the model expects around a text.
  // cancelled: asked now and then; once it says true, encoding fails.
  std::vector<int32_t> encode(std::string_view text, bool add_special, std::function<bool()> cancelled = {}) const;

  // Valid UTF-8, always. Ids that no token has leave no trace; skip_special leaves out special tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  // The token as the vocabulary writes it ("▁time", "Ġtime"); empty for an id that no token has.
  std::string_view piece(int32_t id) const;
  int32_t token_id(std::string_view token) const;  // -1 if there is none; a token as piece() gives it
  // The bytes that a token adds to a text, not always whole characters; empty for an id that no token has. What a
  // decoder strips off the beginning of a text is there. Fails where a token's text depends on its neighbours.
  std::string token_bytes(int32_t id) const;
  bool is_special(int32_t id) const;
  bool has(int32_t id) const;
  int32_t vocab_size() const;  // one more than the largest id

  // Named by tokenizer_config.json; -1 when it does not name them or the tokenizer has no such token.
  struct NamedTokens {
    int32_t bos = -1, eos = -1, pad = -1, unk = -1;
  };
  const NamedTokens& named() const { return named_; }

 private:
  friend class StreamDecoder;
  void read_named(std::string_view config, const std::string& where);
  struct Parts;
  std::shared_ptr<const Parts> parts_;
  NamedTokens named_;
};

// Decodes ids as they come. The texts of all push() calls and of finish() together are what decode() makes of all ids.
class StreamDecoder {
 public:
  StreamDecoder(Tokenizer tokenizer, bool skip_special);

  // The text that is certain now: whole characters only. A byte-level token that ends within a character waits for the
  // rest of it; a run of <0xNN> tokens waits for its end, since one wrong byte spoils the run.
  std::string push(int32_t id);
  // What was still waiting. The decoder is then used up.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  DecoderPipeline pipeline_;
};

}  // namespace doppler
