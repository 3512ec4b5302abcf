#include "gpu/run/kv_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace doppler::gpu {
namespace {

std::vector<LayerCache> layers_of(const Plan& plan) {
  std::vector<LayerCache> layers;
  for (const Step& step : plan.steps) {
    const auto* op = std::get_if<Attention>(&step.op);
    if (!op || op->shared) continue;
    const auto layer = static_cast<size_t>(op->layer);
    if (layers.size() <= layer) layers.resize(layer + 1);
    layers[layer].shape = shape_of(*op);
  }
  return layers;
}

std::vector<std::vector<int>> members_of(const KvLayout& layout) {
  const bool states = !layout.groups.empty() && layout.groups.back().state;
  std::vector<std::vector<int>> members(layout.groups.size() - (states ? 1 : 0));
  for (size_t layer = 0; layer < layout.places.size(); ++layer) {
    if (layout.places[layer].group < 0) continue;
    members[static_cast<size_t>(layout.places[layer].group)].push_back(static_cast<int>(layer));
  }
  return members;
}

// Blocks of each group: those of `sequences` whole contexts, or what goes into the memory. Less than one context is
// shared out as a shorter one needs it.
std::vector<size_t> blocks_for(const Limits& limits, const KvLayout& layout, const std::vector<LayerCache>& layers,
                               const std::vector<std::vector<int>>& members, const CacheSize& size) {
  // A decode may run so many tokens at once, one begun ahead among them.
  const int block = std::max(size.block, kMaxDecodeBatch + 1);
  const size_t groups = members.size();
  std::vector<uint64_t> bytes(groups), most(groups);  // of a block; blocks that one binding of each layer holds
  for (size_t g = 0; g < groups; ++g) {
    uint64_t largest = 0;
    for (const int layer : members[g]) {
      const uint64_t page = kv_page_bytes(layers[static_cast<size_t>(layer)].shape);
      bytes[g] += page;
      largest = std::max(largest, page);
    }
    most[g] = std::min(limits.max_binding_bytes, limits.max_buffer_bytes) / largest;
  }
  const auto needed = [&](int context) {
    std::vector<size_t> blocks;
    for (size_t g = 0; g < groups; ++g) blocks.push_back(layout.blocks_of(layout.groups[g], context, block));
    return blocks;
  };
  const auto memory_of = [&](const std::vector<size_t>& blocks) {
    uint64_t memory = 0;
    for (size_t g = 0; g < groups; ++g) memory += blocks[g] * bytes[g];
    return memory;
  };
  std::vector<size_t> blocks = needed(size.context);
  const uint64_t one = memory_of(blocks);
  if (size.memory == 0) {
    for (size_t& count : blocks) count *= static_cast<size_t>(size.sequences);
  } else if (size.memory >= one) {
    const double times = static_cast<double>(size.memory) / static_cast<double>(one);
    for (size_t& count : blocks) count = static_cast<size_t>(static_cast<double>(count) * times);
  } else {
    int low = 0, high = size.context;
    while (low < high) {
      const int middle = low + (high - low + 1) / 2;
      if (memory_of(needed(middle)) <= size.memory) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    if (low < std::min(size.block, size.context)) {
      fail({.code = ErrorCode::kUsage,
            .what = "the cache has no room for a block of tokens",
            .where = "webgpu",
            .expected = fmt::format("{} bytes at least", memory_of(needed(size.block))),
            .got = fmt::format("{} bytes", size.memory),
            .todo = "Use a larger --cache-memory"});
    }
    blocks = needed(low);
  }
  const std::vector<size_t> least = needed(std::min(size.block, size.context));
  for (size_t g = 0; g < groups; ++g) {
    if (least[g] > most[g]) {
      fail({.code = ErrorCode::kDevice,
            .what = "a layer's keys and values are too large for a binding of this device",
            .where = "webgpu",
            .expected = fmt::format("{} pages in {} bytes", least[g], limits.max_binding_bytes),
            .got = fmt::format("{}", most[g]),
            .todo = "Use a smaller --block, or --backend cpu"});
    }
    blocks[g] = std::min<size_t>(blocks[g], most[g]);
  }
  return blocks;
}

}  // namespace

AttentionShape shape_of(const Attention& op) {
  AttentionShape shape;
  shape.heads = static_cast<uint32_t>(op.heads);
  shape.kv_heads = static_cast<uint32_t>(op.kv_heads);
  shape.head_dim = static_cast<uint32_t>(op.head_dim);
  shape.window = static_cast<uint32_t>(op.window);
  shape.ahead = static_cast<uint32_t>(op.ahead);
  shape.scale = op.scale;
  shape.softcap = op.softcap;
  shape.sinks = op.sinks;
  return shape;
}

KvPool::KvPool(Device& device, const Plan& plan, const CacheSize& size)
    : device_(device),
      layout_(make_kv_layout(plan, kPageTokens, size.context)),
      state_layout_(make_state_layout(plan)),
      layers_(layers_of(plan)),
      members_(members_of(layout_)),
      blocks_(blocks_for(device.capabilities().limits, layout_, layers_, members_, size)),
      cache_(layout_, {.blocks = blocks_, .states = state_copies(state_layout_, size.sequences)}),
      table_(div_up(static_cast<uint64_t>(size.context), kPageTokens)) {
  for (size_t g = 0; g < members_.size(); ++g) {
    for (const int layer : members_[g]) {
      LayerCache& cache = layers_[static_cast<size_t>(layer)];
      cache.shape.pages = static_cast<uint32_t>(blocks_[g]);
      cache.shape.table = static_cast<uint32_t>(g * table_);
      const std::string name = fmt::format("layer{} cache", layer);
      check_attention_shape(cache.shape, name);
      cache.buffer = device.create_buffer(name, kv_bytes(cache.shape));
    }
  }
  for (size_t n = 0; n < state_layout_.floats.size(); ++n) {
    const uint64_t bytes = cache_.states() * state_layout_.floats[n] * sizeof(float);
    const Limits& limits = device.capabilities().limits;
    if (bytes > std::min(limits.max_binding_bytes, limits.max_buffer_bytes)) {
      fail({.code = ErrorCode::kDevice,
            .what = "a layer's states are too large for a binding of this device",
            .where = "webgpu",
            .expected = fmt::format("at most {} bytes", std::min(limits.max_binding_bytes, limits.max_buffer_bytes)),
            .got = fmt::format("{}", bytes),
            .todo = "Use fewer sequences, or --backend cpu"});
    }
    states_.push_back(device.create_buffer(fmt::format("states {}", n), bytes));
  }
  if (!states_.empty()) places_ = device.create_buffer("places of states", sizeof(StatePlaces));
  tables_.assign(members_.size() * table_, 0);
  state_ = device.create_buffer("state and pages", sizeof(DecodeState) + std::max<size_t>(tables_.size(), 1) * 4);
}

uint64_t KvPool::bytes() const {
  uint64_t bytes = 0;
  for (const LayerCache& layer : layers_) {
    if (layer.buffer) bytes += layer.buffer.size();
  }
  for (const Buffer& states : states_) bytes += states.size();
  return bytes;
}

KvCache::Range KvPool::update_tables(const Sequence& sequence, std::span<uint32_t> tables) const {
  size_t first_page = 0, begin = tables.size(), end = 0;
  for (size_t g = 0; g < members_.size(); ++g) {
    const KvCache::Range held = cache_.blocks(sequence, static_cast<int>(g));
    for (int b = held.begin; b < held.end; ++b) {
      const PageId page = cache_.page(sequence, members_[g][0], b * layout_.page_tokens);
      const size_t at = g * table_ + static_cast<size_t>(b);
      const auto number = static_cast<uint32_t>((page - first_page) / members_[g].size());
      if (tables[at] == number) continue;
      tables[at] = number;
      begin = std::min(begin, at);
      end = at + 1;
    }
    first_page += blocks_[g] * members_[g].size();
  }
  return {static_cast<int>(begin), static_cast<int>(end)};
}

void KvPool::show(const Sequence& sequence) {
  copy_pages();
  const KvCache::Range changed = update_tables(sequence, tables_);
  if (changed.begin >= changed.end) return;
  const auto begin = static_cast<size_t>(changed.begin);
  write<uint32_t>(device_, state_,
                  std::span<const uint32_t>(tables_).subspan(begin, static_cast<size_t>(changed.end) - begin),
                  sizeof(DecodeState) + begin * 4);
}

void KvPool::make_column_room(uint32_t columns) {
  column_room_ = columns;
  column_tables_.assign(columns * tables_.size(), 0);
  const uint64_t words = kStateWords + 2 * uint64_t{columns} + std::max<size_t>(column_tables_.size(), 1);
  column_state_ = {};
  column_state_ = device_.create_buffer("states and pages of columns", words * 4);
}

void KvPool::show_columns(std::span<const Column> columns, size_t first_logits, size_t logits) {
  copy_pages();
  std::vector<uint32_t> head(kStateWords + 2 * column_room_);
  const DecodeState state{.position = static_cast<uint32_t>(columns.size()),
                          .token = static_cast<uint32_t>(first_logits),
                          .draw = static_cast<uint32_t>(logits)};
  std::memcpy(head.data(), &state, sizeof state);
  for (size_t c = 0; c < columns.size(); ++c) {
    head[kStateWords + c] = static_cast<uint32_t>(columns[c].position);
    head[kStateWords + column_room_ + c] = static_cast<uint32_t>(columns[c].token);
    const auto tables = std::span(column_tables_).subspan(c * tables_.size(), tables_.size());
    const KvCache::Range changed = update_tables(*columns[c].sequence, tables);
    if (changed.begin >= changed.end) continue;
    const auto begin = static_cast<size_t>(changed.begin);
    write<uint32_t>(device_, column_state_, tables.subspan(begin, static_cast<size_t>(changed.end) - begin),
                    (head.size() + c * tables_.size() + begin) * 4);
  }
  write<uint32_t>(device_, column_state_, head);
}

void KvPool::show_state(const Sequence& sequence, int tokens) {
  if (states_.empty()) return;
  const int before = sequence.length() - 1;
  const StatePlaces places{cache_.state(sequence, before), cache_.state(sequence, before + tokens)};
  device_.write(places_, 0, std::as_bytes(std::span(&places, 1)));
  const std::vector<KvCache::Copy> copies = cache_.take_state_copies();
  if (copies.empty()) return;
  Recording recording(device_, "states");
  for (const KvCache::Copy copy : copies) {
    for (size_t n = 0; n < states_.size(); ++n) {
      const uint64_t bytes = state_layout_.floats[n] * sizeof(float);
      const Buffer between = device_.create_buffer("state on its way", bytes);
      recording.copy("state", states_[n], copy.from * bytes, between, 0, bytes);
      recording.copy("state", between, 0, states_[n], copy.to * bytes, bytes);
    }
  }
  device_.submit(recording);
}

void KvPool::copy_pages() {
  const std::vector<KvCache::Copy> copies = cache_.take_copies();
  if (copies.empty()) return;
  if (!between_) {
    uint64_t bytes = 0;
    for (const LayerCache& layer : layers_) bytes = std::max(bytes, kv_page_bytes(layer.shape));
    between_ = device_.create_buffer("page on its way", bytes);
  }
  Recording recording(device_, "pages");
  for (const KvCache::Copy copy : copies) {
    size_t first = 0, g = 0;
    for (; copy.to >= first + blocks_[g] * members_[g].size(); ++g) first += blocks_[g] * members_[g].size();
    const size_t layers = members_[g].size();
    const LayerCache& layer = layers_[static_cast<size_t>(members_[g][(copy.to - first) % layers])];
    const uint64_t bytes = kv_page_bytes(layer.shape);
    recording.copy("page", layer.buffer, (copy.from - first) / layers * bytes, between_, 0, bytes);
    recording.copy("page", between_, 0, layer.buffer, (copy.to - first) / layers * bytes, bytes);
  }
  device_.submit(recording);
}

}  // namespace doppler::gpu
