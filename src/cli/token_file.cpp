#include "cli/token_file.h"

#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace doppler {
namespace {

[[noreturn]] void bad(const std::filesystem::path& path, const std::string& what, const std::string& got = "") {
  fail({.code = ErrorCode::kFormat, .what = what, .where = path.string(), .got = got});
}

// Version 1 of the format: magic, version, header length (u16), a Python dict as text, then the numbers.
std::vector<int32_t> from_npy(const std::string& file, const std::filesystem::path& path) {
  constexpr size_t kPrefix = 10;
  if (file.size() < kPrefix || file[6] != 1) bad(path, "a numpy file of another version than 1");
  const size_t header = static_cast<unsigned char>(file[8]) + 256u * static_cast<unsigned char>(file[9]);
  if (file.size() < kPrefix + header) bad(path, "a numpy file that ends in its header");
  const std::string text = file.substr(kPrefix, header);
  const size_t descr = text.find("'descr'"), quote = text.find('\'', descr + 8);
  if (descr == std::string::npos || quote == std::string::npos) bad(path, "a numpy header without a type");
  const std::string type = text.substr(quote + 1, text.find('\'', quote + 1) - quote - 1);
  const size_t width = type == "<u2" ? 2 : type == "<i4" || type == "<u4" ? 4 : type == "<i8" || type == "<u8" ? 8 : 0;
  if (width == 0) bad(path, "numbers of a type that no token has", type);
  std::vector<int32_t> ids;
  for (size_t at = kPrefix + header; at + width <= file.size(); at += width) {
    uint64_t value = 0;
    std::memcpy(&value, file.data() + at, width);
    if (value > INT32_MAX) bad(path, "a number that no token has", std::to_string(value));
    ids.push_back(static_cast<int32_t>(value));
  }
  return ids;
}

void add_list(const Json& list, const std::filesystem::path& path, std::vector<int32_t>& ids) {
  if (!list.is_array()) bad(path, "no list of token ids");
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      bad(path, "a list element that is no token id", brief(id));
    }
    ids.push_back(id.get<int32_t>());
  }
}

}  // namespace

std::vector<int32_t> read_token_file(const std::filesystem::path& path) {
  const std::string file = read_input(path);
  if (file.compare(0, 6, "\x93NUMPY") == 0) return from_npy(file, path);
  std::vector<int32_t> ids;
  const size_t first = file.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (file[first] == '[' || file[first] == '{')) {
    const Json json = parse_json(file, path.string());
    if (json.is_array()) {
      add_list(json, path, ids);
    } else {
      add_list(require(json, "prompt_ids", path.string()), path, ids);
      if (const Json* greedy = find(json, "greedy_ids")) add_list(*greedy, path, ids);
    }
    return ids;
  }
  const char* end = file.data() + file.size();
  for (const char* at = file.data(); at < end;) {
    if (std::strchr(" \t\r\n,", *at)) {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0)
      bad(path, "something that is no token id", std::string(at, std::min<size_t>(20, static_cast<size_t>(end - at))));
    ids.push_back(id);
    at = next;
  }
  return ids;
}

}  // namespace doppler
