// The outputs of a run's steps, kept: what taps saw, what another program wrote to a file, or what an earlier run did.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/executor.h"

namespace doppler {

// One step's output for consecutive positions.
struct Stage {
  std::string name;
  int width = 0;
  int position = 0;         // of the first row
  std::vector<float> data;  // [rows, width]

  int rows() const { return width > 0 ? static_cast<int>(data.size()) / width : 0; }
  std::span<const float> row(int r) const {
    return std::span(data).subspan(static_cast<size_t>(r) * static_cast<size_t>(width), static_cast<size_t>(width));
  }
};

struct Stages {
  std::string source;  // for people: "cpu", a path
  std::vector<Stage> all;
  std::vector<int32_t> prompt_ids;  // empty where the source does not say
  std::string artefact;             // SHA-256 of the manifest of the model that ran; empty where nobody says
  Json bundle;  // of a run that somebody sent: model, version, backend, device, kernels {step: kernel}; null of any
                // other

  const Stage* find(std::string_view name) const;
};

// Collects what a tap sees. The object must outlive the tap.
class Capture {
 public:
  explicit Capture(std::string source) { stages_.source = std::move(source); }
  Tap tap();
  Stages take() { return std::move(stages_); }

 private:
  Stages stages_;
  std::map<std::string, size_t> index_;
};

// Steps of the layers asked for, and those outside of any layer; all steps for an empty list. Fails for a layer that
// is not there.
TapSteps steps_of_layers(const Plan& plan, std::span<const int> layers);

// Runs the tokens from an empty context with the tapped steps captured, and all logits; then goes on for `generate`
// likeliest tokens, which a backend may choose several at a time, and captures those as well (they are appended to
// prompt_ids). Fails before anything runs if what is captured would not fit in `max_bytes`.
struct CaptureOptions {
  int generate = 0;
  // Of the tokens the last ones, which run one by one in Phase::kDecode; what a feed-forward's halves make of each
  // other is not tapped there, so that a backend may leave it in the form its next product takes.
  int decoded = 0;
  size_t max_bytes = size_t{4} << 30;
  Tap watch = {};  // sees all of it as soon as it is there: on a GPU after each submit
};
Stages capture_run(Executor& executor, const Plan& plan, std::span<const int32_t> tokens, const TapSteps& steps,
                   const CaptureOptions& options = {});

// One safetensors file: one tensor f32 [rows, width] per stage. Its metadata keeps the order of the steps, the first
// row's position, the prompt, where it comes from, and what a bundle says.
void write_stages(const std::filesystem::path& path, const Stages& stages);

// Such a file, or one written by tools/dump_reference.py. Fails where a tensor is not f32 [rows, width].
Stages read_stages(const std::filesystem::path& path);

}  // namespace doppler
