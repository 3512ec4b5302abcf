#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace doppler {

class Blake3;
class Sha256;

// The digest of a shard's bytes by the name that a manifest has for it, sha256 or blake3, as lower-case hex. By the
// name of blake3 go two, the standard's and the JavaScript engine's (base/blake3.h).
class ShardHash {
 public:
  static bool knows(std::string_view algorithm) { return algorithm == "sha256" || algorithm == "blake3"; }
  explicit ShardHash(std::string_view algorithm);  // one that it knows
  ~ShardHash();
  void update(std::span<const std::byte> bytes);
  std::string finish(std::string_view expected);  // the one that is expected, if it is; else the standard's

 private:
  std::unique_ptr<Sha256> sha256_;
  std::unique_ptr<Blake3> blake3_, variant_;
};

}  // namespace doppler
