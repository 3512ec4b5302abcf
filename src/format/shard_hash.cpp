#include "format/shard_hash.h"

#include <fmt/format.h>

#include "base/blake3.h"
#include "base/error.h"
#include "base/files.h"

namespace doppler {

ShardHash::ShardHash(std::string_view algorithm) {
  if (algorithm == "sha256") {
    sha256_ = std::make_unique<Sha256>();
  } else if (algorithm == "blake3") {
    blake3_ = std::make_unique<Blake3>();
    variant_ = std::make_unique<Blake3>(Blake3::kVariant);
  } else {
    fail({.code = ErrorCode::kInternal, .what = "no such hash", .where = std::string(algorithm)});
  }
}

ShardHash::~ShardHash() = default;

void ShardHash::update(std::span<const std::byte> bytes) {
  if (sha256_) return sha256_->update(bytes);
  for (Blake3* hash : {blake3_.get(), variant_.get()})
    hash->update(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

std::string ShardHash::finish(std::string_view expected) {
  if (sha256_) return sha256_->finish();
  std::string hex;
  for (const Blake3* hash : {variant_.get(), blake3_.get()}) {
    uint8_t digest[32];
    hash->finish(digest);
    hex.clear();
    for (const uint8_t byte : digest) hex += fmt::format("{:02x}", byte);
    if (hex == expected) break;
  }
  return hex;
}

}  // namespace doppler
