// A tokenizer as data: what a tokenizer.json says, or another format's reader puts together. Sequences of steps are
// flat lists in the order in which they act.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenizer/bpe.h"
#include "tokenizer/regex.h"

namespace doppler {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;  // only where no letter or digit touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for after normalisation, in its normalised form
  bool special = false;      // decode leaves it out when asked to
};

struct NormalizerStep {
  enum class Kind { kReplace, kPrepend, kNfc, kNfd, kNfkc, kNfkd, kLowercase, kStrip } kind = Kind::kReplace;
  TextPattern pattern;                           // kReplace
  std::string content;                           // kReplace, kPrepend
  bool strip_left = false, strip_right = false;  // kStrip
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kNever, kFirst, kAlways };

struct PreTokenizerStep {
  enum class Kind { kSplit, kByteLevel, kMetaspace, kDigits } kind = Kind::kSplit;
  std::optional<TextPattern> pattern;  // kSplit; kByteLevel, if it splits
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;            // kSplit: what does not match is the delimiter
  bool add_prefix_space = false;  // kByteLevel
  std::string replacement;        // kMetaspace: the character for a space
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;               // kMetaspace
  bool individual_digits = false;  // kDigits
};

// One piece of the template that puts special tokens around a text.
struct TemplatePiece {
  bool is_text = false;      // the text's own ids, or
  std::vector<int32_t> ids;  // these
};

struct DecoderStep {
  enum class Kind { kReplace, kByteFallback, kFuse, kStrip, kByteLevel, kMetaspace } kind = Kind::kFuse;
  TextPattern pattern;         // kReplace
  std::string content;         // kReplace; kStrip: one character; kMetaspace: the character for a space
  size_t start = 0, stop = 0;  // kStrip: at most so many off the ends of each token
  bool drop_first = false;     // kMetaspace: the first token's spaces were put there by the encoder
};

struct TokenizerSpec {
  Vocabulary vocabulary;
  std::vector<Merge> merges;  // in the order of their ranks
  BpeOptions bpe;
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<TemplatePiece> post_processor;        // empty: just the text
  std::optional<std::vector<DecoderStep>> decoder;  // without one, tokens are joined by spaces
};

// Reads a tokenizer.json. `where` names it in errors. What it asks for and we do not know is an error that names it.
TokenizerSpec read_tokenizer_json(std::string_view json, const std::string& where);

// The small parts of tokenizer.json, each a step or a sequence of steps. `where` names the place in errors.
std::vector<NormalizerStep> read_normalizer(const Json& json, const std::string& where);
std::vector<PreTokenizerStep> read_pre_tokenizer(const Json& json, const std::string& where);
std::vector<TemplatePiece> read_post_processor(const Json& json, const std::string& where);
std::optional<std::vector<DecoderStep>> read_decoder(const Json& json, const std::string& where);

}  // namespace doppler
