// The vectors that the algorithm's authors publish: byte i of the input is i modulo 251.
#include "base/blake3.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace doppler {
namespace {

constexpr std::pair<size_t, const char*> kVectors[] = {
    {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
    {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
    {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
    {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
    {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
    {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
    {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
    {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
    {4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
    {31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
    {102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"}};

// The same inputs by the JavaScript engine's src/storage/blake3.js.
constexpr std::pair<size_t, const char*> kOfTheVariant[] = {
    {0, "fda1200e7626ed65703a9c8eb28987d8142bf29fcf7cf582e0c44cc7ad8a8ea8"},
    {1, "1103c1e16280c2008da4b71450ad5ad844b71a5e09df9c1948dfb83f4a77e0d9"},
    {1024, "720a04b59cf6a8b148ca1f6ef8a3b2168077f2baf111197742bc6b17e2dbc694"},
    {1025, "b74c0de1b15fd2449d0ca9d16e22a356275308cc3ca15c34659c6773168a5179"},
    {2049, "3c83e087ee55b9851dcab0d9a59f747d1e9720fdbbbd7f0e305a7384f0861026"},
    {3072, "bf894de697d5bd05f88aff863f6390ea42cb3e9af3754a4b8e3429ce2784f6e8"},
    {5121, "efeac9abe4808640eeca84e814b33f897974dc4166acb63a04875ac710a4436b"},
    {102400, "670bc3a6daff417df3b8ceec172e14fa61ece7f3b93145e6c6f8d679ae8d6f52"}};

std::string digest_of(const std::vector<uint8_t>& bytes, size_t piece, Blake3::Kind kind) {
  Blake3 hash(kind);
  for (size_t at = 0; at < bytes.size(); at += piece) hash.update(&bytes[at], std::min(piece, bytes.size() - at));
  uint8_t digest[32];
  hash.finish(digest);
  std::string hex;
  for (const uint8_t byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

void expect_digest(size_t size, const std::string& expected, Blake3::Kind kind) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i % 251);
  for (const size_t piece : {size_t{1}, size_t{63}, size_t{64}, size_t{1000}, size_t{1024}, size_t{1} << 20})
    EXPECT_EQ(digest_of(bytes, piece, kind), expected) << size << " bytes in pieces of " << piece;
}

TEST(Blake3, IsWhatItsAuthorsPublishHoweverTheBytesCome) {
  for (const auto& [size, expected] : kVectors) expect_digest(size, expected, Blake3::kStandard);
}

TEST(Blake3, TheVariantIsWhatTheJavaScriptEngineWrites) {
  for (const auto& [size, expected] : kOfTheVariant) expect_digest(size, expected, Blake3::kVariant);
}

TEST(Blake3, IsReadyForOthersAfterReset) {
  Blake3 hash;
  const std::vector<uint8_t> bytes(5000, 7);
  hash.update(bytes.data(), bytes.size());
  hash.reset();
  uint8_t once[32], fresh[32];
  hash.finish(once);
  Blake3().finish(fresh);
  EXPECT_TRUE(std::equal(once, once + 32, fresh));
}

}  // namespace
}  // namespace doppler
