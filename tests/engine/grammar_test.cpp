// Answers held to a grammar, by whoever computes them: the same alone and in a batch, with and without guesses.
#include <gtest/gtest.h>

#include "engine/backend.h"
#include "engine/generator.h"
#include "engine/session.h"
#include "grammar/grammar.h"
#include "support/json_schema.h"
#include "support/scratch.h"

namespace doppler {
namespace {

constexpr const char* kSchema = R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
  "age": {"type": "integer", "minimum": 1, "maximum": 120}, "kind": {"enum": ["cat", "dog", "cow"]},
  "likes": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3}},
  "required": ["name", "age", "kind", "likes"], "additionalProperties": false})";

class Held : public ::testing::Test {
 protected:
  Session session(const char* backend = "cpu") {
    return Session(make_executor(model_, backend, {.context = 512}), &*model_.tokenizer, 512);
  }
  std::vector<int32_t> prompt(const char* text = "Once upon a time there was a cat.") {
    return model_.tokenizer->encode(text, true);
  }
  GenerateOptions options(float temperature, uint64_t seed) {
    GenerateOptions o{.max_tokens = 200, .end_ids = model_.config.eos_ids, .grammar = grammar_};
    o.sampling.temperature = temperature;
    o.sampling.seed = seed;
    return o;
  }

  LoadedModel model_ = LoadedModel::load(DOPPLER_SOURCE_DIR "/models/tiny");
  std::shared_ptr<const TokenTrie> trie_ = TokenTrie::make(*model_.tokenizer);
  std::shared_ptr<const TokenGrammar> grammar_ = grammar_from_json_schema(kSchema, "test", trie_);
};

TEST_F(Held, GreedyAndSampledAnswersAreValid) {
  const testing::JsonSchema schema(parse_json(kSchema, "test"));
  Session chat = session();
  for (int i = 0; i < 12; ++i) {
    const Generation answer =
        chat.generate(prompt(), options(i == 0 ? 0.0f : 0.3f * static_cast<float>(i), static_cast<uint64_t>(i)));
    ASSERT_EQ(answer.stop_reason, StopReason::kEnd) << answer.text;
    EXPECT_TRUE(schema.faults(parse_json(answer.text, "answer")).empty()) << answer.text;
  }
}

TEST_F(Held, GuessesChangeNothing) {
  Session plain = session(), guessing = session();
  int guessed = 0;
  for (uint64_t seed = 0; seed < 6; ++seed) {
    GenerateOptions o = options(seed == 0 ? 0.0f : 1.0f, seed);
    const char* text =
        R"({"name": "Tom", "age": 3, "kind": "cat", "likes": ["milk", "milk"]} {"name": "Tom", "age": 3, "kind")";
    const Generation expected = plain.generate(prompt(text), o);
    o.speculation = Speculation::kNgram;
    const Generation answer = guessing.generate(prompt(text), o);
    EXPECT_EQ(answer.token_ids, expected.token_ids);
    guessed += answer.timing.guessed;
  }
  EXPECT_GT(guessed, 0);
}

TEST_F(Held, TheSameInABatchBesideFreeAnswers) {
  const auto executor = make_executor(model_, "cpu", {.context = 256, .sequences = 8});
  Generator generator(*executor, model_.config, &*model_.tokenizer, {.scheduler = {.context = 256}, .now_ms = {}});
  std::map<uint64_t, std::string> told, expected;
  for (uint64_t i = 0; i < 6; ++i) {
    GenerateOptions o = options(1.0f, i);
    o.max_tokens = 100;
    if (i % 2 == 1) o.grammar = nullptr;
    const auto submitted = generator.submit({.prompt = prompt(), .options = o}, [&](const GenerateEvent& event) {
      if (event.finished) told[event.id.request] = event.finished->text;
      return true;
    });
    Session alone = session();
    expected[submitted.id] = alone.generate(prompt(), o).text;
  }
  while (generator.step()) {
  }
  EXPECT_EQ(told, expected);
}

// Complaint: generation without end. Where no token can go on the answer ends and says so; others go on.
TEST_F(Held, WhereNoTokenIsLeftTheAnswerEnds) {
  // The vocabulary has no way to write what follows the a: its byte tokens are taken out.
  std::vector<std::pair<std::string, int32_t>> words = {{"a", model_.tokenizer->token_id("a")}};
  const auto small = std::make_shared<TokenTrie>(words, true);
  GenerateOptions o = options(0, 0);
  o.grammar = grammar_from_gbnf("root ::= \"aab\"", "test", small);
  Session chat = session();
  const Generation answer = chat.generate(prompt(), o);
  EXPECT_EQ(answer.stop_reason, StopReason::kNoToken);
  EXPECT_EQ(answer.text, "aa");

  const auto executor = make_executor(model_, "cpu", {.context = 256, .sequences = 4});
  Generator generator(*executor, model_.config, &*model_.tokenizer, {.scheduler = {.context = 256}, .now_ms = {}});
  std::vector<StopReason> reasons;
  for (const auto& grammar : {o.grammar, grammar_}) {
    o.grammar = grammar;
    generator.submit({.prompt = prompt(), .options = o}, [&](const GenerateEvent& event) {
      if (event.finished) reasons.push_back(event.finished->stop_reason);
      return true;
    });
  }
  while (generator.step()) {
  }
  EXPECT_EQ(reasons, (std::vector<StopReason>{StopReason::kNoToken, StopReason::kEnd}));
}

TEST_F(Held, EndsWithoutAnEndTokenWhenNothingCanFollow) {
  GenerateOptions o = options(0, 0);
  o.end_ids.clear();
  o.grammar = grammar_from_gbnf("root ::= \"yes\" | \"no\"", "test", trie_);
  Session chat = session();
  const Generation answer = chat.generate(prompt(), o);
  EXPECT_EQ(answer.stop_reason, StopReason::kEnd);
  EXPECT_TRUE(answer.text == "yes" || answer.text == "no") << answer.text;
}

}  // namespace
}  // namespace doppler
