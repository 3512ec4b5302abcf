#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace doppler {
namespace {

// The two letters of a general category, with the characters that are newer than the library's tables.
std::string_view category(char32_t code) {
  const auto& later = later_categories();
  const auto it = std::upper_bound(later.begin(), later.end(), code,
                                   [](char32_t c, const LaterCategory& range) { return c < range.first; });
  if (it != later.begin() && code <= std::prev(it)->last) return std::prev(it)->category;
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(code));
}

bool newer_than_normal_forms(char32_t code) {
  const auto& later = later_normalization();
  if (code < later.front().first) return false;
  const auto it = std::upper_bound(later.begin(), later.end(), code,
                                   [](char32_t c, const CodeRange& range) { return c < range.first; });
  return it != later.begin() && code <= std::prev(it)->last;
}

// Characters below this are their own normal form, alone and beside each other. U+0300 begins the combining marks.
char32_t first_affected(NormalForm form) {
  switch (form) {
    case NormalForm::kNfc: return 0x300;
    case NormalForm::kNfd: return 0xC0;
    case NormalForm::kNfkc:
    case NormalForm::kNfkd: return 0xA0;
  }
  return 0;
}

}  // namespace

std::string normalize(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  std::vector<char32_t> run;
  const char32_t affected = first_affected(form);
  bool touched = false;  // whether the run has a character that the form could change
  size_t run_begin = 0;
  uint32_t length = 0;
  const auto flush = [&](size_t end) {
    if (touched) {
      append_normal(out, run, form);
    } else {
      out.append(text.substr(run_begin, end - run_begin));
    }
    run.clear();
    touched = false;
  };
  for (size_t at = 0; at < text.size(); at += length) {
    const char32_t code = read_valid_utf8(text, at, length);
    if (newer_than_normal_forms(code)) {
      flush(at);
      out.append(text.substr(at, length));
      run_begin = at + length;
    } else if (code < affected) {
      if (touched) {  // nothing moves or joins backwards across such a character: what came before is final
        flush(at);
        run_begin = at;
      }
    } else {
      if (!touched && at > run_begin) {  // the character before may join with this one
        uint32_t last = 0;
        const char32_t before = read_last_utf8(text.substr(run_begin, at - run_begin), last);
        out.append(text.substr(run_begin, at - last - run_begin));
        run.push_back(before);
      }
      touched = true;
      run.push_back(code);
    }
  }
  flush(text.size());
  return out;
}

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  uint32_t length = 0;
  for (size_t at = 0; at < text.size(); at += length) {
    const char32_t code = read_valid_utf8(text, at, length);
    if (code < 0x80) {
      out += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
    } else if (code == 0x130) {
      out += "i\xCC\x87";  // the one character whose lower case is two: i, combining dot above
    } else {
      const auto& later = later_lowercase();
      const auto it = std::find_if(later.begin(), later.end(), [&](const LaterLowercase& range) {
        return code >= range.first && code <= range.last;
      });
      append_utf8(out, it != later.end()
                           ? static_cast<char32_t>(static_cast<int32_t>(code) + it->add)
                           : static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
    }
  }
  return out;
}

bool is_whitespace(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool is_word(char32_t code) {
  const std::string_view kind = category(code);
  if (kind[0] == 'L' || kind[0] == 'M' || kind == "Nd" || kind == "Nl" || kind == "Pc") return true;
  // Alphabetic symbols (circled and squared letters) and the two joiners.
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189) || code == 0x200C ||
         code == 0x200D;
}

bool is_numeric(char32_t code) {
  // Here alone Hugging Face goes by Unicode 17, which added these.
  return category(code)[0] == 'N' || (code >= 0x11DE0 && code <= 0x11DE9) || (code >= 0x16FF4 && code <= 0x16FF6);
}

namespace {

// Printable Latin-1 characters stand for themselves.
bool is_printable_latin1(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

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
      const char32_t code = is_printable_latin1(byte) ? static_cast<char32_t>(byte) : next++;
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
