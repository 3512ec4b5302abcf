// Where every slot lies: lifetimes follow from the nodes, and nothing is handed out or given back while running.
#include <fmt/format.h>

#include <algorithm>

#include "cpu/program.h"

namespace doppler::cpu {
namespace {

bool uses_memory(const Slot& slot) { return slot.first >= 0 && !slot.outside; }

size_t bytes_of(const Slot& slot, int block) {
  return slot.local ? round_up(slot.row_bytes, kLine) : round_up(slot.row_bytes * static_cast<size_t>(block), kLine);
}

bool alive_together(const Slot& a, const Slot& b) { return a.first <= b.last && b.first <= a.last; }

// The lowest place for each slot of one kind, in the order they come alive; returns the bytes needed.
size_t place(std::vector<Slot*> slots, int block) {
  std::stable_sort(slots.begin(), slots.end(), [](const Slot* a, const Slot* b) { return a->first < b->first; });
  size_t total = 0;
  std::vector<const Slot*> placed;  // by offset
  for (Slot* slot : slots) {
    const size_t need = bytes_of(*slot, block);
    size_t offset = 0;
    for (const Slot* other : placed) {
      if (!alive_together(*slot, *other)) continue;
      if (offset + need <= other->offset) break;
      offset = std::max(offset, other->offset + bytes_of(*other, block));
    }
    slot->offset = offset;
    total = std::max(total, offset + need);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), slot,
                                   [](const Slot* a, const Slot* b) { return a->offset < b->offset; }),
                  slot);
  }
  return total;
}

}  // namespace

std::vector<int> slots_read(const Node& node) {
  std::vector<int> slots;
  if (node.kind == NodeKind::kMatMul) {
    for (const MatMulPart& part : node.parts) slots.push_back(part.in);
    return slots;
  }
  for (const Op& op : node.ops) slots.insert(slots.end(), op.in.begin(), op.in.end());
  return slots;
}

std::vector<int> slots_written(const Node& node) {
  std::vector<int> slots;
  if (node.kind == NodeKind::kMatMul) {
    for (const MatMulPart& part : node.parts) {
      if (part.out >= 0) slots.push_back(part.out);
      if (part.out_quantised >= 0) slots.push_back(part.out_quantised);
    }
    return slots;
  }
  for (const Op& op : node.ops) {
    if (op.out >= 0) slots.push_back(op.out);
  }
  return slots;
}

void place_slots(Program& program, int block, bool local_allowed) {
  for (Slot& slot : program.slots) {
    slot.first = slot.last = -1;
    slot.local = false;
  }
  for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
    const Node& node = program.nodes[static_cast<size_t>(n)];
    for (const std::vector<int>& touched : {slots_written(node), slots_read(node)}) {
      for (const int s : touched) {
        Slot& slot = program.slots[static_cast<size_t>(s)];
        if (slot.first < 0) slot.first = n;
        slot.last = n;
      }
    }
  }
  std::vector<Slot*> shared, local;
  for (Slot& slot : program.slots) {
    if (!uses_memory(slot)) continue;
    slot.local = local_allowed && slot.first == slot.last &&
                 program.nodes[static_cast<size_t>(slot.first)].kind == NodeKind::kRows;
    (slot.local ? local : shared).push_back(&slot);
  }
  program.arena_bytes = place(shared, block);
  // Within one node all local slots are alive together.
  program.local_bytes = place(local, block);
}

std::vector<std::string> overlapping_slots(const Program& program, int block) {
  std::vector<std::string> faults;
  for (size_t i = 0; i < program.slots.size(); ++i) {
    for (size_t j = i + 1; j < program.slots.size(); ++j) {
      const Slot& a = program.slots[i];
      const Slot& b = program.slots[j];
      if (!uses_memory(a) || !uses_memory(b) || a.local != b.local || !alive_together(a, b)) continue;
      if (a.offset < b.offset + bytes_of(b, block) && b.offset < a.offset + bytes_of(a, block)) {
        faults.push_back(fmt::format("{} and {}", a.name, b.name));
      }
    }
  }
  return faults;
}

std::string describe(const Program& program, const Plan& plan) {
  static constexpr const char* kNames[] = {"angles",  "embed",  "norm",          "rope",     "add",      "glu",
                                           "softcap", "route",  "combine",       "quantize", "store_kv", "commit_kv",
                                           "merge",   "matmul", "expert_matmul", "attend"};
  std::string text;
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const Node& node = program.nodes[n];
    text += fmt::format("{:>4} {:<6}", n, node.logit_rows ? "logits" : "all");
    for (const Op& op : node.ops) {
      text += fmt::format(" {}", kNames[static_cast<size_t>(op.kind)]);
      if (op.step >= 0) text += fmt::format("({})", plan.steps[static_cast<size_t>(op.step)].name);
    }
    for (const int s : slots_written(node)) {
      const Slot& slot = program.slots[static_cast<size_t>(s)];
      text += fmt::format(" -> {}{}", slot.name, slot.local ? " [row]" : "");
    }
    text += "\n";
  }
  return text;
}

}  // namespace doppler::cpu
