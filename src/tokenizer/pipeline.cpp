#include "tokenizer/pipeline.h"

#include <algorithm>
#include <numeric>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace doppler {
namespace {

bool ends_with_word(std::string_view text) {
  uint32_t length = 0;
  return !text.empty() && is_word(read_last_utf8(text, length));
}

bool starts_with_word(std::string_view text) {
  uint32_t length = 0;
  return !text.empty() && is_word(read_valid_utf8(text, 0, length));
}

size_t without_trailing_space(std::string_view text) {
  uint32_t length = 0;
  while (!text.empty() && is_whitespace(read_last_utf8(text, length))) text.remove_suffix(length);
  return text.size();
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  uint32_t length = 0;
  while (at < text.size() && is_whitespace(read_valid_utf8(text, at, length))) at += length;
  return at;
}

}  // namespace

void AddedTokenFinder::add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  tokens_.push_back({std::string(pattern.rbegin(), pattern.rend()), pattern.size(), token.id, token.single_word,
                     token.lstrip, token.rstrip});
  longest_ = std::max(longest_, pattern.size());
}

void AddedTokenFinder::build() {
  std::vector<int32_t> sorted(tokens_.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  const auto backwards = [&](size_t i) -> const std::string& {
    return tokens_[static_cast<size_t>(sorted[i])].backwards;
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
    return tokens_[static_cast<size_t>(a)].backwards < tokens_[static_cast<size_t>(b)].backwards;
  });
  // A node is the tokens of `sorted` that begin with its string, and the string's length.
  struct Range {
    size_t begin, end, length;
  };
  std::vector<Range> ranges = {{0, sorted.size(), 0}};
  nodes_.assign(1, {});
  for (size_t i = 0; i < nodes_.size(); ++i) {
    auto [begin, end, length] = ranges[i];
    const uint32_t shorter = nodes_[i].shorter;
    nodes_[i].token = nodes_[shorter].token;
    if (begin < end && backwards(begin).size() == length) nodes_[i].token = sorted[begin];
    while (begin < end && backwards(begin).size() == length) ++begin;
    nodes_[i].children = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = backwards(begin)[length];
      const size_t first = begin;
      while (begin < end && backwards(begin)[length] == byte) ++begin;
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({0, i == 0 ? 0 : step(shorter, byte), -1, static_cast<unsigned char>(byte)});
      ranges.push_back({first, begin, length + 1});
      if (i == 0) roots_[static_cast<unsigned char>(byte)] = child;
    }
  }
  nodes_.push_back({static_cast<uint32_t>(nodes_.size())});
  for (Token& token : tokens_) token.backwards = {};
}

uint32_t AddedTokenFinder::step(uint32_t node, char signed_byte) const {
  const auto byte = static_cast<unsigned char>(signed_byte);
  for (; node != 0; node = nodes_[node].shorter) {
    const auto begin = nodes_.begin() + nodes_[node].children, end = nodes_.begin() + nodes_[node + 1].children;
    const auto child = std::lower_bound(begin, end, byte, [](const Node& n, unsigned char b) { return n.byte < b; });
    if (child != end && child->byte == byte) return static_cast<uint32_t>(child - nodes_.begin());
  }
  return roots_[byte];
}

void AddedTokenFinder::split(std::string_view text, const std::function<void(Part)>& part) const {
  size_t at = 0;         // matches before this overlap one that came first
  size_t done = 0;       // text before this belongs to a part already
  size_t space_end = 0;  // where the white space that was looked at last ends
  struct Match {
    size_t begin;
    const Token* token;
  };
  std::vector<Match> matches;  // of one block, the last first
  const size_t block = std::max<size_t>(longest_, 65536);
  for (size_t from = 0; from < text.size() && !tokens_.empty(); from += block) {
    const size_t to = std::min(from + block, text.size());
    uint32_t node = 0;
    matches.clear();
    for (size_t i = std::min(to + longest_ - 1, text.size()); i-- > from;) {
      node = step(node, text[i]);
      if (const int32_t token = nodes_[node].token; token >= 0 && i < to) {
        matches.push_back({i, &tokens_[static_cast<size_t>(token)]});
      }
    }
    for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
      size_t begin = match->begin;
      if (begin < at) continue;
      const Token& token = *match->token;
      size_t end = at = begin + token.length;  // a match that is refused below is passed over all the same
      if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
      if (token.lstrip && begin > done) begin = done + without_trailing_space(text.substr(done, begin - done));
      if (token.lstrip) begin = std::max(begin, done);
      if (token.rstrip) {
        if (end >= space_end) space_end = end + leading_space(text.substr(end));
        end = space_end;
      }
      if (done < begin) part({done, begin, -1});
      if (begin < end) part({begin, end, token.id});  // nothing is left of it where another token took its space
      done = end;
    }
  }
  if (done != text.size()) part({done, text.size(), -1});
}

namespace {

std::string replace(const NormalizerStep& step, std::string_view text, TextEffort& effort) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  step.pattern.each_match(text, effort, [&](Span match) {
    out.append(text.substr(done, match.begin - done));
    out.append(step.content);
    check_length(out.size());
    done = match.end;
  });
  out.append(text.substr(done));
  return out;
}

std::string_view strip(std::string_view text, bool left, bool right) {
  uint32_t length = 0;
  while (left && !text.empty() && is_whitespace(read_valid_utf8(text, 0, length))) text.remove_prefix(length);
  while (right && !text.empty() && is_whitespace(read_last_utf8(text, length))) text.remove_suffix(length);
  return text;
}

}  // namespace

std::string run_normalizer(const std::vector<NormalizerStep>& steps, std::string_view input, TextEffort& effort) {
  std::string text(input);
  for (const NormalizerStep& step : steps) {
    check_length(text.size());
    switch (step.kind) {
      case NormalizerStep::Kind::kReplace: text = replace(step, text, effort); break;
      case NormalizerStep::Kind::kPrepend:
        if (!text.empty()) text.insert(0, step.content);
        break;
      case NormalizerStep::Kind::kNfc: text = normalize(text, NormalForm::kNfc); break;
      case NormalizerStep::Kind::kNfd: text = normalize(text, NormalForm::kNfd); break;
      case NormalizerStep::Kind::kNfkc: text = normalize(text, NormalForm::kNfkc); break;
      case NormalizerStep::Kind::kNfkd: text = normalize(text, NormalForm::kNfkd); break;
      case NormalizerStep::Kind::kLowercase: text = lowercase(text); break;
      case NormalizerStep::Kind::kStrip: text = std::string(strip(text, step.strip_left, step.strip_right)); break;
    }
  }
  return text;
}

namespace {

struct Segment {
  size_t begin = 0, end = 0;
  bool delimiter = false;
};

// Matches and what lies between them, covering the text.
std::vector<Segment> segments_of(const TextPattern& pattern, std::string_view text, bool invert, TextEffort& effort) {
  std::vector<Segment> out;
  size_t done = 0;
  pattern.each_match(text, effort, [&](Span match) {
    if (match.begin != done) out.push_back({done, match.begin, invert});
    out.push_back({match.begin, match.end, !invert});
    done = match.end;
  });
  if (done != text.size()) out.push_back({done, text.size(), invert});
  return out;
}

std::vector<Segment> digit_segments(std::string_view text) {
  std::vector<Segment> out;
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

// Joins segments as the behaviour says. `delimiter` means "leave out" afterwards.
std::vector<Segment> join(std::vector<Segment> segments, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kRemoved) return segments;
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(segments.begin(), segments.end());
  std::vector<Segment> out;
  out.reserve(segments.size());
  bool previous = false;
  for (const Segment& segment : segments) {
    const bool joins = behavior == SplitBehavior::kIsolated     ? false
                       : behavior == SplitBehavior::kContiguous ? segment.delimiter == previous
                                                                : segment.delimiter && !previous;
    previous = segment.delimiter;
    if (joins && !out.empty()) {
      (backwards ? out.back().begin : out.back().end) = backwards ? segment.begin : segment.end;
    } else {
      out.push_back({segment.begin, segment.end, false});
    }
  }
  if (backwards) std::reverse(out.begin(), out.end());
  return out;
}

void append(Pieces& pieces, std::string_view text, const std::vector<Segment>& segments) {
  for (const Segment& segment : segments) {
    if (segment.delimiter || segment.begin == segment.end) continue;
    pieces.text.append(text.substr(segment.begin, segment.end - segment.begin));
    pieces.ends.push_back(pieces.text.size());
  }
}

std::vector<Segment> whole(std::string_view text) { return {{0, text.size(), false}}; }

void split_bytes(const PreTokenizerStep& step, std::string_view piece, TextEffort& effort, Pieces& out) {
  std::string prefixed;
  if (step.add_prefix_space && !piece.starts_with(' ')) {
    prefixed = " " + std::string(piece);
    piece = prefixed;
  }
  const auto segments = step.pattern ? segments_of(*step.pattern, piece, false, effort) : whole(piece);
  const auto& characters = byte_characters();
  for (const Segment& segment : segments) {
    if (segment.begin == segment.end) continue;
    for (size_t i = segment.begin; i < segment.end; ++i) {
      out.text.append(characters[static_cast<unsigned char>(piece[i])]);
    }
    out.ends.push_back(out.text.size());
  }
}

void split_metaspace(const PreTokenizerStep& step, std::string_view piece, bool first, TextEffort& effort,
                     Pieces& out) {
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
  const auto segments = step.split ? join(segments_of(TextPattern::literal(step.replacement), text, false, effort),
                                          SplitBehavior::kMergedWithNext)
                                   : whole(text);
  append(out, text, segments);
}

}  // namespace

Pieces run_pre_tokenizer(const std::vector<PreTokenizerStep>& steps, std::string text, bool at_start,
                         TextEffort& effort) {
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
          append(out, piece, join(segments_of(*step.pattern, piece, step.invert, effort), step.behavior));
          break;
        case PreTokenizerStep::Kind::kByteLevel: split_bytes(step, piece, effort, out); break;
        case PreTokenizerStep::Kind::kMetaspace:
          split_metaspace(step, piece, at_start && begin == 0, effort, out);
          break;
        case PreTokenizerStep::Kind::kDigits:
          append(out, piece,
                 join(digit_segments(piece),
                      step.individual_digits ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
          break;
      }
      check_length(out.text.size());
      effort.tick();
      begin = end;
    }
    pieces = std::move(out);
  }
  return pieces;
}

}  // namespace doppler
