// A PEFT folder with an adapter of models/tiny, written with nothing of ours.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

namespace doppler::testing {

// Every layer's down_proj, rank 2, numbers of `seed`: strong enough that a greedy text is another.
inline std::filesystem::path write_adapter_of_tiny(const std::filesystem::path& folder, uint32_t seed) {
  constexpr int kLayers = 8, kRank = 2, kHidden = 512, kFfn = 1024;
  std::string header = "{";
  std::vector<float> numbers;
  uint32_t state = seed * 2654435761u + 1;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const auto& [half, rows, cols] : {std::tuple("A", kRank, kFfn), std::tuple("B", kHidden, kRank)}) {
      const size_t begin = numbers.size() * sizeof(float);
      for (int i = 0; i < rows * cols; ++i) {
        state = state * 1664525u + 1013904223u;
        numbers.push_back(static_cast<float>(state >> 8) / 8388608.f - 1.f);
      }
      header += std::string(header.size() > 1 ? "," : "") + "\"base_model.model.model.layers." + std::to_string(layer) +
                ".mlp.down_proj.lora_" + half + ".weight\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(rows) +
                "," + std::to_string(cols) + "],\"data_offsets\":[" + std::to_string(begin) + "," +
                std::to_string(numbers.size() * sizeof(float)) + "]}";
    }
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "adapter_config.json") << R"({"peft_type": "LORA", "r": 2, "lora_alpha": 2})";
  std::ofstream file(folder / "adapter_model.safetensors", std::ios::binary);
  const uint64_t size = header.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << header;
  file.write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof(float)));
  return folder;
}

}  // namespace doppler::testing
