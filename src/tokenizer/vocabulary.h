// Tokens and their ids, both ways, in flat tables: about 50 bytes a token beside its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace doppler {

class Vocabulary {
 public:
  // Ids lie below this. A file with larger ones is refused: the table by id would fill the memory.
  static constexpr int64_t kIdLimit = int64_t{1} << 23;

  enum class Added { kYes, kTokenTaken, kIdTaken };

  // 0 <= id < kIdLimit.
  Added add(std::string_view token, int32_t id);

  int32_t find(std::string_view token) const { return find(token, hash_of(token)); }  // -1 if it is not there

  // Many look-ups in a row wait less when they are begun together: hash_of and fetch_slot for each, then fetch_text for
  // each, then find for each.
  static uint32_t hash_of(std::string_view token);
  void fetch_slot(uint32_t hash) const;
  void fetch_text(uint32_t hash) const;
  int32_t find(std::string_view token, uint32_t hash) const;

  bool has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < places_.size() && places_[id].offset != kEmpty;
  }
  std::string_view token(int32_t id) const;  // empty if it is not there; good as long as nothing is added

  size_t size() const { return count_; }
  int32_t id_end() const { return static_cast<int32_t>(places_.size()); }  // one more than the largest id

 private:
  static constexpr uint32_t kEmpty = 0xFFFFFFFF;
  struct Place {
    uint32_t offset = kEmpty, length = 0;  // in pool_
  };
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
    Place place;  // again, so that a look-up goes from here straight to the text
  };
  std::string_view text(Place place) const { return std::string_view(pool_).substr(place.offset, place.length); }
  void grow();

  std::string pool_;
  std::vector<Place> places_;  // by id
  std::vector<Slot> slots_;    // open addressing, a power of two, at most half full
  size_t count_ = 0;
};

}  // namespace doppler
