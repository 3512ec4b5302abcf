// A Plan made ready for the CPU: its steps lowered to operations on rows of buffers, grouped into nodes. All threads
// run a node together and meet at its end.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cpu/linear.h"
#include "cpu/memory.h"
#include "cpu/packed_weights.h"
#include "model/adapters.h"
#include "model/plan.h"
#include "model/weights.h"

namespace doppler::cpu {

// Storage of one value in one form (see Input), one row per token.
struct Buffer {
  std::string name;
  size_t row_bytes = 0;
  bool logit_rows = false;    // has rows only for the positions whose logits are asked for
  bool local = false;         // lives within one row of one node: one row of a thread's own scratch is enough
  bool outside = false;       // the logits: memory of the executor
  int first = -1, last = -1;  // nodes that write and last read it; -1: never used
  size_t offset = 0;          // into the arena, or into a thread's scratch when local
};

enum class OpKind : uint8_t {
  kAngles,  // cosines and sines of this row's position
  kEmbed,
  kNorm,
  kRope,
  kAdd,
  kGlu,
  kSoftCap,
  kScale,
  kRoute,
  kCombine,
  kPart,
  kQuantize,  // f32 row to 8 or 15 bits
  kStoreKv,   // fresh keys and values into their pages
  kMerge,     // joins the parts of an attention that was split by keys
  kMatMul,
  kExpertMatMul,
  kAttend,
  kShortConv,  // these two go on from a state
  kDeltaNet,
  kLoraDown,  // of rows whose sequences have adapters: A x, side by side for all adapters
  kLoraUp,    // … and what becomes of it, added to the matrix's product where that lies
};

// Where an adapter's A x lies in a row of kLoraDown.
struct PlacedPair {
  const LoraPair* pair = nullptr;  // null: the adapter leaves this matrix alone
  size_t first = 0;                // f32 before it
};

struct Op {
  OpKind kind = OpKind::kAdd;
  int step = -1;        // of the plan
  std::vector<int> in;  // buffers
  int out = -1;         // buffer
  bool logit_rows = false;
  // Small weights as f32: a norm's (offset + w), sinks, a route's, a convolution's [kernel][channels], a delta net's
  // decay (−exp), then dt.
  std::vector<float> numbers;
  Linear matrix;                       // matmuls and embed
  Input input = Input::kF32;           // kQuantize: to what
  int segments = 1;                    // kQuantize: parts of the row that are quantised separately
  int columns = 0;                     // kQuantize: of a segment
  GluParams glu{};                     // kGlu
  bool interleaved = false;            // kGlu
  float cap = 0;                       // kSoftCap
  float factor = 1;                    // kScale
  std::vector<PlacedPair> pairs = {};  // kLoraDown, kLoraUp: by number of the adapter
};

// One product of a matmul node with what follows it at once: out = cap(glu(a·x, b·x)).
struct MatMulPart {
  Linear a, b;  // b only with glu
  int in = -1;
  int out = -1, out_quantised = -1;  // buffers; either may be missing
  Input quantised_as = Input::kInt8;
  bool glu = false;
  GluParams glu_params{};
  float softcap = 0;
};

// Products that one node may share out; few, since every thread looks at all of them.
inline constexpr size_t kMaxParts = 8;

enum class NodeKind : uint8_t { kRows, kMatMul, kExperts, kAttend, kState, kLora };

struct Node {
  NodeKind kind;
  bool logit_rows = false;
  std::vector<Op> ops;            // kRows: run in order on each row; otherwise one
  std::vector<MatMulPart> parts;  // kMatMul
  int finished_step = -1;         // the plan's step whose output is whole after this node
  bool unfused = false;           // never fused with another
  bool quantizes_late = false;    // its one quantize is done by the node before where groups can be quantised alone
};

struct AngleTable {
  int rope, head_dim;
  RopeTable table;
  size_t offset;  // floats into a row of the angles buffer: cosines, then sines
};

// Moved, never copied: matrices point to biases that lie in the nodes' operations.
struct Program {
  Program() = default;
  Program(Program&&) = default;
  Program& operator=(Program&&) = default;

  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::vector<AngleTable> angles;
  std::vector<std::pair<int, size_t>> angle_of_step;  // kRope ops: step → offset of its cosines
  int input = -1;                                     // buffer of the rows that a stage is handed; -1: none
  int output = -1;                                    // buffer of the logits, or of what a stage hands on
  size_t arena_bytes = 0, local_bytes = 0;
};

struct CompileOptions {
  const Kernels* kernels = nullptr;
  const PackedWeights* packed = nullptr;
  int block = 1;
  int context = 0;                       // tokens of a sequence
  const Adapters* adapters = nullptr;    // that sequences may have; null: none
  bool fuse = true;                      // false: one node per step, every value in the arena
  std::vector<bool> unfused_steps = {};  // by step: these stay nodes of their own, whatever else is fused
};

Program compile(const ModelConfig& config, const Plan& plan, const Weights& weights, const CompileOptions& options);

// The patterns that join nodes; see fuse.cpp. Called by compile().
void fuse_glu(Program& program);
void fuse_softcap(Program& program);
void fuse_quantize(Program& program);
void fuse_shared_input(Program& program);
void fuse_rows(Program& program);

// Lifetimes from the nodes, then places: two buffers alive at the same node never share a byte.
void place_buffers(Program& program, int block, bool local_allowed);
// The pairs of buffers that do; empty if all is well.
std::vector<std::string> overlapping_buffers(const Program& program, int block);

// One line per node: what it runs and which buffers it touches.
std::string describe(const Program& program, const Plan& plan);

// Buffers a node reads and writes.
std::vector<int> buffers_read(const Node& node);
std::vector<int> buffers_written(const Node& node);

}  // namespace doppler::cpu
