// What holds an answer lets it think first and then holds it, and calls are what the parser reads.
#include "serve/answer_grammar.h"

#include "base/files.h"
#include "grammar/support.h"

namespace doppler::serve {
namespace {

const std::string kBlocks = "<tool_call></think>", kChannels = "<|channel|>", kBare = "<|python_tag|>";

Ask json() {
  Ask ask;
  ask.constraint = {.kind = Constraint::Kind::kJsonSchema,
                    .text = R"({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})",
                    .param = "response_format"};
  return ask;
}

Ask call() {
  Ask ask;
  ask.tools = parse_json(R"([
    {"type": "function", "function": {"name": "weather", "parameters": {
      "type": "object", "properties": {"city": {"enum": ["Bonn", "Rome"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "time"}}])",
                         "tools");
  ask.must_call = true;
  return ask;
}

std::shared_ptr<const TokenGrammar> grammar(const Ask& ask, const std::string& source, const std::string& prompt = "") {
  return answer_grammar(ask, answer_format(source), prompt, byte_trie({"</think>", "think", "</th"}));
}

TEST(AnswerGrammar, AFreeAnswerHasNone) { EXPECT_EQ(grammar({}, kBlocks), nullptr); }

TEST(AnswerGrammar, ThoughtsThatTheTemplateOpenedAreFreeUpToTheirEnd) {
  const auto held = grammar(json(), kBlocks, "…<think>\n");
  EXPECT_TRUE(matches(*held, "Hm, ä {\"n\": </think>\n\n{\"n\":1}"));
  EXPECT_FALSE(matches(*held, "</</thi<</think></think{\"n\":1}"));
  EXPECT_TRUE(matches(*held, "</</thi<</think>{\"n\":1}"));
  EXPECT_FALSE(matches(*held, "{\"n\":1}"));
  EXPECT_FALSE(matches(*held, "Hm.</think>Yes."));
  EXPECT_FALSE(matches(*held, "Hm.</think>Yes.</think>{\"n\":1}"));
}

TEST(AnswerGrammar, ThoughtsThatTheModelOpensAreFreeAndNotNeeded) {
  const auto held = grammar(json(), kBlocks, "assistant\n");
  EXPECT_TRUE(matches(*held, "<think>Hm.</think>\n\n{\"n\":1}"));
  EXPECT_TRUE(matches(*held, "{\"n\":1}"));
  EXPECT_FALSE(matches(*held, "Hm.</think>{\"n\":1}"));
  const auto closed = grammar(json(), kBlocks, "assistant\n<think>\n\n</think>\n\n");
  EXPECT_TRUE(matches(*closed, "{\"n\":1}"));
  EXPECT_FALSE(matches(*closed, "<think>Hm.</think>{\"n\":1}"));
}

TEST(AnswerGrammar, OnlyTheFinalChannelIsHeld) {
  const auto held = grammar(json(), kChannels);
  const std::string thought = "<|channel|>analysis<|message|>Hm {.<|end|><|start|>assistant";
  EXPECT_TRUE(matches(*held, thought + thought + "<|channel|>final<|message|>{\"n\":1}"));
  EXPECT_TRUE(matches(*held, "<|channel|>final <|constrain|>json<|message|>{\"n\":1}"));
  EXPECT_FALSE(matches(*held, thought + "<|channel|>final<|message|>Yes"));
  EXPECT_FALSE(matches(*held, "{\"n\":1}"));
}

// What the parser makes of a text that the grammar allows.
std::string calls(const std::string& source, const std::string& text) {
  AnswerFormat format = answer_format(source);
  if (format.call_open.empty()) format.bare_calls = !format.channels;
  AnswerParser parser(format, "", {"weather", "time"});
  std::string all;
  for (AnswerParts parts : {parser.push(text), parser.finish()}) {
    EXPECT_EQ(parts.content, "");
    for (const ToolCall& made : parts.calls) all += made.name + made.arguments + ";";
  }
  return all;
}

TEST(AnswerGrammar, CallsAreWhatTheParserReads) {
  const std::string block = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bonn\"}}\n</tool_call>";
  const std::string bare = "{\"name\": \"weather\", \"parameters\": {\"city\": \"Bonn\"}}";
  const std::string channel =
      "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Bonn\"}";
  const std::string to = " to=functions.weather<|channel|>commentary json<|message|>{\"city\": \"Bonn\"}";
  const std::string one = "weather{\"city\":\"Bonn\"};";
  for (const auto& [source, text] :
       {std::pair(kBlocks, block), {kBare, bare}, {kChannels, channel}, {kChannels, to}, {"", bare}}) {
    EXPECT_TRUE(matches(*grammar(call(), source), text)) << text;
    EXPECT_EQ(calls(source, text), one);
    std::string other = text;
    other.replace(other.find("Bonn"), 4, "Oslo");
    EXPECT_FALSE(matches(*grammar(call(), source), other)) << other;
    EXPECT_FALSE(matches(*grammar(call(), source), "It is warm.")) << source;
  }
  EXPECT_TRUE(matches(*grammar(call(), kBlocks), "<think>Hm.</think>\n\n" + block + "\n" + block));
  EXPECT_EQ(calls(kBlocks, block + "\n" + block), one + one);
}

TEST(AnswerGrammar, ACallAsPublishedTemplatesWriteIt) {
  for (const auto& [name, end] : {std::pair("qwen3", "<|im_end|>"), {"llama3_2", "<|eot_id|>"}}) {
    DOPPLER_NEEDS_TOKENIZER(name);
    const std::filesystem::path file = tokenizer_folder(name) / "tokenizer_config.json";
    const ChatTemplate chat = ChatTemplate::from_config(parse_json(read_text_file(file), name), name);
    Json messages = parse_json(R"([{"role": "user", "content": "How warm is it?"}])", "messages");
    const std::string prompt = chat.render(messages, call().tools, true);
    messages.push_back(parse_json(
        R"({"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "weather", "arguments": {"city": "Bonn"}}}]})",
        "a call"));
    const std::string whole = chat.render(messages, call().tools, false);
    ASSERT_TRUE(whole.starts_with(prompt)) << whole;
    const std::string said = whole.substr(prompt.size(), whole.find(end, prompt.size()) - prompt.size());
    EXPECT_TRUE(matches(*grammar(call(), chat.source(), prompt), said)) << said;
    EXPECT_EQ(calls(chat.source(), said), "weather{\"city\":\"Bonn\"};");
  }
}

TEST(AnswerGrammar, OneCallAndANamedOne) {
  const std::string block = "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";
  Ask ask = call();
  EXPECT_TRUE(matches(*grammar(ask, kBlocks), block + "\n" + block));
  ask.parallel_calls = false;
  EXPECT_TRUE(matches(*grammar(ask, kBlocks), block));
  EXPECT_FALSE(matches(*grammar(ask, kBlocks), block + "\n" + block));
  ask.parallel_calls = true;
  ask.only_call = "weather";
  EXPECT_FALSE(matches(*grammar(ask, kBlocks), block));
  ask.only_call = "time";
  EXPECT_TRUE(matches(*grammar(ask, kBlocks), block));
  EXPECT_FALSE(matches(*grammar(ask, kBlocks), block + "\n" + block)) << "a tool that is named is called once";
}

TEST(AnswerGrammar, AToolMayBeCalledInPlaceOfJson) {
  Ask ask = json();
  ask.tools = call().tools;
  const auto held = grammar(ask, kBlocks);
  EXPECT_TRUE(matches(*held, "{\"n\":1}"));
  EXPECT_TRUE(matches(*held, "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(matches(*held, "Yes."));
}

TEST(AnswerGrammar, WhatASchemaAsksThatIsNotSupportedIsNamed) {
  Ask ask = call();
  ask.tools[0]["function"]["parameters"]["not"] = Json::object();
  try {
    grammar(ask, kBlocks);
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, "tools");
    EXPECT_NE(error.message.find("weather"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("'not'"), std::string::npos) << error.message;
  }
}

// Where marks are special tokens they are demanded as such, never spelled, and never inside of a text.
TEST(AnswerGrammar, SpecialTokens) {
  DOPPLER_NEEDS_TOKENIZER("gptoss");
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_folder("gptoss"));
  const AnswerFormat format = answer_format(kChannels);
  const auto trie = TokenTrie::make(tokenizer);
  const auto held = answer_grammar(call(), format, "", trie);
  const auto take = [&](TokenConstraint& constraint, const std::string& text) {
    for (const int32_t token : tokenizer.encode(text, false)) {
      if (!constraint.allowed().has(token) || !constraint.accept(token)) return false;
    }
    return true;
  };
  const int32_t channel = tokenizer.token_id("<|channel|>"), end = tokenizer.token_id("<|end|>");
  auto constraint = held->begin();
  EXPECT_TRUE(constraint->allowed().has(channel));
  for (const int32_t token : doppler::testing::allowed_tokens(constraint->allowed())) {
    EXPECT_TRUE(token == channel || std::string(" to=functions.").starts_with(trie->bytes_of(token))) << token;
  }
  EXPECT_TRUE(take(*constraint, "<|channel|>analysis<|message|>Hm, the <weather>"));
  EXPECT_TRUE(constraint->allowed().has(end));
  EXPECT_FALSE(constraint->allowed().has(channel));
  EXPECT_TRUE(take(*constraint, "<|end|><|start|>assistant"));
  EXPECT_FALSE(constraint->may_end());
  EXPECT_TRUE(take(*constraint, "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\":\""));
  EXPECT_FALSE(constraint->allowed().has(end));
  EXPECT_TRUE(take(*constraint, "Bonn\"}"));
  EXPECT_TRUE(constraint->must_end());
  EXPECT_FALSE(take(*held->begin(), "<|channel|>final<|message|>"));
}

}  // namespace
}  // namespace doppler::serve
