// The tensors of a checkpoint as its model means them: matrices that somebody quantised are tensors of their own name
// and shape again, their rows computed when they are read. What is stored plainly is given as it lies in its file.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "format/quantised_rows.h"
#include "format/safetensors.h"

namespace doppler {

class CheckpointTensors {
 public:
  // `hf_config` is its config.json, which says what the tensors do not. The tensors of the dense layers that
  // sentence_modules.h finds are named after their slots: dense0.linear.weight, ….
  CheckpointTensors(const std::filesystem::path& folder, const Json& hf_config);

  // A matrix that is decoded has `rows` instead of bytes. Groups of tensors that do not fit together are there without
  // a shape; to find() one fails with a sentence, for most of them belong to a part that is left out.
  const std::map<std::string, RawTensor>& tensors() const { return tensors_; }
  const RawTensor* find(const std::string& name) const;

  uint64_t stored_bytes(const RawTensor& tensor) const;  // in the files
  // Lets the system drop pages of the files: `bytes` of a plain tensor, all of a decoded one.
  void release(const RawTensor& tensor, std::span<const std::byte> bytes) const;

  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void add_groups(const QuantisedLayout& layout, const Json* quantisation);
  void add(const std::string& name, QuantisedMatrix matrix, std::vector<const RawTensor*> parts);
  void add_dense(const std::filesystem::path& folder);
  const RawTensor* part(const std::string& name) const { return files_.find(name); }

  SafetensorsFolder files_;
  std::deque<SafetensorsFolder> dense_;
  std::map<std::string, std::pair<const SafetensorsFolder*, std::string>> of_dense_;  // its files, its name in them
  std::map<std::string, RawTensor> tensors_;
  std::map<std::string, std::vector<const RawTensor*>> parts_;  // of a decoded matrix
  std::map<std::string, Error> faults_;
  std::map<std::string, int> kinds_;
  std::vector<std::string> notes_;
};

}  // namespace doppler
