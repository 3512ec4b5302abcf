// What an answer is taken apart into, however it is cut into pieces.
#include "serve/answer_parser.h"

#include <gtest/gtest.h>

namespace doppler::serve {
namespace {

struct Whole {
  std::string reasoning, content, calls;
  bool operator==(const Whole&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Whole& whole) {
  return out << "[" << whole.reasoning << "|" << whole.content << "|" << whole.calls << "]";
}

Whole parse(const std::string& source, const std::string& prompt, const std::string& text, size_t piece) {
  AnswerParser parser(answer_format(source), prompt, {"weather", "time"});
  Whole whole;
  const auto take = [&](const AnswerParts& parts) {
    whole.reasoning += parts.reasoning;
    whole.content += parts.content;
    for (const ToolCall& call : parts.calls) whole.calls += call.name + call.arguments + ";";
  };
  for (size_t at = 0; at < text.size(); at += piece) take(parser.push(text.substr(at, piece)));
  take(parser.finish());
  return whole;
}

// The same for pieces of every length.
void expect(const std::string& source, const std::string& prompt, const std::string& text, const Whole& wanted) {
  for (size_t piece = 1; piece <= text.size() + 1; ++piece) {
    EXPECT_EQ(parse(source, prompt, text, piece), wanted) << "in pieces of " << piece << ": " << text;
  }
}

const std::string kBlocks = "… <tool_call> … </think> …", kChannels = "<|channel|>", kBare = "<|python_tag|>";

TEST(AnswerParser, PlainTextPassesThrough) {
  expect("", "", "Once <b>upon</b> a time.", {"", "Once <b>upon</b> a time.", ""});
  expect(kBlocks, "", "a < b, and <tool is no mark", {"", "a < b, and <tool is no mark", ""});
}

TEST(AnswerParser, ThoughtsAreKeptApart) {
  expect(kBlocks, "", "<think>\nHm.\n</think>\n\nYes.", {"Hm.\n", "Yes.", ""});
  expect(kBlocks, "…<think>\n", "Hm.</think>Yes.", {"Hm.", "Yes.", ""});
  expect(kBlocks, "", "<think>never ends", {"never ends", "", ""});
}

TEST(AnswerParser, CallsInBlocks) {
  const std::string call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bonn\"}}\n</tool_call>";
  expect(kBlocks, "", call, {"", "", "weather{\"city\":\"Bonn\"};"});
  expect(kBlocks, "", "Let me see. " + call + "\n" + call,
         {"", "Let me see. ", "weather{\"city\":\"Bonn\"};weather{\"city\":\"Bonn\"};"});
}

TEST(AnswerParser, WhatIsNoValidCallIsText) {
  for (const std::string& text : {std::string("<tool_call>{\"name\": \"weather\"</tool_call> so"),
                                  std::string("<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>"),
                                  std::string("<tool_call>{\"name\": \"weather\", \"arguments\": 5}</tool_call>"),
                                  std::string("<tool_call>{\"name\": \"wea")}) {
    expect(kBlocks, "", text, {"", text, ""});
  }
}

TEST(AnswerParser, BareCalls) {
  expect(kBare, "", "{\"name\": \"time\", \"parameters\": {\"zone\": \"UTC\"}}", {"", "", "time{\"zone\":\"UTC\"};"});
  expect(kBare, "", "{\"name\": \"time\"", {"", "{\"name\": \"time\"", ""});
  expect(kBare, "", "See {\"name\": \"time\"}", {"", "See {\"name\": \"time\"}", ""});
}

TEST(AnswerParser, Channels) {
  expect(kChannels, "", "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>Said.",
         {"Think.", "Said.", ""});
  expect(kChannels, "",
         "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Bonn\"}<|call|>",
         {"", "", "weather{\"city\":\"Bonn\"};"});
}

TEST(AnswerParser, WithoutToolsCallsAreText) {
  AnswerParser parser(answer_format(kBlocks), "", {});
  const std::string text = "<tool_call>{\"name\": \"weather\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(parser.push(text).content + parser.finish().content, text);
}

}  // namespace
}  // namespace doppler::serve
