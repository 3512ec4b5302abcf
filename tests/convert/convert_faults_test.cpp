// What a conversion cannot do is said in a sentence, and nothing of it is left.
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/half.h"
#include "convert/gguf_export.h"
#include "support/checkpoint.h"

namespace doppler {
namespace {

using ::testing::Contains, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::UnorderedElementsAre;

TEST(ConvertFaults, ADisagreementOfConfigAndTensorsStopsWithTheNames) {
  {
    Checkpoint c("gemma3-a");
    c.remove("model.layers.3.post_feedforward_layernorm.weight");
    EXPECT_THAT(c.refusal(), HasSubstr("model.layers.3.post_feedforward_layernorm.weight is missing"));
  }
  {
    Checkpoint c("llama-a");  // a norm that the family's mathematics does not have
    RawTensor extra = c.tensor("model.layers.1.input_layernorm.weight");
    extra.name = "model.layers.1.pre_feedforward_layernorm.weight";
    c.tensors.push_back(extra);
    EXPECT_THAT(c.refusal(), HasSubstr("model.layers.1.pre_feedforward_layernorm.weight [128] is there, but nothing"));
  }
  {
    Checkpoint c("gptoss-a");
    c.config["attention_bias"] = false;
    EXPECT_THAT(c.refusal(), HasSubstr("model.layers.0.self_attn.k_proj.bias [64] is there, but nothing uses it"));
  }
  {
    Checkpoint c("gemma3-a");
    c.config["intermediate_size"] = 321;
    EXPECT_THAT(c.refusal(), HasSubstr("has shape [320, 160], but the config calls for [321, 160]"));
  }
  {
    Checkpoint c("gptoss-a");
    c.config["num_local_experts"] = 9;
    EXPECT_THAT(c.refusal(), HasSubstr("do not pack the [9, 192, 128]"));
  }
  {
    Checkpoint c("gemma3-a");
    c.remove("model.embed_tokens.weight");
    EXPECT_THAT(c.refusal(), HasSubstr("no embedding"));
  }
  {
    Checkpoint c("gemma3-a");
    c.config["num_hidden_layers"] = 6;
    EXPECT_THAT(c.refusal(), HasSubstr("and 1 more")) << "13 tensors of layer 6, 12 of them named";
  }
}

TEST(ConvertFaults, ARepeatedOutputMatrixIsLeftOutAndAnotherOneStops) {
  Checkpoint c("gemma3-a");
  RawTensor head = c.tensor("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  c.tensors.push_back(head);
  EXPECT_THAT(convert(c.save(), c.target(), with("f32")).notes, Contains(HasSubstr("repeats the embedding")));
  Checkpoint d("gemma3-a");
  d.tensors.push_back(head);
  d.own(d.tensors.back())[0] ^= std::byte{1};
  EXPECT_THAT(d.refusal(), HasSubstr("lm_head.weight is there and differs"));
}

TEST(ConvertFaults, WeightsThatAreNoNumbersAreNamed) {
  Checkpoint c("llama-a");
  RawTensor& raw = c.tensor("model.layers.2.mlp.up_proj.weight");
  const uint16_t nan = 0x7fc0;
  std::memcpy(c.own(raw).data() + 2 * (128 * 77 + 5), &nan, 2);
  EXPECT_THAT(c.refusal(with("q4_k_m")), HasSubstr("model.layers.2.mlp.up_proj.weight, row 77"));
  Checkpoint d("gptoss-a");
  d.own(d.tensor("model.layers.0.mlp.experts.down_proj_scales"))[3] = std::byte{255};
  EXPECT_THAT(d.refusal(), HasSubstr("down_proj_scales"));
}

TEST(ConvertFaults, WeightsThatDoNotFitHalfPrecisionAreNamed) {
  Checkpoint c("llama-a");
  const uint16_t large = f32_to_bf16(1e6f);
  std::memcpy(c.own(c.tensor("model.layers.2.mlp.up_proj.weight")).data(), &large, 2);
  EXPECT_THAT(c.refusal(with("f16")), HasSubstr("too large for F16"));
  EXPECT_NO_THROW(convert(c.save(), c.target(), with("bf16")));
}

TEST(ConvertFaults, WrongPlacesAreMetWithASentence) {
  Scratch scratch;
  EXPECT_THAT(sentence([&] { convert(scratch / "nowhere", scratch / "out", with("f32")); }),
              HasSubstr("not a checkpoint"));
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), model("llama-a"), with("f32")); }),
              HasSubstr("the same folder"));
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), model("llama-a") / ".." / "llama-a" / "", with("f32")); }),
              HasSubstr("the same folder"));
  ConvertOptions force = with("f32");
  force.replace = true;
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), fs::path(DOPPLER_TEST_DATA), force); }),
              HasSubstr("inside the destination"));
  fs::create_directory(scratch / "full");
  spill(scratch / "full" / "holiday.jpg", "x");
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), scratch / "full", with("f32")); }), HasSubstr("already there"));
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), scratch / "full", force); }), HasSubstr("artefacts only"));
  EXPECT_TRUE(fs::exists(scratch / "full" / "holiday.jpg"));
  spill(scratch / "file", "x");
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), scratch / "file" / "out", with("f32")); }), HasSubstr("folder"));
}

TEST(ConvertFaults, ForceReplacesAnArtefactAndKeepsWhatIsNoneOfIts) {
  Scratch scratch;
  convert(model("llama-a"), scratch / "out", with("f32"));
  ConvertOptions options = with("q8_0");
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), scratch / "out", options); }), HasSubstr("--force"));
  options.replace = true;
  spill(scratch / "out" / "README.md", "a card");
  spill(scratch / "out" / "tokenizer.json", "{}");
  fs::create_directory(scratch / "out" / "notes");
  spill(scratch / "out" / "notes" / "a.txt", "a note");
  convert(model("llama-a"), scratch / "out", options);
  EXPECT_EQ(RdrrReader::open(scratch / "out").manifest()["quantization"], "Q8_0");
  EXPECT_EQ(slurp(scratch / "out" / "README.md"), "a card");
  EXPECT_EQ(slurp(scratch / "out" / "notes" / "a.txt"), "a note");
  EXPECT_FALSE(fs::exists(scratch / "out" / "tokenizer.json")) << "the old artefact's";
  EXPECT_THAT(scratch.names(), ElementsAre("out"));
}

TEST(ConvertFaults, AnUnknownFamilyIsRefused) {
  Checkpoint c("llama-a");
  c.config["architectures"] = {"MambaForCausalLM"};
  EXPECT_THAT(c.refusal(), HasSubstr("no family serves this model"));
}

TEST(ConvertFaults, AMissingTokenizerIsAnErrorUnlessExcused) {
  Checkpoint c("llama-a");
  ConvertOptions options = with("f32");
  options.no_tokenizer = false;
  EXPECT_THAT(c.refusal(options), HasSubstr("--no-tokenizer"));
  options.no_tokenizer = true;
  EXPECT_THAT(convert(c.save(), c.target(), options).notes, Contains(HasSubstr("--prompt-ids")));
  EXPECT_TRUE(RdrrReader::open(c.target()).manifest()["tokenizer"].is_null());
}

TEST(ConvertFaults, ATokenizerThatCannotBeUsedIsMetBeforeTheWork) {
  Checkpoint c("llama-a");
  spill(c.save() / "tokenizer.json", R"({"model": {"type": "Bigram", "vocab": {}, "merges": []}})");
  ConvertOptions options = with("f32");
  options.progress = [](uint64_t, uint64_t) { ADD_FAILURE() << "the work has begun"; };
  EXPECT_THAT(c.refusal(options), HasSubstr("Bigram"));
}

TEST(ConvertFaults, CancellingLeavesNothing) {
  Checkpoint c("qwen3-a");
  ConvertOptions options = with("q4_k_m");
  int calls = 0;
  options.cancelled = [&] { return ++calls == 20; };
  EXPECT_THAT(c.refusal(options), HasSubstr("interrupted"));
  EXPECT_EQ(calls, 20);
}

TEST(ConvertFaults, AKilledConversionLeavesNothingThatLooksWhole) {
  Scratch scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    ConvertOptions options = with("q8_0");
    options.threads = 1;
    options.shard_size = 65536;
    options.progress = [](uint64_t done, uint64_t all) {
      if (done * 10 > all * 9) ::kill(::getpid(), SIGKILL);
    };
    convert(model("qwen3-a"), scratch / "out", options);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(scratch / "out"));
  EXPECT_EQ(scratch.names().size(), 2u) << "a folder and a lock";
  for (const std::string& name : scratch.names()) EXPECT_NE(sentence([&] { RdrrReader::open(scratch / name); }), "");
  convert(model("qwen3-a"), scratch / "out", with("q8_0"));
  EXPECT_THAT(scratch.names(), ElementsAre("out")) << "the next conversion tidies up";
}

TEST(ConvertFaults, AKilledExportIsTidiedUpByTheNext) {
  Scratch scratch;
  convert(model("qwen3-a"), scratch / "m", with("q8_0"));
  const pid_t child = ::fork();
  if (child == 0) {
    export_gguf(scratch / "m", scratch / "m.gguf", {.threads = 1, .progress = [](uint64_t done, uint64_t all) {
                                                      if (done * 10 > all * 9) ::kill(::getpid(), SIGKILL);
                                                    }});
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(scratch / "m.gguf"));
  EXPECT_EQ(scratch.names().size(), 3u) << "the artefact, half a file and a lock";
  export_gguf(scratch / "m", scratch / "m.gguf", {.threads = 1});
  EXPECT_THAT(scratch.names(), UnorderedElementsAre("m", "m.gguf"));
}

TEST(ConvertFaults, ASecondWriterOfATargetIsRefusedAndTheFirstGoesOn) {
  Scratch scratch;
  int refusals = 0;
  const auto once = [&](uint64_t done, const std::function<void()>& second) {
    if (done < 100'000 || refusals % 2 != 0) return;
    ++refusals;
    EXPECT_THAT(sentence(second), HasSubstr("is being written already"));
  };
  ConvertOptions options = with("q8_0");
  options.progress = [&](uint64_t done, uint64_t) {
    once(done, [&] { convert(model("llama-a"), scratch / "m", with("f32")); });
  };
  convert(model("qwen3-a"), scratch / "m", options);
  EXPECT_EQ(refusals, 1);
  EXPECT_THAT(RdrrReader::verify(scratch / "m"), ElementsAre());
  refusals = 2;
  const auto second = [&] { export_gguf(scratch / "m", scratch / "m.gguf", {.threads = 1}); };
  export_gguf(scratch / "m", scratch / "m.gguf",
              {.threads = 1, .progress = [&](uint64_t done, uint64_t) { once(done, second); }});
  EXPECT_EQ(refusals, 3);
  EXPECT_THAT(scratch.names(), UnorderedElementsAre("m", "m.gguf"));
}

TEST(ConvertFaults, AFileThatCannotGrowEndsInASentenceAndLeavesNothing) {
  Checkpoint c("llama-a");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  c.save();
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 200'000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string text = sentence([&] { convert(model("llama-a"), c.target(), with("f32")); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old);
  EXPECT_THAT(text, HasSubstr("cannot be written"));
  EXPECT_THAT(c.scratch().names(), ElementsAre("source"));
}

TEST(ConvertFaults, AFullDiskEndsInASentenceAndLeavesNothing) {
  Scratch scratch;
  const fs::path disk = scratch / "disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=4m") != 0) GTEST_SKIP() << "needs the right to mount a tmpfs";
  // Too small from the start: said before anything is written, with the room it needs.
  spill(disk / "ballast", std::string(3'000'000, 'x'));
  EXPECT_THAT(sentence([&] { convert(model("llama-a"), disk / "out", with("f32")); }), HasSubstr("too little room"));
  // Enough at the start, then somebody else takes it.
  fs::remove(disk / "ballast");
  ConvertOptions options = with("f32");
  options.progress = [&](uint64_t done, uint64_t) {
    if (done > 200'000 && !fs::exists(disk / "ballast")) spill(disk / "ballast", std::string(4 << 20, 'x'));
  };
  const std::string text = sentence([&] { convert(model("llama-a"), disk / "out", options); });
  EXPECT_THAT(text, HasSubstr("Free some disk space"));
  std::vector<std::string> left;
  for (const auto& item : fs::directory_iterator(disk)) left.push_back(item.path().filename().string());
  EXPECT_THAT(left, ElementsAre("ballast"));
  ::umount(disk.c_str());
}

}  // namespace
}  // namespace doppler
