// What a GGUF's metadata and its tokenizer mean.
#include <gmock/gmock.h>

#include <cmath>
#include <ctime>

#include "convert/gguf_export.h"
#include "import/gguf_model.h"
#include "support/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace doppler {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A GGUF whose metadata and tensors a test may spoil.
struct Spoiled {
  explicit Spoiled(const char* name = "llama-a") {
    convert(model(name), scratch / "a", with("f32"));
    export_gguf(scratch / "a", scratch / "m.gguf", {});
    bytes = slurp(scratch / "m.gguf");
  }
  void replace(const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
  }
  std::string refusal() {
    testing::spill(scratch / "m.gguf", bytes);
    return sentence([&] { convert(scratch / "m.gguf", scratch / "b", {.threads = 2}); });
  }
  Scratch scratch;
  std::string bytes;
};

TEST(GgufImport, NamesWhatIsWrong) {
  Spoiled architecture;
  architecture.replace(std::string("\5\0\0\0\0\0\0\0llama", 13), std::string("\5\0\0\0\0\0\0\0mamba", 13));
  EXPECT_THAT(architecture.refusal(), HasSubstr("no family serves this model"));
  Spoiled tensor;
  tensor.replace("blk.1.attn_q.weight", "blk.1.attn_x.weight");
  EXPECT_THAT(tensor.refusal(),
              ::testing::AllOf(HasSubstr("blk.1.attn_q.weight is missing"),
                               HasSubstr("blk.1.attn_x.weight [128, 128] is there, but nothing uses")));
  Spoiled key;
  key.replace("llama.feed_forward_length", "llama.feed_backward_lengt");
  EXPECT_THAT(key.refusal(), HasSubstr("llama.feed_backward_lengt"));
  Spoiled rotated;
  const size_t at = rotated.bytes.find("llama.rope.dimension_count") + 26 + 4;
  rotated.bytes[at] = 16;
  EXPECT_THAT(rotated.refusal(), HasSubstr("partial_rotary_factor = 0.5"));
  EXPECT_THAT(rotated.scratch.names(), Not(Contains("b")));
}

TEST(GgufImport, FrequencyDivisorsAreLlama3ScalingOrRefused) {
  for (const double original : {64.0, 8192.0, 131072.0}) {
    for (const double high : {4.0, 8.0}) {
      for (const double factor : {8.0, 32.0}) {
        RopeConfig rope{.theta = 500000, .scaling = RopeScaling::kLlama3, .factor = factor};
        rope.high_freq_factor = high;
        rope.original_context = original;
        const RopeTable table = make_rope_table(rope, 128);
        std::vector<float> divisors;
        for (size_t i = 0; i < 64; ++i)
          divisors.push_back(static_cast<float>(std::pow(500000.0, -static_cast<double>(i) / 64) / table.inv_freq[i]));
        const Json scaling = llama3_scaling_from(divisors, 500000, "test");
        EXPECT_EQ(scaling["factor"], factor);
        EXPECT_NEAR(scaling["high_freq_factor"].get<double>(), high, 1e-3);
        EXPECT_EQ(scaling["original_max_position_embeddings"], original);
      }
    }
  }
  EXPECT_TRUE(llama3_scaling_from(std::vector<float>(32, 1.f), 10000, "test").is_null());
  const std::vector<float> odd = {1, 2, 1, 8, 3, 1};
  EXPECT_THAT(sentence([&] { llama3_scaling_from(odd, 10000, "test"); }), HasSubstr("in a way that is not known"));
  const std::vector<float> none = {1, NAN};
  EXPECT_THAT(sentence([&] { llama3_scaling_from(none, 10000, "test"); }), HasSubstr("no number"));
}

// Published tokenizers through GGUF's metadata and back: the same ids for every recorded string.
class GgufTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufTokenizer, GivesTheSameIds) {
  const char* told = std::getenv("DOPPLER_TOKENIZERS");
  const fs::path folder = fs::path(told ? told : DOPPLER_BINARY_DIR "/tokenizers") / GetParam();
  if (!fs::exists(folder / "tokenizer.json")) GTEST_SKIP() << "tools/setup.sh test fetches them";
  const std::string file = std::string(DOPPLER_TEST_DATA) + "/tokens/" + GetParam() + ".json";
  const Json reference = parse_json(slurp(file), file);
  ModelConfig config;
  config.vocab = Tokenizer::load(folder).vocab_size();
  config.bos_id = Tokenizer::load(folder).named().bos;
  GgufHeader header;
  std::vector<std::string> notes;
  tokenizer_to_gguf(folder, config, header, notes);
  EXPECT_TRUE(notes.empty()) << notes.front();
  const std::string bytes = header.bytes();
  const GgufFile gguf(std::as_bytes(std::span(bytes.data(), bytes.size())), "tokens.gguf");
  const TokenizerFiles files = tokenizer_from_gguf(gguf, notes).value();
  const Tokenizer tokenizer = Tokenizer::from_files(files.tokenizer_json, files.tokenizer_config_json, "test");
  for (const Json& item : reference["cases"]) {
    const auto ids = item["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(item["text"].get<std::string>(), false), ids) << item["text"];
    EXPECT_EQ(tokenizer.encode(item["text"].get<std::string>(), true), item["with_special"].get<std::vector<int32_t>>())
        << item["text"];
    EXPECT_EQ(tokenizer.decode(ids, false), item["decoded"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufTokenizer, ::testing::Values("gemma2", "gemma3", "gptoss", "llama3_2", "qwen3"));

// Tokens of 1 to `longest` times the same letter: every cut of every one of them is a merge.
struct Runs {
  Runs(const std::string& letters, size_t longest) {
    std::vector<std::string> tokens;
    for (const char letter : letters) {
      for (size_t n = 1; n <= longest; ++n) tokens.emplace_back(n, letter);
    }
    header.put("tokenizer.ggml.model", "llama");
    header.put("tokenizer.ggml.scores", std::vector<float>(tokens.size()));
    header.put("tokenizer.ggml.tokens", tokens);
    bytes = header.bytes();
  }
  TokenizerFiles read() {
    std::vector<std::string> notes;
    return tokenizer_from_gguf(GgufFile(std::as_bytes(std::span(bytes.data(), bytes.size())), "t.gguf"), notes).value();
  }
  GgufHeader header;
  std::string bytes;
};

TEST(GgufTokenizer, TakesMemoryInProportionToItsVocabulary) {
  Runs honest("ab", 32);
  EXPECT_LT(honest.read().tokenizer_json.size(), 64 * honest.bytes.size());
  EXPECT_THAT(sentence([] { Runs("a", 256).read(); }),
              ::testing::AllOf(HasSubstr("absurdly many ways"), HasSubstr("at most 1052672 bytes")));
  EXPECT_THAT(sentence([] { Runs("abcd", 1024).read(); }),
              ::testing::AllOf(HasSubstr("absurdly many ways"), HasSubstr("at most 536870912 bytes")));
}

TEST(GgufTokenizer, TheLimitOfATokensLengthIsTheOneThatIsStated) {
  const auto read = [](size_t length) {
    GgufHeader header;
    header.put("tokenizer.ggml.model", "gpt2");
    header.put("tokenizer.ggml.tokens", std::vector<std::string>{"a", std::string(length, 'a')});
    header.put("tokenizer.ggml.merges",
               std::vector<std::string>{std::string(length, 'a') + " " + std::string(length, 'a')});
    const std::string bytes = header.bytes();
    std::vector<std::string> notes;
    tokenizer_from_gguf(GgufFile(std::as_bytes(std::span(bytes.data(), bytes.size())), "t.gguf"), notes);
  };
  EXPECT_NO_THROW(read(1024));
  EXPECT_THAT(sentence([&] { read(1025); }), HasSubstr("at most 1024 bytes, got 1025"));
}

TEST(GgufImport, TokensThatAllEndAnAnswerAreReadInOneGo) {
  GgufHeader header;
  std::vector<std::string> tokens(60'000, "<|im_end|>");
  header.put("general.architecture", "qwen2");
  for (const char* key : {"block_count", "attention.head_count"}) header.put(std::string("qwen2.") + key, uint32_t{2});
  for (const char* key : {"embedding_length", "feed_forward_length", "context_length", "vocab_size"}) {
    header.put(std::string("qwen2.") + key, uint32_t{60'000});
  }
  header.put("qwen2.attention.layer_norm_rms_epsilon", 1e-6f);
  header.put("tokenizer.ggml.tokens", tokens);
  const std::string bytes = header.bytes();
  const GgufFile gguf(std::as_bytes(std::span(bytes.data(), bytes.size())), "t.gguf");
  const std::clock_t begin = std::clock();
  EXPECT_THAT(config_from_gguf(gguf, family_for_gguf(gguf)).eos_ids, ::testing::SizeIs(60'000));
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 3);  // looking through them all each time: 9
}

TEST(GgufTokenizer, FaultsAreNamed) {
  const auto refusal = [](const std::function<void(GgufHeader&)>& fill) {
    GgufHeader header;
    fill(header);
    const std::string bytes = header.bytes();
    const GgufFile gguf(std::as_bytes(std::span(bytes.data(), bytes.size())), "t.gguf");
    std::vector<std::string> notes;
    return sentence([&] { tokenizer_from_gguf(gguf, notes); });
  };
  const std::vector<std::string> tokens = {"a", "b", "ab"};
  EXPECT_THAT(refusal([&](GgufHeader& h) {
                h.put("tokenizer.ggml.model", "bert");
                h.put("tokenizer.ggml.tokens", tokens);
              }),
              HasSubstr("llama or gpt2"));
  EXPECT_THAT(refusal([&](GgufHeader& h) {
                h.put("tokenizer.ggml.model", "llama");
                h.put("tokenizer.ggml.tokens", tokens);
                h.put("tokenizer.ggml.scores", std::vector<float>{1, 2});
              }),
              HasSubstr("a score for every token"));
  EXPECT_THAT(refusal([&](GgufHeader& h) {
                h.put("tokenizer.ggml.model", "gpt2");
                h.put("tokenizer.ggml.pre", "from-the-future");
                h.put("tokenizer.ggml.tokens", tokens);
              }),
              HasSubstr("from-the-future"));
  EXPECT_THAT(refusal([&](GgufHeader& h) {
                h.put("tokenizer.ggml.model", "gpt2");
                h.put("tokenizer.ggml.tokens", tokens);
                h.put("tokenizer.ggml.merges", std::vector<std::string>{"ab"});
              }),
              HasSubstr("not two tokens"));
  EXPECT_THAT(refusal([&](GgufHeader& h) {
                h.put("tokenizer.ggml.model", "llama");
                h.put("tokenizer.ggml.tokens", std::vector<std::string>{"a", "\xff\xfe"});
              }),
              HasSubstr("not valid UTF-8"));
}

}  // namespace
}  // namespace doppler
