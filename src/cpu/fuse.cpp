// The fusion table. Each function knows one pattern of neighbouring nodes and joins them; the arithmetic stays the
// same, so a fused program gives bit for bit what the unfused one gives.
//
//   fuse_glu           matmul, matmul, glu         one node: both rows, then their product; gate and up never stored
//   fuse_softcap       matmul, softcap             the cap on the rows just computed
//   fuse_quantize      matmul, quantize            int8 straight from the rows just computed, group by group; where a
//                                                  scale is many groups', at once when the row is whole
//   fuse_shared_input  matmul, matmul, …           one list of work for q, k and v
//   fuse_rows          row op, row op, …           norm, add, norm, rope, quantize back to back on each row
#include <algorithm>
#include <iterator>

#include "cpu/program.h"

namespace doppler::cpu {
namespace {

int readers(const Program& program, int buffer) {
  int count = 0;
  for (const Node& node : program.nodes) {
    const std::vector<int> read = buffers_read(node);
    count += static_cast<int>(std::count(read.begin(), read.end(), buffer));
  }
  return count;
}

bool is_single_matmul(const Node& node) {
  return node.kind == NodeKind::kMatMul && node.parts.size() == 1 && !node.unfused;
}
bool is_row_op(const Node& node, OpKind kind) {
  return node.kind == NodeKind::kRows && node.ops.size() == 1 && node.ops[0].kind == kind && !node.unfused;
}

// Takes node `from` into node `into`, keeping what its matrices point to.
void absorb(Program& program, size_t into, size_t from) {
  Node& a = program.nodes[into];
  Node& b = program.nodes[from];
  std::move(b.ops.begin(), b.ops.end(), std::back_inserter(a.ops));
  if (b.finished_step >= 0) a.finished_step = b.finished_step;
  program.nodes.erase(program.nodes.begin() + static_cast<std::ptrdiff_t>(from));
}

}  // namespace

void fuse_glu(Program& program) {
  for (size_t i = 0; i + 2 < program.nodes.size(); ++i) {
    Node& gate = program.nodes[i];
    const Node& up = program.nodes[i + 1];
    const Node& glu = program.nodes[i + 2];
    if (!is_single_matmul(gate) || !is_single_matmul(up) || !is_row_op(glu, OpKind::kGlu)) continue;
    const MatMulPart& a = gate.parts[0];
    const MatMulPart& b = up.parts[0];
    const Op& op = glu.ops[0];
    const bool matches = !op.interleaved && op.in == std::vector<int>{a.out, b.out} && a.in == b.in &&
                         a.a.rows == b.a.rows && a.a.cols == b.a.cols && !a.glu && !b.glu &&
                         gate.logit_rows == up.logit_rows && gate.logit_rows == glu.logit_rows &&
                         readers(program, a.out) == 1 && readers(program, b.out) == 1;
    if (!matches) continue;
    MatMulPart part = a;
    part.b = b.a;
    part.glu = true;
    part.glu_params = op.glu;
    part.out = op.out;
    gate.parts[0] = part;
    absorb(program, i, i + 1);
    absorb(program, i, i + 1);
  }
}

void fuse_softcap(Program& program) {
  for (size_t i = 0; i + 1 < program.nodes.size(); ++i) {
    Node& matmul = program.nodes[i];
    const Node& cap = program.nodes[i + 1];
    if (!is_single_matmul(matmul) || !is_row_op(cap, OpKind::kSoftCap)) continue;
    MatMulPart& part = matmul.parts[0];
    if (cap.ops[0].in[0] != part.out || readers(program, part.out) != 1 || part.softcap > 0 ||
        cap.logit_rows != matmul.logit_rows) {
      continue;
    }
    part.softcap = cap.ops[0].cap;
    part.out = cap.ops[0].out;
    absorb(program, i, i + 1);
  }
}

void fuse_quantize(Program& program) {
  for (size_t i = 0; i + 1 < program.nodes.size(); ++i) {
    Node& matmul = program.nodes[i];
    const Node& quantize = program.nodes[i + 1];
    if (!is_single_matmul(matmul) || !is_row_op(quantize, OpKind::kQuantize)) continue;
    MatMulPart& part = matmul.parts[0];
    const Op& op = quantize.ops[0];
    if (op.in[0] != part.out || op.segments != 1 || quantize.logit_rows != matmul.logit_rows) continue;
    if (part.out_quantised >= 0) continue;
    const bool late = !by_groups(op.input, true), only_reader = readers(program, part.out) == 1;
    if (late && !only_reader) continue;
    part.out_quantised = op.out;
    part.quantised_as = op.input;
    if (late) {
      // Many tokens' rows stay floats, in the same place, until all of a row is there.
      const size_t floats = program.buffers[static_cast<size_t>(part.out)].row_bytes;
      size_t& bytes = program.buffers[static_cast<size_t>(op.out)].row_bytes;
      bytes = std::max(bytes, round_up(floats, kLine));
      part.out = -1;
      Node& after = program.nodes[i + 1];
      after.ops[0].in[0] = after.ops[0].out;
      after.quantizes_late = after.unfused = true;
      continue;
    }
    if (only_reader) part.out = -1;
    absorb(program, i, i + 1);
  }
}

void fuse_shared_input(Program& program) {
  for (size_t i = 0; i + 1 < program.nodes.size();) {
    Node& a = program.nodes[i];
    Node& b = program.nodes[i + 1];
    const bool same = a.kind == NodeKind::kMatMul && b.kind == NodeKind::kMatMul && a.logit_rows == b.logit_rows &&
                      a.parts[0].in == b.parts[0].in && !a.unfused && !b.unfused &&
                      a.parts.size() + b.parts.size() <= kMaxParts;
    if (!same) {
      ++i;
      continue;
    }
    a.parts.insert(a.parts.end(), b.parts.begin(), b.parts.end());
    absorb(program, i, i + 1);
  }
}

void fuse_rows(Program& program) {
  for (size_t i = 0; i + 1 < program.nodes.size();) {
    const Node& a = program.nodes[i];
    const Node& b = program.nodes[i + 1];
    const bool join = a.kind == NodeKind::kRows && b.kind == NodeKind::kRows && a.logit_rows == b.logit_rows;
    if (join && !a.unfused && !b.unfused) {
      absorb(program, i, i + 1);
    } else {
      ++i;
    }
  }
}

}  // namespace doppler::cpu
