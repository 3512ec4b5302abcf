// Takes an answer apart as it comes: what the model thinks, what it says, and the tools it calls. Text that may be the
// beginning of a mark is held back until that is decided; a call is told when it is whole, and a block that is no valid
// call is text. How the text is cut into pieces makes no difference to what comes out in all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace doppler::serve {

inline constexpr std::string_view kBlank = " \t\r\n";  // what JSON may have between its parts

// The marks that a model's chat template writes with; empty: there are none of that kind.
struct AnswerFormat {
  std::string think_open = {}, think_close = {};
  std::string call_open = {}, call_close = {};  // around {"name": …, "arguments": {…}}
  bool bare_calls = false;  // an answer that is nothing but such an object (or with "parameters") is a call
  std::vector<std::string> ignored = {};   // tokens that say nothing
  bool channels = false;                   // <|channel|>analysis<|message|>…<|end|>: a message per channel
  std::vector<std::string> marks() const;  // all of them; some models have special tokens for them
};

// By the marks that occur in the source of its chat template.
AnswerFormat answer_format(std::string_view chat_template);

struct ToolCall {
  std::string name, arguments;  // a JSON object, as text
};

struct AnswerParts {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

class AnswerParser {
 public:
  // `prompt` is the text before the answer: a template may have opened the thoughts already. `tools`: names that may be
  // called; without any, calls are text.
  AnswerParser(AnswerFormat format, std::string_view prompt, std::vector<std::string> tools);
  AnswerParts push(std::string_view text);
  AnswerParts finish();

 private:
  enum class State { kSpeech, kThought, kCall, kBare, kHeader };
  void advance(AnswerParts& parts, bool last);
  bool advance_channel(AnswerParts& parts, bool last);
  bool take_until(const std::vector<std::string>& marks, bool last, std::string& text, std::string& mark);
  void emit(AnswerParts& parts, std::string text);
  bool read_call(std::string_view text, AnswerParts& parts);

  AnswerFormat format_;
  std::vector<std::string> tools_;
  std::string held_, block_, header_;
  State state_ = State::kSpeech;
  bool begun_ = false;  // something was said: a bare call can only be the whole answer
  bool trim_ = false;   // white space that follows a mark belongs to it
};

}  // namespace doppler::serve
