// Reads JSON from front to back without building a document: for files of tens of megabytes of which most is two long
// lists. Small parts can be taken out raw and given to parse_json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace doppler {

class JsonReader {
 public:
  static constexpr size_t kDeepest = 256;  // arrays and objects in each other

  // Fails at once when the text is not UTF-8. The text must outlive the reader and the views it gives.
  JsonReader(std::string_view text, std::string where);

  // { and then next_key() until it is false; each key must be followed by reading or skipping one value.
  void begin_object();
  bool next_key(std::string_view& key);

  // [ and then next_element() until it is false; likewise.
  void begin_array();
  bool next_element();

  // The kind of the value that comes: one of { [ " t f n and 0 for numbers.
  char kind();

  // Good until the next call.
  std::string_view string();
  int64_t integer();
  bool boolean();
  bool take_null();  // true, and past it, when the value is null

  // The text of the value that comes, which is only checked as far as is needed to find its end.
  std::string_view raw();

  // Nothing but white space may follow.
  void finish();

  // Reading can be taken up again at a place noted earlier, for lists that come before what they need.
  size_t position() const { return at_; }
  void go_to(size_t position) { at_ = position; }

  const std::string& where() const { return where_; }
  [[noreturn]] void wrong(const std::string& what, const std::string& expected = "") const;

 private:
  void skip_space();
  char peek();
  void expect(char c);
  char32_t hex4();
  void escape();

  std::string_view text_;
  std::string where_;
  std::string scratch_;
  size_t at_ = 0;
  bool fresh_ = false;  // right after { or [: no comma comes
};

}  // namespace doppler
