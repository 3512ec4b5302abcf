// What tests of files share: a folder of their own, bytes in and out, and what a failure says.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace doppler::testing {

// A folder that disappears with the test.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "doppler-test-XXXXXX").string();
    if (::mkdtemp(name.data())) path_ = name;
  }
  ~Scratch() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  // Everything in the folder, hidden names included.
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& item : std::filesystem::directory_iterator(path_)) out.push_back(item.path().filename().string());
    return out;
  }

 private:
  std::filesystem::path path_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Changes one bit of a file in place.
inline void flip_bit(const std::filesystem::path& path, size_t byte) {
  std::string bytes = slurp(path);
  bytes[byte] = static_cast<char>(bytes[byte] ^ 0x10);
  spill(path, bytes);
}

// What `action` must fail with; a test failure if it does not.
template <class Action>
Error error_of(Action&& action) {
  try {
    action();
  } catch (const Failure& failure) {
    return failure.error;
  }
  ADD_FAILURE() << "nothing failed";
  return {};
}

// The message of what `action` fails with; empty if it does not.
template <class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

// The message of the failure that `action` must end in; empty (and a test failure) if it ends in none.
template <class Action>
std::string sentence(Action&& action) {
  const std::string message = message_of(action);
  if (message.empty()) ADD_FAILURE() << "nothing failed";
  return message;
}

}  // namespace doppler::testing

// Tests name what is here without its namespace.
namespace doppler {
using namespace testing;
namespace fs = std::filesystem;
}  // namespace doppler
