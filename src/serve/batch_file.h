// The two files of a batch in OpenAI's form: requests, and answers that carry their custom_id, one JSON object on each
// line. Answers go to OUT.incomplete in the order in which they come, and OUT appears when there is one for each
// request; so a run that was killed goes on where it stopped, and every custom_id is answered once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "base/json.h"

namespace doppler::serve {

// The lines of one shard. A line that is no request is one all the same, with what is wrong with it.
class BatchRequests {
 public:
  // The shard-th, from 1, of so many: neighbouring lines, so that the shards' answers one after another have the
  // file's order.
  explicit BatchRequests(const std::filesystem::path& path, int shard = 1, int shards = 1);

  struct Request {
    std::string id;                       // custom_id; empty where it has none of its own
    uint64_t line = 0;                    // of the file, from 1
    Json json = {};                       // an object, where nothing is wrong
    std::string code = {}, message = {};  // what is wrong; empty: nothing
  };
  size_t size() const { return last_ - first_; }
  Request read(size_t at) const;
  // Which of this shard's requests has the custom_id, or lies in the line and has none.
  std::optional<size_t> find(const std::string& id) const;
  std::optional<size_t> find_line(uint64_t line) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  enum class Fault : uint8_t { kNone, kTooLong, kNotJson, kNoId, kRepeated };
  struct Line {
    uint64_t begin = 0, number = 0;
    uint32_t length = 0;  // bytes
    Fault fault = Fault::kNone;
  };
  std::string_view text(const Line& line) const;

  std::filesystem::path path_;
  MappedFile file_;
  std::vector<Line> lines_;                     // that are not empty, of the whole file
  std::unordered_map<std::string, size_t> at_;  // in lines_, by custom_id
  size_t first_ = 0, last_ = 0;                 // of the shard, in lines_
};

class BatchAnswers {
 public:
  // Reads what earlier runs left. Holds the lock of OUT.
  BatchAnswers(std::filesystem::path output, const BatchRequests& requests, bool ordered);
  ~BatchAnswers();
  BatchAnswers(const BatchAnswers&) = delete;
  BatchAnswers& operator=(const BatchAnswers&) = delete;

  bool answered(size_t at) const { return places_[at].length > 0; }
  size_t kept() const { return kept_; }   // answers of earlier runs
  void add(size_t at, std::string line);  // without its end
  // OUT takes its name, with the lines in the order of the requests where that is wanted.
  void finish();

 private:
  struct Place {
    uint64_t begin = 0, length = 0;  // bytes of the file, without the line's end; length 0: no answer yet
  };
  uint64_t load(const std::filesystem::path& path, bool may_be_cut);
  bool in_order() const;
  void drop_journal();
  void remove_journal() const;

  const std::filesystem::path output_, journal_;
  const BatchRequests& requests_;
  const bool ordered_;
  TargetLock lock_;
  int fd_ = -1;  // of the journal; none: OUT is there and nothing is missing
  uint64_t size_ = 0;
  size_t kept_ = 0;
  double synced_s_ = 0;
  std::vector<Place> places_;  // by request
};

}  // namespace doppler::serve
