#include "tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace doppler {

// A stage is told where tokens begin and end; between come parts of the token, whole characters each. A token that
// never ends (after Fuse there is only one) ends at finish().
class DecoderStage {
 public:
  virtual ~DecoderStage() = default;
  virtual void begin() { next->begin(); }
  virtual void part(std::string_view text) { next->part(text); }
  virtual void end() { next->end(); }
  virtual void finish() { next->finish(); }

  DecoderStage* next = nullptr;

 protected:
  void whole(std::string_view token) {
    next->begin();
    next->part(token);
    next->end();
  }
};

namespace {

class Output : public DecoderStage {
 public:
  explicit Output(std::string& text) : text_(text) {}
  void begin() override {}
  void part(std::string_view text) override { text_.append(text); }
  void end() override {}
  void finish() override {}

 private:
  std::string& text_;
};

class JoinWithSpaces : public DecoderStage {
 public:
  void begin() override {
    next->begin();
    if (std::exchange(any_, true)) next->part(" ");
  }

 private:
  bool any_ = false;
};

class ReplaceLiteral : public DecoderStage {
 public:
  explicit ReplaceLiteral(const DecoderStep& step) : pattern_(*step.pattern.literal()), content_(step.content) {}
  void part(std::string_view text) override {
    held_.append(text);
    size_t done = 0;
    for (size_t at; (at = held_.find(pattern_, done)) != std::string::npos; done = at + pattern_.size()) {
      next->part(std::string_view(held_).substr(done, at - done));
      next->part(content_);
    }
    // Keep the longest end that may be the pattern's beginning.
    size_t keep = std::min(held_.size() - done, pattern_.size() - 1);
    while (keep > 0 && !pattern_.starts_with(std::string_view(held_).substr(held_.size() - keep))) --keep;
    next->part(std::string_view(held_).substr(done, held_.size() - keep - done));
    held_.erase(0, held_.size() - keep);
  }
  void end() override {
    next->part(held_);
    held_.clear();
    next->end();
  }

 private:
  const std::string &pattern_, &content_;
  std::string held_;
};

class ReplaceRegex : public DecoderStage {
 public:
  explicit ReplaceRegex(const DecoderStep& step) : step_(step) {}
  void part(std::string_view text) override { token_.append(text); }
  void end() override {
    const std::string_view token = token_;
    size_t done = 0;
    step_.pattern.each_match(token, [&](Span match) {
      next->part(token.substr(done, match.begin - done));
      next->part(step_.content);
      done = match.end;
    });
    next->part(token.substr(done));
    token_.clear();
    next->end();
  }

 private:
  const DecoderStep& step_;
  std::string token_;
};

// The byte of a token <0xNN>, or -1.
int byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return -1;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') return (c | 0x20) - 'a' + 10;
    return -1;
  };
  const int low = digit(token[4]);
  const int high = token[3] == '+' ? 0 : digit(token[3]);  // a sign counts as a number's part there
  return low < 0 || high < 0 ? -1 : high * 16 + low;
}

// The bytes of a byte-level token; one that is not of that alphabet stands for itself.
std::string byte_level(std::string_view token) {
  std::string bytes;
  uint32_t length = 0;
  for (size_t at = 0; at < token.size(); at += length) {
    const int byte = byte_of_character(read_valid_utf8(token, at, length));
    if (byte < 0) return std::string(token);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// Runs of <0xNN> tokens become text if the whole run is UTF-8, and otherwise one U+FFFD for every byte of it: nothing
// of a run is certain before it has ended.
class ByteFallback : public DecoderStage {
 public:
  void begin() override { passing_ = false; }
  void part(std::string_view text) override {
    if (!passing_) {
      token_.append(text);
      if (token_.size() <= 6) return;
      start_passing();
    } else {
      next->part(text);
    }
  }
  void end() override {
    if (!passing_) {
      const int byte = byte_of(token_);
      if (byte >= 0) {
        run_ += static_cast<char>(byte);
        token_.clear();
        return;
      }
      start_passing();
    }
    next->end();
  }
  void finish() override {
    end_run();
    next->finish();
  }

 private:
  void start_passing() {
    end_run();
    passing_ = true;
    next->begin();
    next->part(token_);
    token_.clear();
  }
  void end_run() {
    if (run_.empty()) return;
    if (find_invalid_utf8(run_) == run_.size()) {
      whole(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) whole(kReplacement);
    }
    run_.clear();
  }

  std::string token_, run_;
  bool passing_ = false;
};

class Fuse : public DecoderStage {
 public:
  void begin() override {
    if (!std::exchange(begun_, true)) next->begin();
  }
  void end() override {}
  void finish() override {
    begin();
    next->end();
    next->finish();
  }

 private:
  bool begun_ = false;
};

class Strip : public DecoderStage {
 public:
  explicit Strip(const DecoderStep& step) : step_(step) {}
  void begin() override {
    from_start_ = step_.start;
    held_ = 0;
    next->begin();
  }
  void part(std::string_view text) override {
    const std::string_view character = step_.content;
    while (from_start_ > 0 && text.starts_with(character)) {
      text.remove_prefix(character.size());
      --from_start_;
    }
    if (text.empty()) return;
    from_start_ = 0;
    size_t trailing = 0;  // at most step_.stop of the character at the end may yet have to go
    std::string_view body = text;
    while (trailing < step_.stop && body.ends_with(character)) {
      body.remove_suffix(character.size());
      ++trailing;
    }
    if (body.empty()) {
      held_ += trailing;
      release(held_ > step_.stop ? held_ - step_.stop : 0);
    } else {
      release(held_);
      next->part(body);
      held_ = trailing;
    }
  }

 private:
  void release(size_t count) {
    for (size_t i = 0; i < count; ++i) next->part(step_.content);
    held_ -= count;
  }

  const DecoderStep& step_;
  size_t from_start_ = 0, held_ = 0;
};

class ByteLevel : public DecoderStage {
 public:
  void begin() override {}
  void part(std::string_view text) override { token_.append(text); }
  void end() override {
    const std::string bytes = byte_level(token_);
    token_.clear();
    emit(bytes, false);
  }
  void finish() override {
    emit("", true);
    next->end();
    next->finish();
  }

 private:
  void emit(std::string_view bytes, bool last) {
    if (!std::exchange(begun_, true)) next->begin();
    bytes_.append(bytes);
    const std::string_view all = bytes_;
    size_t at = 0;
    while (at < all.size()) {
      const size_t good = find_invalid_utf8(all.substr(at));
      next->part(all.substr(at, good));
      at += good;
      if (at == all.size()) break;
      const Utf8Unit unit = read_utf8(all, at);
      if (unit.cut && !last) break;
      next->part(kReplacement);
      at += unit.length;
    }
    bytes_.erase(0, at);
  }

  std::string token_, bytes_;
  bool begun_ = false;
};

class Metaspace : public DecoderStage {
 public:
  explicit Metaspace(const DecoderStep& step) : step_(step) {}
  void begin() override {
    first_ = !std::exchange(any_, true);
    next->begin();
  }
  void part(std::string_view text) override {
    size_t done = 0;
    for (size_t at; (at = text.find(step_.content, done)) != std::string_view::npos; done = at + step_.content.size()) {
      next->part(text.substr(done, at - done));
      if (!first_ || !step_.drop_first) next->part(" ");
    }
    next->part(text.substr(done));
  }

 private:
  const DecoderStep& step_;
  bool any_ = false, first_ = false;
};

std::unique_ptr<DecoderStage> make_stage(const DecoderStep& step) {
  switch (step.kind) {
    case DecoderStep::Kind::kReplace:
      if (step.pattern.literal()) return std::make_unique<ReplaceLiteral>(step);
      return std::make_unique<ReplaceRegex>(step);
    case DecoderStep::Kind::kByteFallback: return std::make_unique<ByteFallback>();
    case DecoderStep::Kind::kFuse: return std::make_unique<Fuse>();
    case DecoderStep::Kind::kStrip: return std::make_unique<Strip>(step);
    case DecoderStep::Kind::kByteLevel: return std::make_unique<ByteLevel>();
    case DecoderStep::Kind::kMetaspace: return std::make_unique<Metaspace>(step);
  }
  return nullptr;
}

}  // namespace

std::string bytes_of_token(const std::optional<std::vector<DecoderStep>>& steps, std::string_view token) {
  bool alone = steps.has_value(), fused = false;  // without steps, tokens are joined by spaces
  std::string text(token);
  for (const DecoderStep& step : steps ? *steps : std::vector<DecoderStep>()) {
    switch (step.kind) {
      case DecoderStep::Kind::kReplace: {
        // In a fused text a pattern can lie across tokens, unless it is one character.
        uint32_t length = 0;
        const std::string* literal = step.pattern.literal();
        if (literal) read_valid_utf8(*literal, 0, length);
        if (fused && !(literal && length == literal->size())) {
          alone = false;
          break;
        }
        std::string replaced;
        size_t done = 0;
        step.pattern.each_match(text, [&](Span match) {
          replaced.append(text, done, match.begin - done).append(step.content);
          done = match.end;
        });
        text = replaced.append(text, done);
        break;
      }
      case DecoderStep::Kind::kByteFallback:
        if (const int byte = byte_of(text); byte >= 0) return std::string(1, static_cast<char>(byte));
        break;
      case DecoderStep::Kind::kFuse: fused = true; break;
      case DecoderStep::Kind::kStrip: break;  // off the text's ends, once fused
      case DecoderStep::Kind::kByteLevel:
        text = byte_level(text);
        fused = true;
        break;
      case DecoderStep::Kind::kMetaspace: {
        std::string spaced;
        size_t done = 0;
        for (size_t at; (at = text.find(step.content, done)) != std::string::npos; done = at + step.content.size()) {
          spaced.append(text, done, at - done).push_back(' ');
        }
        text = spaced.append(text, done);
        break;
      }
    }
    if (step.kind == DecoderStep::Kind::kStrip && !fused) alone = false;
  }
  if (!alone) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "with this tokenizer a token's text depends on the tokens around it, so no grammar can hold it",
          .where = "tokenizer.json: decoder"});
  }
  return text;
}

DecoderPipeline::DecoderPipeline(const std::optional<std::vector<DecoderStep>>& steps)
    : text_(std::make_unique<std::string>()) {
  if (!steps) stages_.push_back(std::make_unique<JoinWithSpaces>());
  if (steps) {
    for (const DecoderStep& step : *steps) stages_.push_back(make_stage(step));
  }
  stages_.push_back(std::make_unique<Output>(*text_));
  for (size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->next = stages_[i + 1].get();
}

DecoderPipeline::~DecoderPipeline() = default;
DecoderPipeline::DecoderPipeline(DecoderPipeline&&) noexcept = default;
DecoderPipeline& DecoderPipeline::operator=(DecoderPipeline&&) noexcept = default;

void DecoderPipeline::push(std::string_view token) {
  stages_.front()->begin();
  stages_.front()->part(token);
  stages_.front()->end();
}

void DecoderPipeline::finish() { stages_.front()->finish(); }

std::string DecoderPipeline::take() { return std::exchange(*text_, {}); }

}  // namespace doppler
