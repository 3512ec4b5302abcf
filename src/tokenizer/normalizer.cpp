#include "tokenizer/normalizer.h"

#include "base/utf8.h"
#include "tokenizer/text_limit.h"
#include "tokenizer/unicode.h"

namespace doppler {
namespace {

std::string replace(const NormalizerStep& step, std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t done = 0;
  step.pattern.each_match(text, [&](Span match) {
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

std::string run_normalizer(const std::vector<NormalizerStep>& steps, std::string_view input) {
  std::string text(input);
  for (const NormalizerStep& step : steps) {
    check_length(text.size());
    switch (step.kind) {
      case NormalizerStep::Kind::kReplace: text = replace(step, text); break;
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

}  // namespace doppler
