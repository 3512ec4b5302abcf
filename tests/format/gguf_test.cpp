#include "format/gguf.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "format/gguf_writer.h"
#include "support/scratch.h"

namespace doppler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A GGUF file put together by hand, so that every number in it can be a lie.
class Bytes {
 public:
  template <class T>
  Bytes& number(T value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& string(std::string_view s) {
    number(static_cast<uint64_t>(s.size()));
    text += s;
    return *this;
  }
  Bytes& begin(uint64_t tensors, uint64_t pairs, uint32_t version = 3) {
    text = "GGUF";
    return number(version).number(tensors).number(pairs);
  }
  Bytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    string(name).number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) number(d);
    return number(type).number(offset);
  }
  Bytes& data(size_t bytes) {
    text.resize((text.size() + 31) / 32 * 32 + bytes);
    return *this;
  }
  GgufFile open() const { return GgufFile(std::as_bytes(std::span(text.data(), text.size())), "test.gguf"); }
  std::string refusal() const {
    return sentence([&] { open(); });
  }
  std::string text;
};

TEST(Gguf, WhatIsWrittenIsReadBack) {
  Scratch scratch;
  GgufHeader header;
  header.put("general.architecture", "test");
  header.put("a.count", 7u);
  header.put("a.real", 0.5f);
  header.put("a.flag", true);
  header.put("a.texts", std::vector<std::string>{"", "two words", "ü"});
  header.put("a.reals", std::vector<float>{1, -2.5f});
  header.put("a.ids", std::vector<int32_t>{-1, 1 << 30});
  header.add_tensor("matrix", DType::kQ8_0, {3, 64});
  header.add_tensor("vector", DType::kF32, {5});
  header.add_tensor("experts", DType::kMXFP4, {2, 3, 32});
  std::vector<std::byte> matrix(3 * 68), experts(2 * 3 * 17);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<std::byte>(i);
  const float vector[5] = {1, 2, 3, 4, 5};
  {
    GgufWriter writer(scratch / "m.gguf", header);
    writer.write(std::span(matrix).first(68));
    EXPECT_THAT(scratch.names(), ::testing::Not(::testing::Contains("m.gguf"))) << "not there before it is whole";
    writer.write(std::span(matrix).subspan(68));
    writer.write(std::as_bytes(std::span(vector)));
    writer.write(experts);
    writer.commit();
  }
  EXPECT_THAT(scratch.names(), ElementsAre("m.gguf"));
  EXPECT_TRUE(is_gguf(scratch / "m.gguf"));
  const GgufFile file(scratch / "m.gguf");
  EXPECT_EQ(file.find("general.architecture")->string(), "test");
  EXPECT_EQ(file.find("a.count")->number(), 7);
  EXPECT_EQ(file.find("a.real")->number(), 0.5);
  EXPECT_TRUE(*file.find("a.flag")->boolean());
  EXPECT_THAT(file.find("a.texts")->array()->strings, ElementsAre("", "two words", "ü"));
  EXPECT_EQ(file.find("a.reals")->array()->number(1), -2.5);
  EXPECT_EQ(file.find("a.ids")->array()->number(0), -1);
  EXPECT_EQ(file.find("absent"), nullptr);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_THAT(file.tensor("matrix")->shape, ElementsAre(3, 64));
  EXPECT_THAT(file.tensor("experts")->shape, ElementsAre(2, 3, 32));
  EXPECT_EQ(std::memcmp(file.tensor("matrix")->bytes.data(), matrix.data(), matrix.size()), 0);
  EXPECT_EQ(std::memcmp(file.tensor("vector")->bytes.data(), vector, sizeof vector), 0);
}

TEST(Gguf, AnUnfinishedFileLeavesNothing) {
  Scratch scratch;
  GgufHeader header;
  header.add_tensor("vector", DType::kF32, {5});
  {
    GgufWriter writer(scratch / "m.gguf", header);
    EXPECT_THAT(sentence([&] { writer.commit(); }), HasSubstr("were not written"));
  }
  EXPECT_TRUE(scratch.names().empty());
}

TEST(Gguf, EveryTypeHasItsNumberInGgml) {
  for (int i = 0; i < kDTypeCount; ++i) {
    DType back = DType::kF32;
    EXPECT_TRUE(dtype_from_ggml(ggml_number(static_cast<DType>(i)), back));
    EXPECT_EQ(back, static_cast<DType>(i));
  }
  DType out = DType::kF32;
  for (const uint32_t none : {4u, 5u, 9u, 15u, 24u, 28u, 40u, 0xffffffffu}) EXPECT_FALSE(dtype_from_ggml(none, out));
}

TEST(Gguf, EveryTypeOfValueIsRead) {
  Bytes b;
  b.begin(0, 12);
  b.string("u8").number(0u).number(uint8_t{255});
  b.string("i8").number(1u).number(int8_t{-3});
  b.string("u16").number(2u).number(uint16_t{65535});
  b.string("i16").number(3u).number(int16_t{-300});
  b.string("u32").number(4u).number(uint32_t{4000000000u});
  b.string("i32").number(5u).number(int32_t{-70000});
  b.string("f32").number(6u).number(1.5f);
  b.string("bool").number(7u).number(uint8_t{0});
  b.string("u64").number(10u).number(uint64_t{1} << 40);
  b.string("i64").number(11u).number(-(int64_t{1} << 40));
  b.string("f64").number(12u).number(0.1);
  b.string("none").number(9u).number(8u).number(uint64_t{0});
  const GgufFile file = b.open();
  EXPECT_EQ(file.find("u8")->number(), 255);
  EXPECT_EQ(file.find("i8")->number(), -3);
  EXPECT_EQ(file.find("u16")->number(), 65535);
  EXPECT_EQ(file.find("i16")->number(), -300);
  EXPECT_EQ(file.find("u32")->number(), 4e9);
  EXPECT_EQ(file.find("i32")->number(), -70000);
  EXPECT_EQ(file.find("f32")->number(), 1.5);
  EXPECT_FALSE(*file.find("bool")->boolean());
  EXPECT_EQ(file.find("u64")->number(), 0x1p40);
  EXPECT_EQ(file.find("i64")->number(), -0x1p40);
  EXPECT_EQ(file.find("f64")->number(), 0.1);
  EXPECT_EQ(file.find("none")->array()->count, 0u);
}

TEST(GgufFaults, WhatIsNoGgufIsRefused) {
  EXPECT_THAT(Bytes().refusal(), HasSubstr("an empty file"));
  Bytes zip;
  zip.text = "PK\x03\x04 something else entirely";
  EXPECT_THAT(zip.refusal(), HasSubstr("this is not a GGUF file"));
  EXPECT_THAT(Bytes().begin(0, 0, 1).refusal(), HasSubstr("this version of GGUF cannot be read"));
  EXPECT_THAT(Bytes().begin(0, 0, 4).refusal(), HasSubstr("version 2 or 3"));
  EXPECT_THAT(Bytes().begin(0, 0, 3u << 24).refusal(), HasSubstr("big-endian"));
  EXPECT_NO_THROW(Bytes().begin(0, 0, 2).open());
}

TEST(GgufFaults, CountsPastTheEndAreRefused) {
  EXPECT_THAT(Bytes().begin(~0ull, 0).refusal(), HasSubstr("tensors is more than the file can hold"));
  EXPECT_THAT(Bytes().begin(0, 1ull << 60).refusal(), HasSubstr("metadata keys is more than the file can hold"));
  Bytes array;
  array.begin(0, 1).string("a").number(9u).number(4u).number(~0ull / 4 + 2);
  EXPECT_THAT(array.data(64).refusal(), HasSubstr("array elements is more than the file can hold"));
  Bytes strings;
  strings.begin(0, 1).string("a").number(9u).number(8u).number(1ull << 61);
  EXPECT_THAT(strings.data(64).refusal(), HasSubstr("strings in an array is more than the file can hold"));
}

TEST(GgufFaults, StringBombsAreRefused) {
  Bytes key;
  key.begin(0, 1).number(~0ull).data(64);
  EXPECT_THAT(key.refusal(), HasSubstr("length of a metadata key is impossible"));
  Bytes value;
  value.begin(0, 1).string("a").number(8u).number(1ull << 40).data(64);
  EXPECT_THAT(value.refusal(), HasSubstr("length of a value is impossible"));
  Bytes element;
  element.begin(0, 1).string("a").number(9u).number(8u).number(2ull).string("fine").number(~0ull - 7).data(64);
  EXPECT_THAT(element.refusal(), HasSubstr("length of a string of an array is impossible"));
  Bytes nested;
  nested.begin(0, 1).string("a").number(9u).number(9u).number(1ull).data(64);
  EXPECT_THAT(nested.refusal(), HasSubstr("an array holds arrays"));
}

TEST(GgufFaults, AbsurdTensorsAreRefused) {
  const auto one = [](const std::vector<uint64_t>& dims, uint32_t type = 0, uint64_t offset = 0) {
    return Bytes().begin(1, 0).tensor("t", dims, type, offset).data(256).refusal();
  };
  EXPECT_THAT(one({}), HasSubstr("impossible number of dimensions"));
  EXPECT_THAT(one({1, 1, 1, 1, 1}), HasSubstr("impossible number of dimensions"));
  EXPECT_THAT(one({0}), HasSubstr("absurd dimension"));
  EXPECT_THAT(one({1ull << 63}), HasSubstr("absurd dimension"));
  EXPECT_THAT(one({1ull << 32, 1ull << 32}), HasSubstr("absurd dimension"));
  EXPECT_THAT(one({1ull << 40}), HasSubstr("past the end of the file"));
  EXPECT_THAT(one({65}), HasSubstr("past the end of the file"));
  EXPECT_THAT(one({8}, 0, 256), HasSubstr("past the end of the file"));
  EXPECT_THAT(one({8}, 0, ~0ull - 31), HasSubstr("past the end of the file"));
  EXPECT_THAT(one({8}, 0, 7), HasSubstr("not aligned"));
  EXPECT_THAT(one({33}, 8), HasSubstr("not a whole number of Q8_0 blocks"));
  EXPECT_THAT(one({8}, 28), HasSubstr("ggml type 28"));
  EXPECT_NO_THROW(Bytes().begin(1, 0).tensor("t", {8, 8}, 0, 0).data(256).open());
}

TEST(GgufFaults, TensorsThatOverlapAreRefused) {
  Bytes b;
  b.begin(2, 0).tensor("later", {16}, 0, 32).tensor("first", {16}, 0, 0).data(256);
  EXPECT_THAT(b.refusal(), HasSubstr("got first and later"));
  b.begin(2, 0).tensor("t", {8}, 0, 0).tensor("t", {8}, 0, 32).data(256);
  EXPECT_THAT(b.refusal(), HasSubstr("a tensor is there twice"));
  b.begin(2, 0).tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 32).data(64);
  EXPECT_NO_THROW(b.open());
}

TEST(GgufFaults, KeysThatContradictAreRefused) {
  Bytes b;
  b.begin(0, 2).string("a").number(4u).number(1u).string("a").number(4u).number(2u).data(32);
  EXPECT_THAT(b.refusal(), HasSubstr("a metadata key is there twice"));
  b.begin(0, 1).string("a").number(13u).data(32);
  EXPECT_THAT(b.refusal(), HasSubstr("a type that does not exist"));
  for (const float alignment : {0.f, 3.f, 1e30f, std::numeric_limits<float>::quiet_NaN()}) {
    b.begin(0, 1).string("general.alignment").number(6u).number(alignment).data(32);
    EXPECT_THAT(b.refusal(), HasSubstr("general.alignment is impossible"));
  }
}

TEST(GgufFaults, AFileCutAnywhereIsRefused) {
  Bytes whole;
  whole.begin(1, 3);
  whole.string("general.architecture").number(8u).string("test");
  whole.string("texts").number(9u).number(8u).number(2ull).string("ab").string("c");
  whole.string("ids").number(9u).number(5u).number(3ull).number(1).number(2).number(3);
  whole.tensor("t", {32, 2}, 8, 0).data(68);
  EXPECT_NO_THROW(whole.open());
  for (size_t size = 0; size < whole.text.size(); ++size) {
    Bytes cut;
    cut.text = whole.text.substr(0, size);
    EXPECT_FALSE(cut.refusal().empty()) << size;
  }
}

}  // namespace
}  // namespace doppler
