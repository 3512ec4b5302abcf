// Where every buffer lies: lifetimes follow from the nodes, and nothing is handed out or given back while running.
#include <fmt/format.h>

#include <algorithm>

#include "cpu/program.h"

namespace doppler::cpu {
namespace {

bool uses_memory(const Buffer& buffer) { return buffer.first >= 0 && !buffer.outside; }

size_t bytes_of(const Buffer& buffer, int block) {
  return buffer.local ? round_up(buffer.row_bytes, kLine)
                      : round_up(buffer.row_bytes * static_cast<size_t>(block), kLine);
}

bool alive_together(const Buffer& a, const Buffer& b) { return a.first <= b.last && b.first <= a.last; }

// The lowest place for each buffer of one kind, in the order they come alive; returns the bytes needed.
size_t place(std::vector<Buffer*> buffers, int block) {
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const Buffer* a, const Buffer* b) { return a->first < b->first; });
  size_t total = 0;
  std::vector<const Buffer*> placed;  // by offset
  for (Buffer* buffer : buffers) {
    const size_t need = bytes_of(*buffer, block);
    size_t offset = 0;
    for (const Buffer* other : placed) {
      if (!alive_together(*buffer, *other)) continue;
      if (offset + need <= other->offset) break;
      offset = std::max(offset, other->offset + bytes_of(*other, block));
    }
    buffer->offset = offset;
    total = std::max(total, offset + need);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer,
                                   [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; }),
                  buffer);
  }
  return total;
}

}  // namespace

std::vector<int> buffers_read(const Node& node) {
  std::vector<int> buffers;
  if (node.kind == NodeKind::kMatMul) {
    for (const MatMulPart& part : node.parts) buffers.push_back(part.in);
    return buffers;
  }
  for (const Op& op : node.ops) buffers.insert(buffers.end(), op.in.begin(), op.in.end());
  return buffers;
}

std::vector<int> buffers_written(const Node& node) {
  std::vector<int> buffers;
  if (node.kind == NodeKind::kMatMul) {
    for (const MatMulPart& part : node.parts) {
      if (part.out >= 0) buffers.push_back(part.out);
      if (part.out_quantised >= 0) buffers.push_back(part.out_quantised);
    }
    return buffers;
  }
  for (const Op& op : node.ops) {
    if (op.out >= 0) buffers.push_back(op.out);
  }
  return buffers;
}

void place_buffers(Program& program, int block, bool local_allowed) {
  for (Buffer& buffer : program.buffers) {
    buffer.first = buffer.last = -1;
    buffer.local = false;
  }
  for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
    const Node& node = program.nodes[static_cast<size_t>(n)];
    for (const std::vector<int>& touched : {buffers_written(node), buffers_read(node)}) {
      for (const int s : touched) {
        Buffer& buffer = program.buffers[static_cast<size_t>(s)];
        if (buffer.first < 0) buffer.first = n;
        buffer.last = n;
      }
    }
  }
  if (program.input >= 0) {
    Buffer& input = program.buffers[static_cast<size_t>(program.input)];
    if (input.first >= 0) input.first = 0;  // written before the first node
  }
  std::vector<Buffer*> shared, local;
  for (Buffer& buffer : program.buffers) {
    if (!uses_memory(buffer)) continue;
    buffer.local = local_allowed && buffer.first == buffer.last &&
                   program.nodes[static_cast<size_t>(buffer.first)].kind == NodeKind::kRows;
    (buffer.local ? local : shared).push_back(&buffer);
  }
  program.arena_bytes = place(shared, block);
  // Within one node all local buffers are alive together.
  program.local_bytes = place(local, block);
}

std::vector<std::string> overlapping_buffers(const Program& program, int block) {
  std::vector<std::string> faults;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    for (size_t j = i + 1; j < program.buffers.size(); ++j) {
      const Buffer& a = program.buffers[i];
      const Buffer& b = program.buffers[j];
      if (!uses_memory(a) || !uses_memory(b) || a.local != b.local || !alive_together(a, b)) continue;
      if (a.offset < b.offset + bytes_of(b, block) && b.offset < a.offset + bytes_of(a, block)) {
        faults.push_back(fmt::format("{} and {}", a.name, b.name));
      }
    }
  }
  return faults;
}

std::string describe(const Program& program, const Plan& plan) {
  static constexpr const char* kNames[] = {"angles",    "embed",     "norm",   "rope",          "add",    "glu",
                                           "softcap",   "scale",     "route",  "combine",       "part",   "quantize",
                                           "store_kv",  "merge",     "matmul", "expert_matmul", "attend", "short_conv",
                                           "delta_net", "lora_down", "lora_up"};
  std::string text;
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const Node& node = program.nodes[n];
    text += fmt::format("{:>4} {:<6}", n, node.logit_rows ? "logits" : "all");
    for (const Op& op : node.ops) {
      text += fmt::format(" {}", kNames[static_cast<size_t>(op.kind)]);
      if (op.step >= 0) text += fmt::format("({})", plan.steps[static_cast<size_t>(op.step)].name);
    }
    for (const int s : buffers_written(node)) {
      const Buffer& buffer = program.buffers[static_cast<size_t>(s)];
      text += fmt::format(" -> {}{}", buffer.name, buffer.local ? " [row]" : "");
    }
    text += "\n";
  }
  return text;
}

}  // namespace doppler::cpu
