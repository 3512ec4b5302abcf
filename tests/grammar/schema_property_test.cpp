// Random JSON schemas of everything that is supported, random texts out of their grammars, and a validator that is not
// ours. DOPPLER_GRAMMAR_SCHEMAS sets how many schemas; ./test takes a few hundred.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "grammar/compiled_grammar.h"
#include "grammar/support.h"
#include "support/scratch.h"

namespace doppler {
namespace {

class SchemaMaker {
 public:
  explicit SchemaMaker(uint32_t seed) : random_(seed) {}

  Json make() {
    Json schema = any(0);
    if (schema.is_boolean()) schema = Json::object();
    if (recursive_) {
      schema["$defs"] = {{"node",
                          {{"type", "object"},
                           {"properties", {{"v", {{"type", "integer"}}}, {"next", {{"$ref", "#/$defs/node"}}}}},
                           {"additionalProperties", false}}},
                         {"a/b", {{"type", Json::array({"string", "null"})}, {"maxLength", 3}}}};
      schema["$defs"]["node"]["required"] = Json::array({"v"});
    }
    if (one_in(3)) schema["title"] = "a schema";
    if (one_in(5)) schema["description"] = "of some kind";
    return schema;
  }
  std::mt19937& random() { return random_; }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  bool one_in(int n) { return pick(n) == 0; }
  std::string name() {
    static const char* const kNames[] = {"a",  "b",  "ab",    "name", "größe", "x y",
                                         "id", "na", "\"q\"", "d\\e", "items", "😀"};
    return kNames[pick(12)];
  }

  Json any(int depth) {
    switch (pick(depth > 2 ? 7 : 14)) {
      case 0: return number();
      case 1: return integer();
      case 2: return string();
      case 3: return string();
      case 4: return constants();
      case 5: return {{"type", one_in(2) ? "boolean" : "null"}};
      case 6: recursive_ = true; return {{"$ref", one_in(2) ? "#/$defs/node" : "#/$defs/a~1b"}};
      case 7: return array(depth);
      case 8:
      case 9:
      case 10: return object(depth);
      case 11: return choice(depth);
      case 12: return all_of(depth);
      default: return one_in(3) ? Json(true) : one_in(2) ? Json::object() : types();
    }
  }

  Json types() {
    Json schema = {
        {"type", Json::array({"integer", "null", "string"})}, {"maximum", 10 + pick(9)}, {"maxLength", 1 + pick(6)}};
    if (one_in(2)) schema = {{"type", "string"}, {"nullable", true}, {"maxLength", 4}};
    return schema;
  }

  Json integer() {
    Json schema = {{"type", "integer"}};
    const int low = pick(4000) - 2000;
    if (one_in(2)) schema[one_in(2) ? "minimum" : "exclusiveMinimum"] = low;
    if (one_in(2)) schema[one_in(2) ? "maximum" : "exclusiveMaximum"] = low + 2 + pick(one_in(2) ? 5 : 100000);
    if (one_in(8)) schema["multipleOf"] = 1;
    return schema;
  }

  Json number() {
    Json schema = {{"type", "number"}};
    // Halves, tenths and thousandths, each the double nearest to its decimal.
    const double unit = one_in(2) ? 2 : one_in(2) ? 10 : 1000, low = pick(4000) - 2000;
    if (one_in(2)) schema[one_in(2) ? "minimum" : "exclusiveMinimum"] = low / unit;
    if (one_in(2)) schema[one_in(2) ? "maximum" : "exclusiveMaximum"] = (low + 2 + pick(one_in(2) ? 3 : 5000)) / unit;
    return schema;
  }

  Json string() {
    Json schema = {{"type", "string"}};
    switch (pick(4)) {
      case 0: {
        const int low = pick(5);
        if (one_in(2)) schema["minLength"] = low;
        if (one_in(2)) schema["maxLength"] = low + pick(one_in(4) ? 300 : 6);
        break;
      }
      case 1: {
        static const char* const kPatterns[] = {"^[a-z]+$",
                                                "^\\d{3}-\\d{4}$",
                                                "^(foo|bar|ba[^z])*$",
                                                "ab",
                                                "^x",
                                                "y$",
                                                "^[A-Z][a-z]{2,40}$",
                                                "^.{3}$",
                                                "^\\S+@\\S+\\.[a-z]{2,}$",
                                                "^(?:\\+\\d{1,3} )?\\(?\\d{2,4}\\)?$",
                                                "^[^\"\\\\]*$",
                                                "^\\u00e9+|😀{2}$",
                                                "^[\\w.-]{1,64}$",
                                                "^(a{2,3}){2}b?$",
                                                "^(?<year>\\d{4})\\/x*?$",
                                                "",
                                                "^\\t\\x41\\u{1F600}$",
                                                "a|^b$|c"};
        schema["pattern"] = kPatterns[pick(18)];
        if (schema["pattern"] == Json("^[a-z]+$") && one_in(2)) schema["maxLength"] = 5;
        if (schema["pattern"] == Json("^.{3}$") && one_in(2)) schema["minLength"] = 2;
        break;
      }
      case 2: {
        static const char* const kFormats[] = {"date", "time", "date-time", "duration", "uuid",
                                               "ipv4", "ipv6", "hostname",  "email",    "uri"};
        schema["format"] = kFormats[pick(10)];
        break;
      }
      default: break;
    }
    return schema;
  }

  Json constants() {
    if (one_in(2)) return {{"const", constant()}};
    Json list = Json::array();
    for (int i = 0, n = 1 + pick(6); i < n; ++i) list.push_back(constant());
    return {{"enum", list}};
  }
  Json constant() {
    switch (pick(7)) {
      case 0: return pick(100);
      case 1: return nullptr;
      case 2: return one_in(2);
      case 3: return 1.5;
      case 4: return Json::array({1, "x"});
      case 5: return {{"k", "v"}};
      default: return name();
    }
  }

  Json array(int depth) {
    Json schema = {{"type", "array"}};
    const int low = pick(3);
    if (one_in(2)) schema["minItems"] = low;
    if (one_in(2)) schema["maxItems"] = low + pick(one_in(3) ? 100 : 3);
    if (one_in(4)) {
      Json list = Json::array();
      for (int i = 0, n = 1 + pick(3); i < n; ++i) list.push_back(any(depth + 1));
      schema["prefixItems"] = list;
    }
    if (!one_in(5)) schema["items"] = any(depth + 1);
    if (one_in(8)) schema["uniqueItems"] = false;
    return schema;
  }

  Json object(int depth) {
    Json schema = {{"type", "object"}};
    if (one_in(8)) {
      schema["patternProperties"] = Json::object();
      schema["patternProperties"]["^[a-c]{1,3}$"] = any(depth + 1);
      if (one_in(2)) schema["additionalProperties"] = false;
      return schema;
    }
    Json properties = Json::object(), required = Json::array();
    for (int i = 0, n = pick(5); i < n; ++i) {
      const std::string key = name();
      if (properties.contains(key)) continue;
      properties[key] = any(depth + 1);
      if (one_in(2)) required.push_back(key);
    }
    if (!properties.empty()) schema["properties"] = properties;
    if (one_in(8) && !properties.contains("zz")) required.push_back("zz");
    const int more = pick(4);
    if (more == 0 && !(required.size() > 0 && required.back() == Json("zz"))) schema["additionalProperties"] = false;
    if (more == 1) schema["additionalProperties"] = true;
    if (more == 2) schema["additionalProperties"] = any(depth + 1);
    if (!required.empty()) schema["required"] = required;
    return schema;
  }

  Json choice(int depth) {
    if (one_in(2)) {
      Json list = Json::array();
      for (int i = 0, n = 1 + pick(3); i < n; ++i) list.push_back(any(depth + 1));
      return {{"anyOf", list}};
    }
    if (one_in(2)) return {{"oneOf", Json::array({string(), integer(), array(depth + 1)})}};
    Json list = Json::array();
    for (const char* kind : {"cat", "dog"}) {
      Json branch = {{"type", "object"}, {"properties", {{"kind", {{"const", kind}}}, {kind, integer()}}}};
      branch["required"] = Json::array({"kind"});
      list.push_back(branch);
    }
    return {{"oneOf", list}};
  }

  Json all_of(int depth) {
    if (one_in(3)) {
      return {{"allOf", Json::array({{{"type", "integer"}, {"minimum", pick(5)}},
                                     {{"type", "number"}, {"maximum", 5 + pick(50)}}})}};
    }
    Json first = {{"type", "object"}, {"properties", {{"a", any(depth + 1)}, {"b", integer()}}}};
    first["required"] = Json::array({"b"});
    Json second = {{"properties", {{"c", any(depth + 1)}, {"b", {{"minimum", -5000}}}}}};
    if (one_in(3)) first["additionalProperties"] = integer();
    return {{"allOf", Json::array({first, second})}};
  }

  std::mt19937 random_;
  bool recursive_ = false;
};

std::filesystem::path modules() {
  const char* set = std::getenv("DOPPLER_AJV");
  return set ? std::filesystem::path(set) : std::filesystem::path(DOPPLER_BINARY_DIR) / "ajv";
}

TEST(SchemaProperty, EveryAnswerIsValid) {
  std::error_code ignored;
  if (!std::filesystem::exists(modules() / "node_modules/ajv", ignored)) {
    if (std::getenv("CI")) FAIL() << "ajv is not there";
    GTEST_SKIP() << "ajv is not there: run tools/setup.sh test, or set DOPPLER_AJV to a folder with it in node_modules";
  }
  const char* set = std::getenv("DOPPLER_GRAMMAR_SCHEMAS");
  const int schemas = set ? std::atoi(set) : 300;
  const bool large = !testing::tokenizer_folder("gemma3").empty() && !testing::tokenizer_folder("qwen3").empty();
  testing::Scratch scratch;
  const std::filesystem::path file = scratch.path() / "answers.jsonl";
  int answers = 0, unfinished = 0, refused = 0;
  {
    std::ofstream out(file);
    for (int i = 0; i < schemas; ++i) {
      // Mostly a small vocabulary; now and then one of bytes and one of 262,144 tokens.
      const auto trie = testing::trie_of(large && i % 25 == 0 ? "gemma3" : large && i % 25 == 1 ? "qwen3" : "tiny");
      SchemaMaker maker(static_cast<uint32_t>(i));
      const Json schema = maker.make();
      std::shared_ptr<const TokenGrammar> grammar;
      const std::string refusal =
          testing::message_of([&] { grammar = grammar_from_json_schema(schema.dump(), "test", trie); });
      if (!grammar) {
        ++refused;
        EXPECT_THAT(refusal, ::testing::AnyOf(
                                 ::testing::HasSubstr("not supported"), ::testing::HasSubstr("supported only"),
                                 ::testing::HasSubstr("cannot be joined"), ::testing::HasSubstr("no text can match")))
            << schema.dump();
        continue;
      }
      Json texts = Json::array();
      for (int k = 0; k < 3; ++k) {
        const auto text = testing::random_text(*grammar, *trie, maker.random(), 300);
        if (!text) {
          ++unfinished;
          continue;
        }
        ++answers;
        texts.push_back(*text);
      }
      out << Json({{"schema", schema}, {"answers", texts}}).dump() << '\n';
    }
  }
  EXPECT_LT(refused, schemas / 20 + 1);  // the maker knows what is supported, but for a few contradictions
  EXPECT_LT(unfinished, (answers + 1) / 10 + 1);
  std::printf("%d schemas, %d refused, %d answers, %d unfinished\n", schemas, refused, answers, unfinished);
  const std::filesystem::path own = std::filesystem::path(DOPPLER_BINARY_DIR) / "node/bin/node";
  const std::string node = std::filesystem::exists(own, ignored) ? own.string() : "node";
  const std::string command =
      node + " " + DOPPLER_SOURCE_DIR "/tests/grammar/validate.mjs " + modules().string() + " " + file.string();
  EXPECT_EQ(std::system(command.c_str()), 0);
}

// What the masks say is what stepping through every token on its own says.
TEST(SchemaProperty, MasksAreExact) {
  const auto trie = testing::trie_of("tiny");
  int compared = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SchemaMaker maker(seed + 100'000);
    const Json schema = maker.make();
    std::shared_ptr<const TokenGrammar> grammar;
    testing::message_of([&] { grammar = grammar_from_json_schema(schema.dump(), "test", trie); });
    if (!grammar) continue;
    const Automaton& automaton = dynamic_cast<const CompiledGrammar&>(*grammar).automaton();
    Matcher matcher(automaton, {});
    Places places, now, next;
    matcher.enter(automaton.start(automaton.root()), Matcher::kBottom, places);
    const auto constraint = grammar->begin();
    for (int i = 0; i < 12; ++i) {
      std::vector<int32_t> tokens;
      for (int32_t token = 0; token < trie->vocab_size(); ++token) {
        const std::string bytes = trie->bytes_of(token);
        if (bytes.empty()) continue;
        const size_t mark = matcher.mark();
        now = places;
        for (const char byte : bytes) {
          matcher.step(now, static_cast<uint8_t>(byte), next);
          std::swap(now, next);
        }
        if (now.alive()) tokens.push_back(token);
        matcher.forget(mark);
      }
      ASSERT_EQ(testing::allowed_tokens(constraint->allowed()), tokens) << schema.dump();
      ASSERT_EQ(constraint->may_end(), places.exit);
      compared += 1;
      if (tokens.empty()) break;
      const int32_t token = tokens[maker.random()() % tokens.size()];
      ASSERT_TRUE(constraint->accept(token));
      for (const char byte : trie->bytes_of(token)) {
        matcher.step(places, static_cast<uint8_t>(byte), next);
        std::swap(places, next);
      }
    }
  }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace doppler
