// Reads a small safetensors file for a test: the whole file in memory, tensors by name. Trusts the file's contents.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json.h"

namespace doppler::test {

struct TestTensor {
  std::string dtype;  // "F32", "U8", …
  std::vector<size_t> shape;
  std::vector<uint8_t> bytes;

  std::vector<float> floats() const {
    if (dtype != "F32") throw std::runtime_error("not F32 but " + dtype);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

struct TestTensors {
  std::map<std::string, TestTensor> tensors;
  std::map<std::string, std::string> metadata;
};

inline TestTensors read_safetensors(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (file.size() < 8) throw std::runtime_error("cannot read " + path);
  uint64_t header_size;
  std::memcpy(&header_size, file.data(), sizeof header_size);
  const char* header_begin = file.data() + 8;
  const char* data = header_begin + header_size;
  TestTensors result;
  const Json header = parse_json({header_begin, data}, path);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items()) result.metadata[key] = value.text();
      continue;
    }
    const auto begin = entry["data_offsets"][0].get<size_t>(), end = entry["data_offsets"][1].get<size_t>();
    result.tensors[name] = {entry["dtype"].text(), entry["shape"].get<std::vector<size_t>>(),
                            std::vector<uint8_t>(data + begin, data + end)};
  }
  return result;
}

}  // namespace doppler::test
