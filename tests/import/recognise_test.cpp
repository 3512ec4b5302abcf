// What people hand in by mistake: each gets one sentence, with what it is and what to do.
#include "import/recognise.h"

#include <gmock/gmock.h>

#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:"
    "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

class Recognise : public ::testing::Test {
 protected:
  void add(const std::string& name, std::string_view bytes) const {
    fs::create_directories((scratch / name).parent_path());
    spill(scratch / name, bytes);
  }
  std::string refusal(const std::string& name = ".") const {
    return sentence([&] { recognise(scratch / name); });
  }
  Scratch scratch;
};

TEST_F(Recognise, ModelsAreLeftAlone) {
  EXPECT_EQ(recognise(DOPPLER_SOURCE_DIR "/models/tiny"), DOPPLER_SOURCE_DIR "/models/tiny");
  EXPECT_EQ(recognise(DOPPLER_TEST_DATA "/models/gemma3-b"), DOPPLER_TEST_DATA "/models/gemma3-b");
  add("m.gguf", "GGUF");
  EXPECT_EQ(recognise(scratch / "m.gguf"), scratch / "m.gguf");
  EXPECT_EQ(recognise(scratch / "nothing"), scratch / "nothing");
}

TEST_F(Recognise, PointersOfGitLfs) {
  add("config.json", "{}");
  add("model.safetensors", kPointer);
  const auto expected = AllOf(HasSubstr("git-LFS pointer"), HasSubstr("model.safetensors"), HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal(), expected);
  EXPECT_THAT(refusal("model.safetensors"), expected);
  add("g/m.gguf", kPointer);
  EXPECT_THAT(refusal("g"), AllOf(HasSubstr("git-LFS pointer"), HasSubstr("m.gguf")));
  add("t/config.json", "{}");
  add("t/model.safetensors", "weights");
  add("t/tokenizer.json", kPointer);
  EXPECT_THAT(refusal("t"), AllOf(HasSubstr("git-LFS pointer, not the tokenizer"), HasSubstr("tokenizer.json")));
}

TEST_F(Recognise, AnAdapterAlone) {
  add("adapter_config.json", R"({"base_model_name_or_path": "org/base", "peft_type": "LORA"})");
  add("adapter_model.safetensors", "weights");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("an adapter (LoRA), not a whole model"), HasSubstr("for org/base"),
                               HasSubstr("doppler convert BASE OUT --merge-lora ")));
}

TEST_F(Recognise, ATokenizerAlone) {
  for (const char* name : {"tokenizer.model", "tekken.json"}) {
    const std::string folder = std::string("only-") + name;
    add(folder + "/" + name, "pieces");
    EXPECT_THAT(refusal(folder), AllOf(HasSubstr("a tokenizer without a model"), HasSubstr(name)));
    EXPECT_THAT(refusal(folder + "/" + name), HasSubstr("a tokenizer, not a model"));
  }
}

TEST_F(Recognise, Pickles) {
  add("config.json", "{}");
  add("pytorch_model.bin", "PK\x03\x04 and the rest of a zip archive");
  add("old.pt", "\x80\x02 and the rest of a pickle");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("the weights are pickles"), HasSubstr("old.pt, pytorch_model.bin"),
                               HasSubstr("safetensors or GGUF")));
  EXPECT_THAT(refusal("old.pt"), HasSubstr("this is a pickle"));
  add("both/config.json", "{}");
  add("both/model.safetensors", "weights");
  add("both/pytorch_model.bin", "PK\x03\x04");
  EXPECT_EQ(recognise(scratch / "both"), scratch / "both") << "pickles beside safetensors do no harm";
}

TEST_F(Recognise, CheckpointsForMlx) {
  add("config.json", R"({"model_type": "any", "quantization": {"group_size": 64, "bits": 4}})");
  add("model.safetensors", "weights");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("quantised for MLX"), HasSubstr("group_size"), HasSubstr("a GGUF of it")));
}

TEST_F(Recognise, ModelsForOtherPrograms) {
  for (const auto& [file, format] : {std::pair("model.onnx", "ONNX"),
                                     {"openvino_model.xml", "OpenVINO"},
                                     {"mlc-chat-config.json", "MLC"},
                                     {"rank0.engine", "TensorRT"},
                                     {"model.litertlm", "LiteRT"},
                                     {"flax_model.msgpack", "Flax"},
                                     {"tf_model.h5", "TensorFlow"}}) {
    const std::string folder = std::string("for-") + format;
    add(folder + "/config.json", "{}");
    add(folder + "/tokenizer.json", "{}");
    add(folder + "/" + file, "weights");
    const auto expected = AllOf(HasSubstr(std::string("a model for ") + format), HasSubstr("in safetensors or GGUF"));
    EXPECT_THAT(refusal(folder), expected);
    EXPECT_THAT(refusal(folder + "/" + file), expected);
    add(folder + "/model.safetensors", "weights");
    EXPECT_EQ(recognise(scratch / folder), scratch / folder) << "beside safetensors it does no harm";
  }
}

TEST_F(Recognise, AnEmptyFolder) { EXPECT_THAT(refusal(), HasSubstr("the folder is empty")); }

TEST_F(Recognise, AFolderOfGgufs) {
  add("a-Q4_K_M.gguf", "GGUF");
  EXPECT_EQ(recognise(scratch.path()), scratch / "a-Q4_K_M.gguf") << "one is meant if there is only one";
  add("b-Q8_0.gguf", "GGUF");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("several GGUF files"), HasSubstr("a-Q4_K_M.gguf, b-Q8_0.gguf"),
                               HasSubstr("Name one of them")));
  add("split/m-00001-of-00002.gguf", "GGUF");
  add("split/m-00002-of-00002.gguf", "GGUF");
  EXPECT_EQ(recognise(scratch / "split"), scratch / "split/m-00001-of-00002.gguf");
}

TEST_F(Recognise, AModelsRootInTheCache) {
  const std::string root = "models--org--name", commit(40, 'a'), other(40, 'b');
  add(root + "/blobs/x", "weights");
  add(root + "/snapshots/" + commit + "/config.json", "{}");
  add(root + "/snapshots/" + commit + "/model.safetensors", "weights");
  EXPECT_EQ(recognise(scratch / root), scratch / (root + "/snapshots/" + commit));
  add(root + "/snapshots/" + other + "/config.json", "{}");
  add(root + "/snapshots/" + other + "/model.safetensors", "weights");
  EXPECT_THAT(refusal(root), AllOf(HasSubstr("which snapshot is meant"), HasSubstr(commit), HasSubstr(other)));
  add(root + "/refs/main", other);
  EXPECT_EQ(recognise(scratch / root), scratch / (root + "/snapshots/" + other));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("Hugging Face's cache, not a model"), HasSubstr(root)));
}

TEST_F(Recognise, WeightsWithoutAConfig) {
  add("model.safetensors", "weights");
  EXPECT_THAT(refusal(), HasSubstr("no config.json"));
  EXPECT_THAT(refusal("model.safetensors"), HasSubstr("Name the folder that holds config.json"));
}

}  // namespace
}  // namespace doppler
