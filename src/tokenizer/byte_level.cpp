#include "tokenizer/byte_level.h"

#include "base/utf8.h"

namespace doppler {
namespace {

// Printable Latin-1 characters stand for themselves.
bool is_itself(int byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD); }

struct Tables {
  std::array<std::string, 256> characters;
  std::array<int, 0x100 + 68> bytes;  // 68 bytes are not themselves and take the characters from U+0100 on
};

const Tables& tables() {
  static const Tables built = [] {
    Tables t;
    t.bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t code = is_itself(byte) ? static_cast<char32_t>(byte) : next++;
      append_utf8(t.characters[static_cast<size_t>(byte)], code);
      t.bytes[code] = byte;
    }
    return t;
  }();
  return built;
}

}  // namespace

const std::array<std::string, 256>& byte_characters() { return tables().characters; }

int byte_of_character(char32_t code) { return code < tables().bytes.size() ? tables().bytes[code] : -1; }

}  // namespace doppler
