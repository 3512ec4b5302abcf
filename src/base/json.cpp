// The text of JSON, read and written with nlohmann-json without its exceptions, so that the same code runs in the
// browser build.
#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/json_reader.h"

namespace doppler {

// Takes the events of nlohmann's parser and builds the document, which is one value: `open_` holds the arrays and
// objects that have not ended, outermost first. Keeps a fault's place.
class JsonBuilder {
 public:
  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return false; }  // JSON text has none
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(std::string& value) {
    open_.back().elements_->keys.push_back(std::move(value));
    return true;
  }
  bool end_object() {
    keep_last(*open_.back().elements_);
    return close();
  }
  bool end_array() { return close(); }

  template <class Exception>
  bool parse_error(size_t position, const std::string& token, const Exception&) {
    fault_at = position;
    last_token = token;
    return false;
  }

  Json root;
  size_t fault_at = 0;
  std::string last_token;
  bool too_deep = false;

 private:
  bool add(Json value) {
    (open_.empty() ? root : open_.back().elements_->values.emplace_back()) = std::move(value);
    return true;
  }
  bool open(Json value) {
    open_.push_back(std::move(value));
    too_deep = open_.size() > JsonReader::kDeepest;
    return !too_deep;
  }
  bool close() {
    Json value = std::move(open_.back());
    open_.pop_back();
    return add(std::move(value));
  }

  // Of a key that is there several times, the first place and the last value are kept.
  static void keep_last(Json::Elements& object) {
    std::vector<uint32_t> order(object.keys.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return object.keys[a] < object.keys[b]; });
    std::vector<bool> dropped(order.size());
    bool any = false;
    for (size_t i = 0, first = 0; i + 1 < order.size(); ++i) {
      if (object.keys[order[i + 1]] != object.keys[order[first]]) {
        first = i + 1;
        continue;
      }
      object.values[order[first]] = std::move(object.values[order[i + 1]]);
      dropped[order[i + 1]] = any = true;
    }
    if (!any) {
      if (order.size() > Json::Elements::kFew) object.sorted = std::move(order);
      return;
    }
    Json::Elements kept;
    for (size_t i = 0; i < dropped.size(); ++i) {
      if (dropped[i]) continue;
      kept.keys.push_back(std::move(object.keys[i]));
      kept.values.push_back(std::move(object.values[i]));
    }
    kept.sort_keys();
    object = std::move(kept);
  }

  std::vector<Json> open_;
};

namespace {

std::string line_and_column(std::string_view text, std::size_t at) {
  std::size_t line = 1, column = 1;
  for (std::size_t i = 0; i + 1 < at && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void write(const Json& value, int indent, int level, std::string& out) {
  switch (value.kind()) {
    case Json::Kind::kNull: out += "null"; return;
    case Json::Kind::kBoolean: out += value.get<bool>() ? "true" : "false"; return;
    case Json::Kind::kInteger: out += std::to_string(value.get<int64_t>()); return;
    case Json::Kind::kUnsigned: out += std::to_string(value.get<uint64_t>()); return;
    case Json::Kind::kReal: out += nlohmann::json(value.get<double>()).dump(); return;
    case Json::Kind::kString: out += quoted(value.text()); return;
    case Json::Kind::kArray:
    case Json::Kind::kObject: break;
  }
  const bool object = value.is_object();
  const auto new_line = [&](int at) {
    if (indent >= 0) out.append(1, '\n').append(static_cast<size_t>(indent) * static_cast<size_t>(at), ' ');
  };
  out += object ? '{' : '[';
  const std::string* key = object ? value.items().begin().key : nullptr;
  for (const Json& element : value) {
    if (&element != value.begin()) out += ',';
    new_line(level + 1);
    if (object) out += quoted(*key++) + (indent >= 0 ? ": " : ":");
    write(element, indent, level + 1, out);
  }
  if (!value.empty()) new_line(level);
  out += object ? '}' : ']';
}

}  // namespace

std::string Json::dump(int indent) const {
  std::string out;
  write(*this, indent, 0, out);
  return out;
}

Json parse_json(std::string_view text, const std::string& where) {
  JsonBuilder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    if (builder.too_deep) {
      fail({.code = ErrorCode::kFormat,
            .what = "the JSON is nested too deeply",
            .where = where,
            .expected = "at most " + std::to_string(JsonReader::kDeepest) + " levels"});
    }
    fail({.code = ErrorCode::kFormat,
          .what = "this is not valid JSON",
          .where = where,
          .got = "a fault at " + line_and_column(text, builder.fault_at) +
                 (builder.last_token.empty() ? "" : ", near '" + builder.last_token.substr(0, 40) + "'"),
          .todo = "The file may be truncated or damaged; fetch or write it again"});
  }
  return std::move(builder.root);
}

std::optional<Json> try_parse_json(std::string_view text) {
  JsonBuilder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return std::nullopt;
  return std::move(builder.root);
}

}  // namespace doppler
