#include "serve/answer_grammar.h"

#include "base/error.h"
#include "grammar/grammar_builder.h"

namespace doppler::serve {
namespace {

constexpr uint32_t kForever = Expressions::kForever, kMostCalls = 16;

class AnswerGrammarBuilder {
 public:
  AnswerGrammarBuilder(const Ask& ask, const AnswerFormat& format, std::shared_ptr<const TokenTrie> trie)
      : ask_(ask), format_(format), b_("the answer", std::move(trie)), e_(b_.e()) {}

  std::shared_ptr<const TokenGrammar> build(std::string_view prompt) {
    std::vector<Expression> ways;
    if (!ask_.must_call) ways.push_back(text());
    if (ask_.must_call || calls_too()) ways.push_back(calls());
    return b_.finish(e_.sequence({thoughts(prompt), e_.any_of(std::move(ways))}));
  }

 private:
  // A tool may be called in place of an answer that JSON was asked of.
  bool calls_too() const {
    return ask_.tool_calls && ask_.tools.is_array() && ask_.constraint.kind != Constraint::Kind::kGrammar &&
           (format_.channels || format_.bare_calls || !format_.call_open.empty());
  }

  Expression thoughts(std::string_view prompt) {
    if (format_.channels) {
      const Expression message =
          e_.sequence({b_.mark("<|channel|>"), e_.any_of({e_.text("analysis"), e_.text("commentary")}),
                       b_.mark("<|message|>"), b_.until("<|end|>"), b_.mark("<|start|>"), e_.text("assistant")});
      return e_.repeat(message, 0, kForever);
    }
    if (format_.think_open.empty()) return Expressions::kEmpty;
    prompt = prompt.substr(0, prompt.find_last_not_of(kBlank) + 1);
    if (prompt.ends_with(format_.think_close)) return Expressions::kEmpty;
    const Expression rest = e_.sequence({b_.until(format_.think_close), blank()});
    if (prompt.ends_with(format_.think_open)) return rest;
    return e_.optional(e_.sequence({b_.mark(format_.think_open), rest}));
  }
  Expression blank() {
    ByteSet set{};
    for (const char c : kBlank) add_byte(set, static_cast<uint8_t>(c));
    return e_.repeat(e_.byte(set), 0, 4);
  }

  Expression text() {
    const Constraint& held = ask_.constraint;
    const Expression content = held.kind == Constraint::Kind::kJsonObject   ? b_.json_object()
                               : held.kind == Constraint::Kind::kJsonSchema ? b_.json_schema(held.text, held.param)
                                                                            : b_.gbnf(held.text);
    if (!format_.channels) return content;
    const Expression json = e_.sequence({e_.text(" "), b_.mark("<|constrain|>"), e_.text("json")});
    return e_.sequence({b_.mark("<|channel|>"), e_.text("final"), e_.optional(json), b_.mark("<|message|>"), content});
  }

  Expression calls() {
    std::vector<Expression> each;
    for (const Json& tool : ask_.tools) {
      const Json& function = tool["function"];
      if (ask_.only_call.empty() || ask_.only_call == function["name"].text()) each.push_back(call(function));
    }
    const Expression one = e_.any_of(std::move(each));
    if (format_.channels || format_.call_open.empty() || !ask_.parallel_calls || !ask_.only_call.empty()) return one;
    const Expression again = e_.shared(one, "a call");
    return e_.sequence({again, e_.repeat(e_.sequence({e_.text("\n"), again}), 0, kMostCalls - 1)});
  }

  Expression call(const Json& function) {
    const std::string name = function["name"].text();
    Json schema = function.contains("parameters") ? function["parameters"] : Json();
    if (!schema.is_object()) schema = Json::object();
    if (!schema.contains("type")) schema["type"] = "object";
    const Expression arguments = b_.json_schema(schema.dump(), "parameters of " + name);
    if (format_.channels) {  // the recipient is said before the channel or behind it
      const Expression to = e_.text(" to=functions." + name), channel = b_.mark("<|channel|>");
      const Expression head = e_.any_of(
          {e_.sequence({channel, e_.text("commentary"), to}), e_.sequence({to, channel, e_.text("commentary")})});
      const Expression json = e_.sequence({e_.optional(b_.mark("<|constrain|>")), e_.text("json")});
      return e_.sequence({head, e_.text(" "), json, b_.mark("<|message|>"), arguments});
    }
    const char* key = format_.call_open.empty() ? "parameters" : "arguments";
    const Expression object =
        e_.sequence({e_.text("{\"name\": " + Json(name).dump() + ", \"" + key + "\": "), arguments, e_.text("}")});
    if (format_.call_open.empty()) return object;
    return e_.sequence({b_.mark(format_.call_open), e_.text("\n"), object, e_.text("\n"), b_.mark(format_.call_close)});
  }

  const Ask& ask_;
  const AnswerFormat& format_;
  GrammarBuilder b_;
  Expressions& e_;
};

}  // namespace

std::shared_ptr<const TokenGrammar> answer_grammar(const Ask& ask, const AnswerFormat& format, std::string_view prompt,
                                                   std::shared_ptr<const TokenTrie> trie) {
  if (ask.constraint.kind == Constraint::Kind::kNone && !ask.must_call) return nullptr;
  try {
    return AnswerGrammarBuilder(ask, format, std::move(trie)).build(prompt);
  } catch (const Failure& failure) {
    throw ApiError{.message = failure.what(),
                   .param = ask.must_call ? "tools" : ask.constraint.param,
                   .code = "unsupported_value"};
  }
}

}  // namespace doppler::serve
