// An artefact with a weight that is no number, whole in every other way.
#pragma once

#include <cstring>
#include <filesystem>
#include <string>

#include "base/files.h"
#include "base/json.h"
#include "support/scratch.h"

namespace doppler::testing {

// The first number of a tensor of f32 becomes NaN, and the manifest gets the hash of the shard as it is then.
inline void plant_nan(const std::filesystem::path& artefact, const std::string& tensor) {
  Json manifest = parse_json(slurp(artefact / "manifest.json"), "manifest.json");
  const Json& entry = manifest["tensors"][tensor];
  ASSERT_EQ(entry["dtype"].text(), "F32");
  Json& shard = manifest["shards"][entry["shard"].get<size_t>()];
  std::string bytes = slurp(artefact / shard["filename"].text());
  constexpr uint32_t kNaN = 0x7fc00000;
  std::memcpy(bytes.data() + entry["offset"].get<size_t>(), &kNaN, sizeof kNaN);
  spill(artefact / shard["filename"].text(), bytes);
  shard["hash"] = sha256_hex(std::as_bytes(std::span(bytes)));
  spill(artefact / "manifest.json", manifest.dump());
}

}  // namespace doppler::testing
