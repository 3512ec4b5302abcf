// Checkpoints for tests of the converter.
#pragma once

#include <gmock/gmock.h>

#include <memory>

#include "convert/convert.h"
#include "format/safetensors.h"
#include "support/scratch.h"

namespace doppler::testing {

inline std::filesystem::path model(const std::string& name) {
  return std::filesystem::path(DOPPLER_TEST_DATA) / "models" / name;
}

inline ConvertOptions with(const std::string& recipe) {
  ConvertOptions options;
  options.recipe = recipe_named(recipe);
  options.no_tokenizer = true;
  options.threads = 2;
  return options;
}

// A copy of a test checkpoint that a test may spoil: `edit` changes tensors by name; config.json is `config`.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& name) : folder_(scratch_ / "source"), source_(model(name)) {
    std::filesystem::create_directory(folder_);
    config = parse_json(slurp(model(name) / "config.json"), name);
    for (const auto& [key, raw] : source_.tensors()) tensors.push_back(raw);
  }
  RawTensor& tensor(const std::string& name) {
    for (RawTensor& raw : tensors) {
      if (raw.name == name) return raw;
    }
    ADD_FAILURE() << name;
    return tensors.front();
  }
  void remove(const std::string& name) {
    std::erase_if(tensors, [&](const RawTensor& raw) { return raw.name == name; });
  }
  // Bytes that belong to this checkpoint, to be changed before save().
  std::vector<std::byte>& own(RawTensor& raw) {
    bytes_.push_back(std::make_unique<std::vector<std::byte>>(raw.bytes.begin(), raw.bytes.end()));
    raw.bytes = *bytes_.back();
    return *bytes_.back();
  }
  const std::filesystem::path& save() {
    spill(folder_ / "config.json", config.dump());
    write_safetensors(folder_ / "model.safetensors", tensors);
    return folder_;
  }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path target() const { return scratch_ / "target"; }
  const Scratch& scratch() const { return scratch_; }
  std::string refusal(const ConvertOptions& options = with("f32")) {
    const std::string text = sentence([&] { convert(save(), target(), options); });
    EXPECT_THAT(scratch_.names(), ::testing::ElementsAre("source")) << "nothing may be left";
    return text;
  }

  Json config;
  std::vector<RawTensor> tensors;

 private:
  Scratch scratch_;
  std::filesystem::path folder_;
  SafetensorsFolder source_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> bytes_;
};

}  // namespace doppler::testing
