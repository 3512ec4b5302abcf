#include "format/safetensors.h"

#include <gmock/gmock.h>

#include <ctime>
#include <random>

#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

template <class T>
RawTensor raw(const std::string& name, const std::string& dtype, std::vector<int64_t> shape, const std::vector<T>& v) {
  return {name, dtype, std::move(shape), std::as_bytes(std::span(v)), {}};
}

// A file with the given header text and this many bytes behind it.
void write_raw(const std::filesystem::path& path, const std::string& header, size_t data) {
  uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  spill(path, bytes + header + std::string(data, '\0'));
}

std::string refusal(const std::string& header, size_t data) {
  Scratch scratch;
  write_raw(scratch / "x.safetensors", header, data);
  return sentence([&] { SafetensorsFile file(scratch / "x.safetensors"); });
}

TEST(Safetensors, WhatIsWrittenIsReadBackWithItsBytes) {
  Scratch scratch;
  const std::vector<float> a{1, -2, 3.5f, 0, 5, 6};
  const std::vector<uint16_t> b{0x3f80, 0xc000, 0x4040};
  const std::vector<uint8_t> c{1, 2, 3, 255};
  write_safetensors(scratch / "x.safetensors",
                    {raw("a", "F32", {2, 3}, a), raw("b", "BF16", {3}, b), raw("c", "U8", {2, 2}, c)},
                    {{"made", "here"}});
  const SafetensorsFile file(scratch / "x.safetensors");
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata()["made"], "here");
  EXPECT_EQ(std::memcmp(file.find("a")->bytes.data(), a.data(), 24), 0);
  EXPECT_EQ(file.find("c")->bytes[3], std::byte{255});
  Tensor tensor;
  ASSERT_TRUE(to_tensor(*file.find("b"), tensor));
  EXPECT_EQ(tensor.dtype, DType::kBF16);
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{3}));
  EXPECT_FALSE(to_tensor(*file.find("c"), tensor)) << "raw bytes are no weights";
  EXPECT_EQ(file.find("nothing"), nullptr);
}

TEST(Safetensors, ReleasedBytesStayReadable) {
  Scratch scratch;
  std::vector<float> a(100'000);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i);
  write_safetensors(scratch / "x.safetensors", {raw("a", "F32", {100, 1000}, a)});
  const SafetensorsFile file(scratch / "x.safetensors");
  file.release(file.find("a")->bytes);
  EXPECT_EQ(std::memcmp(file.find("a")->bytes.data(), a.data(), a.size() * 4), 0);
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  Scratch scratch;
  const std::vector<float> a(20, 1.f);
  write_safetensors(scratch / "x.safetensors", {raw("a", "F32", {20}, a)});
  const std::string whole = slurp(scratch / "x.safetensors");
  for (size_t length = 0; length < whole.size(); length += 3) {
    spill(scratch / "y.safetensors", whole.substr(0, length));
    EXPECT_NE(sentence([&] { SafetensorsFile file(scratch / "y.safetensors"); }), "") << length;
  }
}

TEST(Safetensors, BadHeadersAreMetWithASentence) {
  EXPECT_THAT(refusal("{", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(R"({"a":3})", 0), HasSubstr("object"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("unknown dtype"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), HasSubstr("disagree"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("disagree"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4), HasSubstr("whole numbers"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4), HasSubstr("outside the file"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4), HasSubstr("outside the file"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4), HasSubstr("data_offsets"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", 4),
              HasSubstr("disagree"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8), HasSubstr("disagree"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
                          "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                      8),
              HasSubstr("overlaps"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), HasSubstr("belong to none"));
}

TEST(Safetensors, NoChangeOfTheHeaderCrashesTheReader) {
  Scratch scratch;
  const std::vector<float> a(20, 1.f);
  write_safetensors(scratch / "x.safetensors", {raw("a", "F32", {5, 4}, a), raw("b", "F32", {20}, a)});
  const std::string whole = slurp(scratch / "x.safetensors");
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      bytes[random() % (whole.size() - 160)] = random() % 2 ? static_cast<char>(random()) : "0123456789"[random() % 10];
    }
    spill(scratch / "y.safetensors", bytes);
    try {
      const SafetensorsFile file(scratch / "y.safetensors");
      for (const auto& [name, tensor] : file.tensors()) {
        if (!tensor.bytes.empty()) {
          volatile std::byte last = tensor.bytes.back();
          (void)last;
        }
      }
    } catch (const Failure&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Safetensors, AHeaderLongerThanTheFileIsRefused) {
  Scratch scratch;
  spill(scratch / "x.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  EXPECT_THAT(sentence([&] { SafetensorsFile file(scratch / "x.safetensors"); }), HasSubstr("does not fit"));
}

TEST(SafetensorsFolder, ReadsShardsThroughTheIndex) {
  const SafetensorsFolder folder(DOPPLER_TEST_DATA "/models/gemma3-b");
  EXPECT_EQ(folder.tensors().size(), 80u);
  ASSERT_NE(folder.find("model.norm.weight"), nullptr);
  EXPECT_EQ(folder.find("model.norm.weight")->shape, (std::vector<int64_t>{128}));
  EXPECT_EQ(folder.find("model.norm.weight")->file.filename(), "model-00002-of-00002.safetensors");
}

TEST(SafetensorsFolder, ReadsASingleFile) {
  const SafetensorsFolder folder(DOPPLER_TEST_DATA "/models/gptoss-a");
  EXPECT_EQ(folder.find("model.layers.0.mlp.experts.down_proj_blocks")->dtype, "U8");
}

TEST(SafetensorsFolder, SixtyThousandTensorsAreReadInLittleTime) {
  Scratch scratch;
  std::string header = "{", index = R"({"weight_map":{)";
  for (int i = 0; i < 60'000; ++i) {
    const std::string comma = i > 0 ? "," : "", name = "model.layers." + std::to_string(i * 7919 % 60'000) + ".weight";
    const std::string at = std::to_string(i);
    header += comma + "\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + at + "," +
              std::to_string(i + 1) + "]}";
    index += comma + "\"" + name + R"(":"one.safetensors")";
  }
  write_raw(scratch / "one.safetensors", header + "}", 60'000);
  spill(scratch / "model.safetensors.index.json", index + "}}");
  const std::clock_t begin = std::clock();
  EXPECT_EQ(SafetensorsFolder(scratch.path()).tensors().size(), 60'000u);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5.0) << "seconds of this process";
}

TEST(SafetensorsFolder, BadFoldersAreMetWithASentence) {
  Scratch scratch;
  const auto open = [&] { return sentence([&] { SafetensorsFolder folder(scratch.path()); }); };
  EXPECT_THAT(open(), HasSubstr("no .safetensors file"));
  EXPECT_THAT(sentence([&] { SafetensorsFolder folder(scratch / "nowhere"); }), HasSubstr("not a folder"));
  const std::vector<float> a{1, 2};
  write_safetensors(scratch / "one.safetensors", {raw("a", "F32", {2}, a)});
  write_safetensors(scratch / "two.safetensors", {raw("a", "F32", {2}, a)});
  EXPECT_THAT(open(), HasSubstr("without an index"));
  const auto index = [&](const char* map) { spill(scratch / "model.safetensors.index.json", map); };
  index(R"({"weight_map":{"a":"one.safetensors","b":"three.safetensors"}})");
  EXPECT_THAT(open(), HasSubstr("three.safetensors"));
  index(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})");
  EXPECT_THAT(open(), HasSubstr("does not hold"));
  index(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  EXPECT_THAT(open(), HasSubstr("the same tensor"));
  index(R"({"weight_map":{"a":"../one.safetensors"}})");
  EXPECT_THAT(open(), HasSubstr("plain file name"));
  index(R"({"weight_map":{"a":7}})");
  EXPECT_THAT(open(), HasSubstr("wrong type"));
  index("not json");
  EXPECT_THAT(open(), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace doppler
