// JSON schemas: what they match, what is refused by name, and what people have complained about elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/json.h"
#include "grammar/support.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const TokenGrammar> schema(const std::string& text) {
  static const auto trie = byte_trie();
  return grammar_from_json_schema(text, "s", trie);
}

struct Case {
  const char* schema;
  std::vector<std::string> good, bad;
};

TEST(JsonSchema, Matches) {
  const Case cases[] = {
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"}},"required":["b"]})",
       {R"({"b":true})", R"({"a":1,"b":false})", "{ \"a\": -12,\n  \"b\": true\n}"},
       {"{}", R"({"a":1})", R"({"b":true,"a":1})", R"({"b":true,"c":1})", R"({"a":01,"b":true})", R"({"b" :true})"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"null"}})",
       {"{}", R"({"a":1,"b":null,"":null})", R"({"aa":null})"},
       {R"({"a":null})", R"({"b":1})", R"({"b":null,"a":1})", R"({"\u0061":null})"}},
      {R"({"type":"string"})",
       {R"("")", R"("é😀\n\u00e9\ud83d\ude00\/")", "\"\x7f\""},
       {R"("\ud83d")", R"("\ude00")", R"("\ud83d\u0041")", R"("\x")", "\"\n\"", "\"\xff\"", "\"\xed\xa0\x80\"",
        "\"\xc0\x80\"", "\"\xf4\x90\x80\x80\""}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("😀é")", R"("\u0041\ud83d\ude00b")"},
       {R"("a")", R"("abcd")", R"("\ud83d\ude00")"}},
      {R"({"type":"integer","minimum":-12,"maximum":105})",
       {"-12", "-9", "0", "7", "99", "100", "105"},
       {"-13", "106", "00", "1000", "-", "1.0"}},
      {R"({"type":"integer","exclusiveMinimum":5})", {"6", "10", "123456"}, {"5", "-7", "0"}},
      {R"({"type":"number","minimum":0.25,"exclusiveMaximum":2})",
       {"1", "0.250", "0.999", "1.5", "1.999"},
       {"0", "0.249", "2", "2.0", "-1", "0.2"}},
      {R"({"type":["integer","null"],"maximum":3})", {"null", "3"}, {"4", "\"a\""}},
      {R"({"enum":["a",1,null,{"k":[true]}]})", {"\"a\"", "1", "null", R"({"k":[true]})"}, {"\"b\"", "2"}},
      {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
      {R"({"const":"x"})", {"\"x\""}, {"\"y\""}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
       {"[1]", "[1,2, 3]"},
       {"[]", "[1,2,3,4]", "[1,]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"boolean"}],"items":{"const":0},"minItems":1})",
       {"[1]", "[1,true]", "[1,true,0,0]"},
       {"[]", "[true]", "[1,0]"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"$ref":"#"}}]})",
       {"1", "[1,[2,[]]]"},
       {"\"a\"", "[\"a\"]"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"number"}}},{"properties":{"a":{"minimum":3},"b":{"const":1}},"required":["a"]}]})",
       {R"({"a":3})", R"({"a":4,"b":1})"},
       {R"({"a":2})", R"({"b":1})", "{}"}},
      {R"({"$ref":"#/$defs/x~1y","$defs":{"x/y":{"type":"null"}}})", {"null"}, {"1"}},
      {R"({"type":"string","pattern":"^a.c$"})", {"\"abc\"", R"("a\"c")", R"("a\\c")"}, {"\"ac\"", R"("a\nc")"}},
      {R"({"type":"string","pattern":"b"})", {"\"b\"", "\"abc\""}, {"\"ac\""}},
      {R"({"type":"string","format":"date"})", {"\"2024-02-28\""}, {"\"2024-02-31\"", "\"2024-13-01\""}},
      {R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"}},
      {R"({"type":"object","patternProperties":{"^x_":{"type":"integer"}},"additionalProperties":false})",
       {"{}", R"({"x_a":1})"},
       {R"({"a":1})", R"({"x_a":"b"})"}},
      {"true", {"null", R"({"a":[1.5e-3,"b"]})"}, {"nul", ""}},
      {R"({"title":"t","description":"d","default":1,"examples":[2],"$comment":"c","x-y":3,"type":"null"})",
       {"null"},
       {"1"}},
  };
  for (const Case& each : cases) {
    const auto grammar = schema(each.schema);
    for (const std::string& text : each.good) EXPECT_TRUE(matches(*grammar, text)) << each.schema << " and " << text;
    for (const std::string& text : each.bad) EXPECT_FALSE(matches(*grammar, text)) << each.schema << " and " << text;
  }
}

// A keyword that would be ignored lets through what it forbids.
TEST(JsonSchema, WhatIsNotSupportedIsRefusedByNameAndPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not":{}})", "'not' is not supported in a JSON schema (s: #/not)"},
      {R"({"properties":{"a":{"items":{"if":{}}}}})", "#/properties/a/items/if"},
      {R"({"type":"array","uniqueItems":true})", "uniqueItems"},
      {R"({"type":"object","minProperties":1})", "minProperties"},
      {R"({"typo":1})", "'typo'"},
      {R"({"type":"string","format":"regex"})", "the format 'regex'"},
      {R"({"type":"string","pattern":"(?=a)b"})", "look ahead"},
      {R"({"type":"string","pattern":"(a)\\1"})", "reference back"},
      {R"({"type":"string","pattern":"^a\\p{L}$"})", "\\p"},
      {R"({"type":"string","pattern":"^(ab)+$","maxLength":3})", "maxLength"},
      {R"({"type":"integer","multipleOf":3})", "multipleOf"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "oneOf"},
      {R"({"$ref":"https://example.com/x"})", "leads out of the schema"},
      {R"({"$ref":"#/$defs/none"})", "a reference to something that is in the schema"},
      {R"({"type":"number","minimum":1e-30})", "too many digits"},
      {R"({"items":[{}]})", "prefixItems"},
      {R"({"type":"text"})", "#/type"},
      {R"({"type":3})", "#/type"},
      {R"({"minLength":-1})", "#/minLength"},
      {R"([1])", "an object, true or false"},
      {R"({"type":)", "s"},
      {R"(false)", "no text can match"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "no text can match"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no text can match"},
      {R"({"$ref":"#"})", "lead back to themselves"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "can begin with itself"},
  };
  for (const auto& [text, sentence] : cases) {
    EXPECT_THAT(message_of([&, given = text] { schema(given); }), HasSubstr(sentence)) << text;
  }
}

// Complaint: ordinary patterns, large lengths and many tools are refused, or take for ever.
TEST(JsonSchema, LargeBoundsAndManyToolsAreFine) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(matches(*schema(R"({"type":"string","maxLength":2000000})"), "\"abc\""));
  EXPECT_TRUE(matches(
      *schema(R"({"type":"array","items":{"type":"string","minLength":3,"maxLength":100000},"maxItems":50000})"),
      R"(["abc"])"));
  EXPECT_TRUE(matches(*schema(R"({"type":"string","pattern":"^[\\w.+-]+@[\\w-]+\\.[\\w.-]{2,}$"})"), "\"a.b@c.de\""));
  EXPECT_TRUE(matches(*schema(R"({"type":"string","pattern":"^[a-zA-Z0-9_-]{1,4096}$"})"), "\"x-1\""));
  Json tools = Json::array();
  for (int i = 0; i < 300; ++i) {
    Json parameters = {{"type", "object"}, {"additionalProperties", false}};
    for (int k = 0; k < 20; ++k) {
      parameters["properties"]["option" + std::to_string(k)] = {{"type", Json::array({"string", "integer", "null"})},
                                                                {"maxLength", 500}};
    }
    Json tool = {{"type", "object"},
                 {"properties", {{"name", {{"const", "tool" + std::to_string(i)}}}, {"arguments", parameters}}},
                 {"additionalProperties", false}};
    tool["required"] = Json::array({"name", "arguments"});
    tools.push_back(tool);
  }
  const auto grammar = schema(Json({{"anyOf", tools}}).dump());
  EXPECT_TRUE(matches(*grammar, R"({"name": "tool217", "arguments": {"option3": "x", "option19": 3}})"));
  EXPECT_FALSE(matches(*grammar, R"({"name": "tool300", "arguments": {}})"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

// Complaint: a bad schema kills the engine. Whatever explodes is stopped with a sentence.
TEST(JsonSchema, HostileSchemasEndSoon) {
  Json doubled = Json::object();
  for (int i = 0; i < 25; ++i) {
    const std::string next = "#/$defs/d" + std::to_string(i + 1);
    doubled["$defs"]["d" + std::to_string(i)] = {{"allOf", Json::array({{{"$ref", next}}, {{"$ref", next}}})}};
  }
  doubled["$defs"]["d25"] = {{"anyOf", Json::array({{{"type", "null"}}, {{"type", "string"}}})}};
  doubled["$ref"] = "#/$defs/d0";
  EXPECT_THAT(message_of([&] { schema(doubled.dump()); }), HasSubstr("too long to compile"));
  Json crossed = Json::object();
  for (int i = 0; i < 20; ++i) {
    Json branches = Json::array();
    for (int k = 0; k < 10; ++k) branches.push_back({{"minimum", k + i}});
    crossed["allOf"].push_back({{"anyOf", branches}});
  }
  EXPECT_NE(message_of([&] { schema(crossed.dump()); }), "");
  EXPECT_THAT(message_of([] { schema(std::string(300, '[')); }), HasSubstr("s"));
  EXPECT_THAT(message_of([] { schema("\"" + std::string(2 << 20, 'a') + "\""); }), HasSubstr("too long"));
}

// Complaint: generation without end. White space and digits have bounds, so only strings and lists can go on for ever.
TEST(JsonSchema, WhiteSpaceAndNumbersEnd) {
  const auto number = schema(R"({"type":"object","properties":{"a":{"type":"number"}},"required":["a"]})");
  EXPECT_FALSE(matches(*number, "{\n\n\"a\":1}"));
  EXPECT_FALSE(matches(*number, "{  \"a\":1}"));
  EXPECT_FALSE(matches(*number, "{\"a\":" + std::string(16, '1') + "}"));
  EXPECT_TRUE(matches(*number, "{\"a\":" + std::string(15, '1') + "}"));
  EXPECT_FALSE(matches(*number, "{\"a\":1} "));
}

// Complaint: invalid UTF-8. No token that would make it is allowed, whatever pieces a vocabulary has.
TEST(JsonSchema, BytesOfACharacterComeWhole) {
  const auto constraint = schema(R"({"type":"string"})")->begin();
  for (const int byte : {0x22, 0xF0}) ASSERT_TRUE(constraint->accept(byte));
  std::vector<int32_t> next;
  for (int byte = 0x90; byte <= 0xBF; ++byte) next.push_back(byte);
  EXPECT_EQ(testing::allowed_tokens(constraint->allowed()), next);
}

}  // namespace
}  // namespace doppler
