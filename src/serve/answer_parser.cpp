#include "serve/answer_parser.h"

#include <algorithm>

#include "base/error.h"

namespace doppler::serve {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// Each row: a mark that a template writes, and the format of answers to it. The first that occurs is taken.
struct KnownFormat {
  std::string_view mark;
  AnswerFormat format;
};
const std::vector<KnownFormat>& known_formats() {
  static const std::vector<KnownFormat> formats = {
      {"<|channel|>", {.channels = true}},
      {"<tool_call>", {.call_open = "<tool_call>", .call_close = "</tool_call>"}},
      {"<|python_tag|>", {.bare_calls = true, .ignored = {"<|python_tag|>"}}},
      {"\"parameters\": dictionary of argument name", {.bare_calls = true}},
  };
  return formats;
}

const std::vector<std::string> kChannelEnds = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
constexpr std::string_view kFunction = "to=functions.";

}  // namespace

std::vector<std::string> AnswerFormat::marks() const {
  if (channels) return {"<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|constrain|>"};
  std::vector<std::string> all;
  for (const std::string& mark : {think_open, think_close, call_open, call_close}) {
    if (!mark.empty()) all.push_back(mark);
  }
  return all;
}

AnswerFormat answer_format(std::string_view chat_template) {
  AnswerFormat format;
  for (const KnownFormat& known : known_formats()) {
    if (chat_template.find(known.mark) == std::string_view::npos) continue;
    format = known.format;
    break;
  }
  if (chat_template.find("</think>") != std::string_view::npos) {
    format.think_open = "<think>";
    format.think_close = "</think>";
  }
  return format;
}

AnswerParser::AnswerParser(AnswerFormat format, std::string_view prompt, std::vector<std::string> tools)
    : format_(std::move(format)), tools_(std::move(tools)) {
  if (tools_.empty()) {
    format_.call_open.clear();
    format_.bare_calls = false;
  }
  if (format_.channels) state_ = State::kHeader;
  if (!format_.think_open.empty() && trimmed(prompt).ends_with(format_.think_open)) {
    state_ = State::kThought;
    trim_ = true;
  }
}

AnswerParts AnswerParser::push(std::string_view text) {
  AnswerParts parts;
  held_ += text;
  advance(parts, false);
  return parts;
}

AnswerParts AnswerParser::finish() {
  AnswerParts parts;
  advance(parts, true);
  return parts;
}

// The text up to the first mark, and the mark; or, where none is there, what cannot be the beginning of one.
bool AnswerParser::take_until(const std::vector<std::string>& marks, bool last, std::string& text, std::string& mark) {
  size_t first = std::string::npos;
  for (const std::string& candidate : marks) {
    const size_t at = candidate.empty() ? std::string::npos : held_.find(candidate);
    if (at >= first) continue;
    first = at;
    mark = candidate;
  }
  if (first != std::string::npos) {
    text = held_.substr(0, first);
    held_.erase(0, first + mark.size());
    return true;
  }
  size_t keep = 0;
  for (const std::string& candidate : marks) {
    for (size_t n = std::min(candidate.size(), held_.size() + 1) - (candidate.empty() ? 0 : 1); !last && n > keep;
         --n) {
      if (held_.ends_with(std::string_view(candidate).substr(0, n))) keep = n;
    }
  }
  text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void AnswerParser::emit(AnswerParts& parts, std::string text) {
  if (trim_) {
    text.erase(0, std::min(text.find_first_not_of(kBlank), text.size()));
    trim_ = text.empty();
  }
  if (state_ != State::kThought) begun_ = begun_ || !trimmed(text).empty();
  (state_ == State::kThought ? parts.reasoning : parts.content) += text;
}

bool AnswerParser::read_call(std::string_view text, AnswerParts& parts) {
  std::vector<ToolCall> calls;
  try {
    const Json json = parse_json(text, "a tool call");
    const Json list = json.is_array() ? json : Json::array({json});
    for (const Json& call : list) {
      const Json* name = find(call, "name");
      const Json* arguments = find(call, "arguments");
      if (!arguments) arguments = find(call, "parameters");
      if (!name || !name->is_string() || (arguments && !arguments->is_object())) return false;
      if (std::find(tools_.begin(), tools_.end(), name->text()) == tools_.end()) return false;
      calls.push_back({name->text(), arguments ? arguments->dump() : "{}"});
    }
  } catch (const Failure&) {
    return false;
  }
  parts.calls.insert(parts.calls.end(), calls.begin(), calls.end());
  return !calls.empty();
}

void AnswerParser::advance(AnswerParts& parts, bool last) {
  std::string text, mark;
  while (true) {
    if (format_.channels && state_ != State::kHeader) {
      if (!advance_channel(parts, last)) return;
      continue;
    }
    switch (state_) {
      case State::kSpeech: {
        if (format_.bare_calls && !begun_) {
          for (const std::string& ignored : format_.ignored) {
            if (held_.starts_with(ignored)) held_.erase(0, ignored.size());
          }
          const size_t first = held_.find_first_not_of(kBlank);
          if (first == std::string::npos && !last) return;
          if (first != std::string::npos && (held_[first] == '{' || held_[first] == '[')) {
            state_ = State::kBare;
            break;
          }
        }
        std::vector<std::string> marks = {format_.think_open, format_.call_open};
        const bool found = take_until(marks, last, text, mark);
        if (found && mark == format_.call_open && trimmed(text).empty()) text.clear();
        if (!text.empty()) emit(parts, text);
        if (!found) return;
        state_ = mark == format_.call_open ? State::kCall : State::kThought;
        trim_ = true;
        break;
      }
      case State::kThought: {
        const bool found = take_until({format_.think_close}, last, text, mark);
        if (!text.empty()) emit(parts, text);
        if (!found) return;
        state_ = State::kSpeech;
        trim_ = true;
        break;
      }
      case State::kCall: {
        const size_t end = held_.find(format_.call_close);
        if (end == std::string::npos && !last) return;
        const std::string block = held_.substr(0, end);
        const bool called = read_call(block, parts);
        state_ = State::kSpeech;
        trim_ = called;
        if (!called) {
          emit(parts, format_.call_open + block + (end == std::string::npos ? "" : format_.call_close));
        }
        held_.erase(0, end == std::string::npos ? held_.size() : end + format_.call_close.size());
        if (held_.empty()) return;
        break;
      }
      case State::kBare: {
        if (!last) return;
        if (!read_call(trimmed(held_), parts)) emit(parts, held_);
        held_.clear();
        return;
      }
      case State::kHeader: {
        const bool found = take_until({"<|message|>"}, last, text, mark);
        header_ += text;
        if (!found) {
          if (last && header_.find("<|") == std::string::npos) emit(parts, header_);
          if (last) header_.clear();
          return;
        }
        const size_t function = header_.find(kFunction);
        if (function != std::string::npos) {
          const size_t from = function + kFunction.size();
          block_ = header_.substr(from, header_.find_first_of(" <", from) - from);
        } else {
          block_.clear();
        }
        state_ = !block_.empty() ? State::kBare : State::kSpeech;
        if (header_.find("analysis") != std::string::npos && block_.empty()) state_ = State::kThought;
        header_.clear();
        break;
      }
    }
  }
}

// The message of a channel, up to the next header. False: there is no more of it yet.
bool AnswerParser::advance_channel(AnswerParts& parts, bool last) {
  std::string text, mark;
  const bool found = take_until(kChannelEnds, last, text, mark);
  if (state_ == State::kBare) {
    header_ += text;
    if (!found && !last) return false;
    const bool known = std::find(tools_.begin(), tools_.end(), block_) != tools_.end();
    const std::string arguments(trimmed(header_));
    if (!known || !read_call("{\"name\": " + Json(block_).dump() + ", \"arguments\": " + arguments + "}", parts)) {
      state_ = State::kSpeech;
      emit(parts, header_);
    }
    header_.clear();
  } else if (!text.empty()) {
    emit(parts, text);
  }
  if (found || last) state_ = State::kHeader;
  return found;
}

}  // namespace doppler::serve
