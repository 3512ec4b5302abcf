// The tokenizers that the tests read, and texts to try on them.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "support/tokenizers.h"
#include "tokenizer/tokenizer.h"

namespace doppler::testing {

// Loaded once a process; they are large.
inline const Tokenizer& load_tokenizer(const std::string& name) {
  static std::map<std::string, Tokenizer> loaded;
  const auto it = loaded.find(name);
  if (it != loaded.end()) return it->second;
  return loaded.emplace(name, Tokenizer::load(tokenizer_folder(name))).first->second;
}

// Random text: scripts from all over Unicode, white space, digits, combining marks, words, and the tokenizer's own
// added tokens in the middle of it.
class RandomText {
 public:
  RandomText(const Tokenizer& tokenizer, unsigned seed) : random_(seed) {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (tokenizer.is_special(id)) special_.emplace_back(tokenizer.piece(id));
    }
  }

  std::string valid(size_t units) {
    std::string text;
    for (size_t i = 0; i < units; ++i) unit(text);
    return text;
  }

  std::string any_bytes(size_t units) {
    std::string text;
    for (size_t i = 0; i < units; ++i) {
      if (below(3) == 0) {
        text += static_cast<char>(below(256));
      } else {
        unit(text);
        if (below(8) == 0 && !text.empty()) text.pop_back();
      }
    }
    return text;
  }

  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

 private:
  void unit(std::string& text) {
    static const char* const kWords[] = {"the",     " and",      "'s",           "'LL",          "don't",
                                         " Hello",  "    ",      "\n\n",         "\r\n",         "\t",
                                         "1234567", "3.14",      " <",           "<0x41>",       "<|",
                                         "|>",      "e\xCC\x81", "\xE2\x96\x81", "__",           "==>",
                                         "/*",      "\xC2\xA0",  "\xE3\x80\x80", "\xE2\x80\x8D", "A\xCC\x88\xCC\xA3"};
    switch (below(10)) {
      case 0:
      case 1:
      case 2: text += kWords[below(sizeof kWords / sizeof *kWords)]; break;
      case 3: text += static_cast<char>(below(128)); break;
      case 4: append_utf8(text, 0x80 + below(0x780)); break;
      case 5: append_utf8(text, 0x800 + below(0xD800 - 0x800)); break;
      case 6: append_utf8(text, 0xE000 + below(0x110000 - 0xE000)); break;
      case 7: append_utf8(text, 0x1F300 + below(0x400)); break;
      case 8: append_utf8(text, 0x300 + below(0x70)); break;
      case 9:
        if (!special_.empty()) text += special_[below(static_cast<uint32_t>(special_.size()))];
        break;
    }
  }

  std::mt19937 random_;
  std::vector<std::string> special_;
};

}  // namespace doppler::testing
