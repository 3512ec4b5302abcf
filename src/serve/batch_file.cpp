#include "serve/batch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"

namespace doppler::serve {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestLine = 16 << 20;  // as --body-limit of the server
constexpr double kSyncEvery = 1;             // seconds; what a power failure may cost
constexpr size_t kBuffer = 1 << 20;

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void move(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_io("the file cannot be written", to, errno);
}

// A 5xx is nobody's answer: it says that the machine failed, and the next run asks again.
bool is_answer(const Json& line) {
  const Json* response = find(line, "response");
  const Json* status = response ? response->find("status_code") : nullptr;
  return !status || !status->is_number_integer() || status->get<int64_t>() < 500;
}

}  // namespace

BatchRequests::BatchRequests(const fs::path& path, int shard, int shards) : path_(path), file_(path) {
  const std::string_view all = text_of(file_);
  uint64_t number = 0;
  for (size_t begin = 0, end; begin < all.size(); begin = end + 1) {
    end = std::min(all.find('\n', begin), all.size());
    ++number;
    const std::string_view line = all.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Line entry{.begin = begin, .number = number};
    if (line.size() > kLongestLine) {
      entry.fault = Fault::kTooLong;
    } else {
      entry.length = static_cast<uint32_t>(line.size());
      const std::optional<Json> json = try_parse_json(line);
      const Json* id = json && json->is_object() ? json->find("custom_id") : nullptr;
      entry.fault = !json || !json->is_object()                          ? Fault::kNotJson
                    : !id || !id->is_string() || id->text().empty()      ? Fault::kNoId
                    : !at_.try_emplace(id->text(), lines_.size()).second ? Fault::kRepeated
                                                                         : Fault::kNone;
    }
    lines_.push_back(entry);
  }
  const auto part = [&](int k) { return lines_.size() * static_cast<size_t>(k) / static_cast<size_t>(shards); };
  first_ = part(shard - 1);
  last_ = part(shard);
}

std::string_view BatchRequests::text(const Line& line) const { return text_of(file_).substr(line.begin, line.length); }

BatchRequests::Request BatchRequests::read(size_t at) const {
  const Line& line = lines_[first_ + at];
  Request request{.id = {}, .line = line.number};
  const std::string where = fmt::format("{}:{}", path_.string(), line.number);
  switch (line.fault) {
    case Fault::kNone:
      request.json = parse_json(text(line), where);
      request.id = request.json["custom_id"].text();
      break;
    case Fault::kTooLong:
      request.code = "line_too_long";
      request.message = fmt::format("the line is longer than {} bytes", kLongestLine);
      break;
    case Fault::kNotJson:
      request.code = "invalid_json_line";
      request.message = "the line is no JSON object";
      try {
        parse_json(text(line), where);
      } catch (const Failure& failure) {
        request.message = fmt::format("the line is no JSON: {}", failure.error.got);
      }
      break;
    case Fault::kNoId:
      request.code = "missing_required_parameter";
      request.message = "'custom_id' is missing, or is no text";
      break;
    case Fault::kRepeated: {
      const Json json = parse_json(text(line), where);
      const std::string& id = json["custom_id"].text();
      request.code = "duplicate_custom_id";
      request.message =
          fmt::format("the custom_id {} is that of line {}, too", brief(Json(id)), lines_[at_.at(id)].number);
      break;
    }
  }
  return request;
}

std::optional<size_t> BatchRequests::find(const std::string& id) const {
  const auto found = at_.find(id);
  if (found == at_.end() || found->second < first_ || found->second >= last_) return std::nullopt;
  return found->second - first_;
}

std::optional<size_t> BatchRequests::find_line(uint64_t number) const {
  const auto begin = lines_.begin() + static_cast<long>(first_), end = lines_.begin() + static_cast<long>(last_);
  const auto found =
      std::lower_bound(begin, end, number, [](const Line& line, uint64_t wanted) { return line.number < wanted; });
  if (found == end || found->number != number || found->fault == Fault::kNone) return std::nullopt;
  return static_cast<size_t>(found - begin);
}

BatchAnswers::BatchAnswers(fs::path output, const BatchRequests& requests, bool ordered)
    : output_(std::move(output)),
      journal_(output_.string() + ".incomplete"),
      requests_(requests),
      ordered_(ordered),
      lock_(output_),
      places_(requests.size()) {
  const bool whole = file_exists(output_);
  if (whole) {
    size_ = load(output_, false);
    if (file_exists(journal_)) drop_journal();
  } else if (file_exists(journal_)) {
    size_ = load(journal_, true);
  }
  kept_ = static_cast<size_t>(
      std::count_if(places_.begin(), places_.end(), [](const Place& place) { return place.length > 0; }));
  if (whole) {
    if (kept_ == places_.size() && (!ordered_ || in_order())) return;
    move(output_, journal_);
  }
  fd_ = ::open(journal_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) fail_io("the file cannot be written", journal_, errno);
  if (::ftruncate(fd_, static_cast<off_t>(size_)) != 0) fail_io("the file cannot be written", journal_, errno);
}

// A run was killed when OUT had its name already.
void BatchAnswers::drop_journal() {
  const std::vector<Place> of_output = places_;
  load(journal_, true);
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].length == 0 || of_output[i].length > 0) continue;
    fail({.code = ErrorCode::kFile,
          .what = "both files have answers, and each some that the other has not",
          .where = fmt::format("{} and {}", output_.string(), journal_.string()),
          .todo = "Remove one of them, or choose another name for the output"});
  }
  places_ = of_output;
  remove_journal();
}

void BatchAnswers::remove_journal() const {
  if (::unlink(journal_.c_str()) != 0) fail_io("the file cannot be removed", journal_, errno);
}

BatchAnswers::~BatchAnswers() {
  if (fd_ >= 0) ::close(fd_);
}

bool BatchAnswers::in_order() const {
  return std::is_sorted(places_.begin(), places_.end(),
                        [](const Place& a, const Place& b) { return a.begin < b.begin; });
}

// Returns where the file stops being whole lines of ours: at what a killed run did not write to its end, or at what a
// power failure left of the last second. `may_be_cut` false: that is an error.
uint64_t BatchAnswers::load(const fs::path& path, bool may_be_cut) {
  const MappedFile file(path);
  const std::string_view all = text_of(file);
  uint64_t number = 0;
  for (size_t begin = 0, end; begin < all.size(); begin = end + 1) {
    end = std::min(all.find('\n', begin), all.size());
    ++number;
    const std::string_view line = all.substr(begin, end - begin);
    const std::optional<Json> json = try_parse_json(line);
    if (may_be_cut && (end == all.size() || !json)) return begin;
    const Json* id = json ? find(*json, "custom_id") : nullptr;
    const Json* error = json && !id ? find(*json, "error") : nullptr;
    const Json* of = error ? find(*error, "line") : nullptr;
    const std::optional<size_t> at = id && id->is_string()            ? requests_.find(id->text())
                                     : of && of->is_number_unsigned() ? requests_.find_line(of->get<uint64_t>())
                                                                      : std::nullopt;
    if (!at) {
      fail({.code = ErrorCode::kUsage,
            .what = "this line answers no request of the batch",
            .where = fmt::format("{}:{}", path.string(), number),
            .expected = fmt::format("an answer to a line of {}", requests_.path().string()),
            .got = json ? brief(*json) : "no JSON",
            .todo = "Give each input, and each shard, an output of its own"});
    }
    if (is_answer(*json)) places_[*at] = {begin, line.size()};
  }
  return all.size();
}

void BatchAnswers::add(size_t at, std::string line) {
  places_[at] = {size_, line.size()};
  line += '\n';
  for (size_t done = 0; done < line.size();) {
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io("the file cannot be written", journal_, errno);
    done += static_cast<size_t>(n);
  }
  size_ += line.size();
  if (steady_seconds() - synced_s_ < kSyncEvery) return;
  if (::fdatasync(fd_) != 0) fail_io("the file cannot be written", journal_, errno);
  synced_s_ = steady_seconds();
}

void BatchAnswers::finish() {
  if (fd_ < 0) return;
  if (::fsync(fd_) != 0) fail_io("the file cannot be written", journal_, errno);
  const uint64_t bytes = std::accumulate(places_.begin(), places_.end(), uint64_t{0},
                                         [](uint64_t sum, const Place& place) { return sum + place.length + 1; });
  if (bytes == size_ && (!ordered_ || in_order())) {
    return move(journal_, output_);
  }
  std::vector<Place> places = places_;
  if (!ordered_)
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  const MappedFile journal(journal_);
  FileWriter writer(output_);
  std::string buffer;
  const auto flush = [&] {
    writer.write(std::as_bytes(std::span(buffer)));
    buffer.clear();
  };
  for (const Place& place : places) {
    buffer += text_of(journal).substr(place.begin, place.length);
    buffer += '\n';
    if (buffer.size() > kBuffer) flush();
  }
  flush();
  writer.commit();
  remove_journal();
}

}  // namespace doppler::serve
