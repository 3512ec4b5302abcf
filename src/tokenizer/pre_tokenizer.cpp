#include "tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/text_limit.h"
#include "tokenizer/unicode.h"

namespace doppler {
namespace {

struct Stretch {
  size_t begin = 0, end = 0;
  bool delimiter = false;
};

// Matches and what lies between them, covering the text.
std::vector<Stretch> stretches_of(const TextPattern& pattern, std::string_view text, bool invert) {
  std::vector<Stretch> out;
  size_t done = 0;
  pattern.each_match(text, [&](Span match) {
    if (match.begin != done) out.push_back({done, match.begin, invert});
    out.push_back({match.begin, match.end, !invert});
    done = match.end;
  });
  if (done != text.size()) out.push_back({done, text.size(), invert});
  return out;
}

std::vector<Stretch> digit_stretches(std::string_view text) {
  std::vector<Stretch> out;
  size_t done = 0;
  uint32_t length = 0;
  for (size_t at = 0; at < text.size(); at += length) {
    if (!is_numeric(read_valid_utf8(text, at, length))) continue;
    if (done < at) out.push_back({done, at, false});
    out.push_back({at, at + length, true});
    done = at + length;
  }
  if (done < text.size()) out.push_back({done, text.size(), false});
  return out;
}

// Joins stretches as the behaviour says. `delimiter` means "leave out" afterwards.
std::vector<Stretch> join(std::vector<Stretch> stretches, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kRemoved) return stretches;
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(stretches.begin(), stretches.end());
  std::vector<Stretch> out;
  out.reserve(stretches.size());
  bool previous = false;
  for (const Stretch& stretch : stretches) {
    const bool joins = behavior == SplitBehavior::kIsolated     ? false
                       : behavior == SplitBehavior::kContiguous ? stretch.delimiter == previous
                                                                : stretch.delimiter && !previous;
    previous = stretch.delimiter;
    if (joins && !out.empty()) {
      (backwards ? out.back().begin : out.back().end) = backwards ? stretch.begin : stretch.end;
    } else {
      out.push_back({stretch.begin, stretch.end, false});
    }
  }
  if (backwards) std::reverse(out.begin(), out.end());
  return out;
}

void append(Pieces& pieces, std::string_view text, const std::vector<Stretch>& stretches) {
  for (const Stretch& stretch : stretches) {
    if (stretch.delimiter || stretch.begin == stretch.end) continue;
    pieces.text.append(text.substr(stretch.begin, stretch.end - stretch.begin));
    pieces.ends.push_back(pieces.text.size());
  }
}

std::vector<Stretch> whole(std::string_view text) { return {{0, text.size(), false}}; }

void split_bytes(const PreTokenizerStep& step, std::string_view piece, Pieces& out) {
  std::string prefixed;
  if (step.add_prefix_space && !piece.starts_with(' ')) {
    prefixed = " " + std::string(piece);
    piece = prefixed;
  }
  const auto stretches = step.pattern ? stretches_of(*step.pattern, piece, false) : whole(piece);
  const auto& characters = byte_characters();
  for (const Stretch& stretch : stretches) {
    if (stretch.begin == stretch.end) continue;
    for (size_t i = stretch.begin; i < stretch.end; ++i) {
      out.text.append(characters[static_cast<unsigned char>(piece[i])]);
    }
    out.ends.push_back(out.text.size());
  }
}

void split_metaspace(const PreTokenizerStep& step, std::string_view piece, bool first, Pieces& out) {
  std::string text;
  text.reserve(piece.size() + step.replacement.size());
  for (const char c : piece) {
    if (c == ' ') {
      text += step.replacement;
    } else {
      text += c;
    }
  }
  const bool prepend = step.prepend == PrependScheme::kAlways || (step.prepend == PrependScheme::kFirst && first);
  if (prepend && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  const auto stretches = step.split ? join(stretches_of(TextPattern::literal(step.replacement), text, false),
                                           SplitBehavior::kMergedWithNext)
                                    : whole(text);
  append(out, text, stretches);
}

}  // namespace

Pieces run_pre_tokenizer(const std::vector<PreTokenizerStep>& steps, std::string text, bool at_start) {
  Pieces pieces;
  if (!text.empty()) pieces.ends.push_back(text.size());
  pieces.text = std::move(text);
  for (const PreTokenizerStep& step : steps) {
    Pieces out;
    out.text.reserve(pieces.text.size());
    out.ends.reserve(pieces.ends.size());
    size_t begin = 0;
    for (const size_t end : pieces.ends) {
      const std::string_view piece = std::string_view(pieces.text).substr(begin, end - begin);
      switch (step.kind) {
        case PreTokenizerStep::Kind::kSplit:
          append(out, piece, join(stretches_of(*step.pattern, piece, step.invert), step.behavior));
          break;
        case PreTokenizerStep::Kind::kByteLevel: split_bytes(step, piece, out); break;
        case PreTokenizerStep::Kind::kMetaspace: split_metaspace(step, piece, at_start && begin == 0, out); break;
        case PreTokenizerStep::Kind::kDigits:
          append(out, piece,
                 join(digit_stretches(piece),
                      step.individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
          break;
      }
      check_length(out.text.size());
      begin = end;
    }
    pieces = std::move(out);
  }
  return pieces;
}

}  // namespace doppler
