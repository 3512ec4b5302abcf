#include "cluster/stage_messages.h"

#include <fmt/format.h>

#include <algorithm>

namespace doppler {

void write(Writer& to, const StageBatch& batch) {
  to.put(MessageKind::kBatch).put(batch.ticket).put_list(batch.copies);
  to.put(static_cast<uint32_t>(batch.items.size()));
  for (const StageItem& item : batch.items) {
    to.put(item.phase).put(item.want).put(item.place.length).put_list(item.tokens);
    to.put(static_cast<uint32_t>(item.place.tables.size()));
    for (size_t g = 0; g < item.place.tables.size(); ++g) to.put(item.place.first[g]).put_list(item.place.tables[g]);
  }
}

StageBatch read_batch(Reader& from) {
  StageBatch batch;
  batch.ticket = from.get<uint64_t>();
  batch.copies = from.get_list<KvCache::BlockCopy>();
  for (uint32_t items = from.get<uint32_t>(); items > 0; --items) {
    StageItem item;
    item.phase = from.get<Phase>();
    item.want = from.get<Logits>();
    item.place.length = from.get<int>();
    item.tokens = from.get_list<int32_t>();
    for (uint32_t groups = from.get<uint32_t>(); groups > 0; --groups) {
      item.place.first.push_back(from.get<int>());
      item.place.tables.push_back(from.get_list<int32_t>());
    }
    batch.items.push_back(std::move(item));
  }
  return batch;
}

BlockMap::BlockMap(const KvLayout& all, const KvLayout& own) {
  ratio_ = all.page_tokens / own.page_tokens;
  for (const KvLayout::Group& group : own.groups) {
    const auto same = [&](const KvLayout::Group& other) {
      return other.window == group.window && other.state == group.state;
    };
    const auto found = std::find_if(all.groups.begin(), all.groups.end(), same);
    group_of_.push_back(static_cast<int>(found - all.groups.begin()));
    state_.push_back(group.state);
  }
}

StageCache BlockMap::own_cache(std::span<const size_t> blocks, size_t states) const {
  StageCache cache;
  for (size_t g = 0; g < group_of_.size(); ++g) {
    if (state_[g]) {
      cache.states = states;
    } else {
      cache.blocks.push_back(blocks[static_cast<size_t>(group_of_[g])] * static_cast<size_t>(ratio_));
    }
  }
  return cache;
}

KvCache::Place BlockMap::own_place(const KvCache::Place& place) const {
  KvCache::Place own{.length = place.length, .first = {}, .tables = {}};
  for (size_t g = 0; g < group_of_.size(); ++g) {
    const auto from = static_cast<size_t>(group_of_[g]);
    own.first.push_back(place.first[from] * ratio_);
    std::vector<int32_t>& table = own.tables.emplace_back();
    for (const int32_t block : place.tables[from]) {
      // A state is that of a page's last token that ran, whichever part of the page that lies in.
      for (int part = 0; part < ratio_; ++part) table.push_back(block < 0 || state_[g] ? block : block * ratio_ + part);
    }
  }
  return own;
}

void BlockMap::copy(const KvCache::BlockCopy& copy, KvCache& own) const {
  for (size_t g = 0; g < group_of_.size(); ++g) {
    if (group_of_[g] != copy.group) continue;
    const int parts = state_[g] ? 1 : ratio_;
    for (int part = 0; part < parts; ++part)
      own.place_copy({static_cast<int>(g), copy.from * parts + part, copy.to * parts + part});
  }
}

}  // namespace doppler
