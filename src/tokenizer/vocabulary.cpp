#include "tokenizer/vocabulary.h"

#include <cstring>

#include "base/error.h"

namespace doppler {

uint32_t Vocabulary::hash_of(std::string_view token) {
  uint64_t h = 0x9E3779B97F4A7C15u ^ token.size();
  const auto mix = [&](uint64_t word) {
    h = (h ^ word) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
  };
  size_t at = 0;
  for (; at + 8 <= token.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, token.data() + at, 8);
    mix(word);
  }
  if (at < token.size()) {
    uint64_t word = 0;
    std::memcpy(&word, token.data() + at, token.size() - at);
    mix(word);
  }
  mix(0);
  return static_cast<uint32_t>(h);
}

Vocabulary::Added Vocabulary::add(std::string_view token, int32_t id) {
  if (has(id)) return Added::kIdTaken;
  if ((count_ + 1) * 2 > slots_.size()) grow();
  const uint32_t hash = hash_of(token);
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot].id >= 0; slot = (slot + 1) & mask) {
    if (slots_[slot].hash == hash && text(slots_[slot].place) == token) return Added::kTokenTaken;
  }
  if (pool_.size() + token.size() >= kEmpty) {
    fail({ErrorCode::kMemory, "the vocabulary's texts are too long", "", "less than 4 GiB", "", ""});
  }
  const Place place = {static_cast<uint32_t>(pool_.size()), static_cast<uint32_t>(token.size())};
  slots_[slot] = {hash, id, place};
  if (static_cast<size_t>(id) >= places_.size()) places_.resize(static_cast<size_t>(id) + 1);
  places_[static_cast<size_t>(id)] = place;
  pool_.append(token);
  ++count_;
  return Added::kYes;
}

void Vocabulary::fetch_slot(uint32_t hash) const {
  if (!slots_.empty()) __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
}

void Vocabulary::fetch_text(uint32_t hash) const {
  if (slots_.empty()) return;
  const Slot& slot = slots_[hash & (slots_.size() - 1)];
  if (slot.id >= 0) __builtin_prefetch(pool_.data() + slot.place.offset);
}

int32_t Vocabulary::find(std::string_view token, uint32_t hash) const {
  if (slots_.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot].id >= 0; slot = (slot + 1) & mask) {
    if (slots_[slot].hash == hash && text(slots_[slot].place) == token) return slots_[slot].id;
  }
  return -1;
}

std::string_view Vocabulary::token(int32_t id) const {
  return has(id) ? text(places_[static_cast<size_t>(id)]) : std::string_view();
}

void Vocabulary::grow() {
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(old.empty() ? 64 : old.size() * 2, {});
  const size_t mask = slots_.size() - 1;
  for (const Slot& entry : old) {
    if (entry.id < 0) continue;
    size_t slot = entry.hash & mask;
    while (slots_[slot].id >= 0) slot = (slot + 1) & mask;
    slots_[slot] = entry;
  }
}

}  // namespace doppler
