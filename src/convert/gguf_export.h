// From an artefact to a GGUF file that llama.cpp runs.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "convert/artefact.h"
#include "format/gguf_writer.h"
#include "format/rdrr.h"

namespace doppler {

struct GgufExportOptions {
  // Empty: every tensor keeps its type where GGUF can hold it (rows there are whole blocks; others become Q8_0 or F16).
  // q4_0, q4_k_m, q8_0, f16, bf16, f32: the types that llama.cpp's own quantiser would choose.
  std::string quant{};
  int threads = 0;
  bool replace = false;                                         // a file that is already there gives way
  std::function<void(uint64_t done, uint64_t all)> progress{};  // weights
  std::function<bool()> cancelled{};
};

// The file is written whole or not at all. Fails if GGUF has no place for one of the model's numbers.
ArtefactReport export_gguf(const std::filesystem::path& artefact, const std::filesystem::path& target,
                           const GgufExportOptions& options);

// The type a tensor gets. `output`: it is the output matrix (the embedding, where the two are one).
DType gguf_export_dtype(const std::string& quant, const std::string& slot, QuantClass kind, bool output, DType own,
                        int64_t cols, int layers);

// The other way of tokenizer_from_gguf(): adds tokenizer.ggml.* and the chat template from the files in `folder` to a
// header. Without a tokenizer.json there, the tokens are numbered placeholders, which `notes` says.
void tokenizer_to_gguf(const std::filesystem::path& folder, const ModelConfig& config, GgufHeader& header,
                       std::vector<std::string>& notes);

}  // namespace doppler
