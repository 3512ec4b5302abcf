// A GGUF file as a model of ours: its numbers, and where each slot's weights lie in it.
#pragma once

#include <deque>
#include <optional>
#include <set>

#include "import/gguf_config.h"
#include "import/gguf_tokenizer.h"
#include "model/weights.h"

namespace doppler {

// Where a slot's weights come from, and what llama.cpp's converter did to them that has to be undone.
struct GgufSlot {
  std::string slot;
  TensorRule rule;
  std::vector<int64_t> shape;        // as the plan needs it
  std::vector<const Tensor*> parts;  // one, or two whose rows alternate
  int paired_head = 0;               // > 0: heads of this many rows lie in the order of rotated pairs
  float added = 0;                   // what was added to every weight (a norm's offset)

  DType dtype() const { return parts.front()->dtype; }
  bool rearranged() const { return parts.size() > 1 || paired_head > 0 || added != 0; }
};

struct GgufModel {
  GgufFile file;
  const Family* family;
  ModelConfig config;
  std::vector<GgufSlot> slots;  // in the plan's order
  std::deque<Tensor> views;     // parts of tensors that hold several slots
  std::vector<std::string> notes;
  std::string file_type;  // the type most of its bytes have
};

// Reads and checks it all: every slot of the plan has its tensors in the right shape, and every tensor is used.
// `family` overrides the one that general.architecture names.
GgufModel read_gguf_model(const std::filesystem::path& path, const Family* family = nullptr,
                          const std::set<std::string>& harmless = {});

// The type a slot's weights are given to the engine in: their own if there are kernels for it, on the CPU or
// everywhere, else Q8_0; F32 for what is never quantised.
DType gguf_target_dtype(const GgufSlot& slot, bool cpu_only = false);

// How often a slot's rows are counted when they are fetched one by one: rows of a matrix; single weights where vectors
// are rearranged.
struct GgufRows {
  int64_t count = 0, cols = 0;
};
GgufRows rows_of(const GgufSlot& slot);

// One row (of rows_of()) in our order. kStored: `out` holds it as `to`, since the file's numbers are exact in that
// type. kDecoded: `to` has to round, and values[cols] hold what is to be rounded. kNotFinite: a weight is no number.
enum class RowState : uint8_t { kStored, kDecoded, kNotFinite };
RowState read_row(const GgufSlot& slot, int64_t row, DType to, std::byte* out, float* values);

// A model that runs from the file itself: weights stay where they are mapped, except those that had to be rearranged or
// have no kernels, which are held here. The notes say which and why.
struct OpenedGguf {
  ModelConfig config;
  Weights weights;
  Weights gpu_weights;  // the same, but what only the CPU has kernels for is Q8_0 when it is read
  std::optional<TokenizerFiles> tokenizer;
  std::string file_type;
  uint64_t file_bytes = 0, copied_bytes = 0;
  std::vector<std::string> notes;
  std::shared_ptr<const void> owner;  // of the weights' bytes
};
OpenedGguf open_gguf(const std::filesystem::path& path, int threads = 0);

}  // namespace doppler
