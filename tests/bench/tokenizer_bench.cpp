// Time and memory of tokenizers: loading, and encoding a megabyte each of several kinds of text.
//
//   tokenizer_bench [FOLDER...]     folders with a tokenizer.json; by default those that the tests use
//
// Every tokenizer is measured in a process of its own, so that its memory is its own. Times are those of the clock,
// with the processor's in brackets. Exits with 1 if a figure is beyond its limit: a second of processor time for
// loading and for each text, 150 MB of memory while loading.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace doppler {
namespace {

constexpr size_t kBytes = 1'000'000;
constexpr double kSecondsLimit = 1.0, kMegabytesLimit = 150;

// Seconds of the clock and of the processor. On a machine that others use too only the second says something.
struct Moment {
  double clock = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  double processor = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
};

// "123.4 ms (120.1)"
std::string between(const Moment& a, const Moment& b) {
  return fmt::format("{:>7.1f} ms ({:>6.1f})", (b.clock - a.clock) * 1e3, (b.processor - a.processor) * 1e3);
}

bool in_time(const Moment& a, const Moment& b) { return b.processor - a.processor < kSecondsLimit; }

double peak_megabytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1000;
}

double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  long pages = 0, resident = 0;
  file >> pages >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

std::string english() {
  static const char* const kWords[] = {
      "the",         "of",         "and",        "to",         "a",         "in",       "that",     "it",
      "was",         "he",         "for",        "on",         "with",      "as",       "his",      "be",
      "at",          "by",         "had",        "not",        "are",       "but",      "from",     "or",
      "have",        "an",         "they",       "which",      "one",       "you",      "were",     "her",
      "all",         "she",        "there",      "would",      "their",     "we",       "him",      "been",
      "has",         "when",       "who",        "will",       "more",      "no",       "if",       "out",
      "so",          "said",       "what",       "up",         "its",       "about",    "into",     "than",
      "them",        "can",        "only",       "other",      "new",       "some",     "could",    "time",
      "these",       "two",        "may",        "then",       "do",        "first",    "any",      "my",
      "now",         "such",       "like",       "our",        "over",      "man",      "me",       "even",
      "most",        "made",       "after",      "also",       "did",       "many",     "before",   "must",
      "through",     "years",      "where",      "much",       "your",      "way",      "well",     "down",
      "should",      "because",    "each",       "river",      "window",    "morning",  "children", "remember",
      "mountain",    "government", "understand", "beautiful",  "engine",    "library",  "quiet",    "afternoon",
      "question",    "neighbour",  "language",   "experience", "knowledge", "captain",  "garden",   "silver",
      "electricity", "journey",    "philosophy", "umbrella",   "yesterday", "wonderful"};
  constexpr size_t kCount = sizeof kWords / sizeof *kWords;
  std::mt19937 random(1);
  std::string text;
  bool capital = true;
  while (text.size() < kBytes) {
    const double u = static_cast<double>(random() >> 8) / (1 << 24);
    std::string word = kWords[static_cast<size_t>(u * u * static_cast<double>(kCount))];
    if (capital) word[0] = static_cast<char>(word[0] - 'a' + 'A');
    text += word;
    const unsigned what = random() % 24;
    capital = what < 2;
    text += what == 0 ? ".\n\n" : what == 1 ? ". " : what == 2 ? ", " : what == 3 ? "'s " : " ";
  }
  text.resize(kBytes);
  return text;
}

// The project's own sources, in the order of their names, over and over.
std::string code() {
  std::vector<std::filesystem::path> files;
  std::error_code ec;
  for (std::filesystem::recursive_directory_iterator it(DOPPLER_SOURCE_DIR "/src", ec), end; it != end;
       it.increment(ec)) {
    if (it->path().extension() == ".cpp" || it->path().extension() == ".h") files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  while (!files.empty() && text.size() < kBytes) {
    for (const auto& file : files) text += read_text_file(file);
  }
  text.resize(kBytes);
  return replace_invalid_utf8(text);
}

std::string letters() {
  std::mt19937 random(2);
  std::string text;
  while (text.size() < kBytes) text += static_cast<char>('a' + random() % 26);
  return text;
}

std::string ideographs() {
  std::mt19937 random(3);
  std::string text;
  while (text.size() + 3 <= kBytes) append_utf8(text, 0x4E00 + random() % 3000);
  return text;
}

std::string marks() {
  std::string text = "a";
  while (text.size() + 4 <= kBytes) text += "\xCC\x81\xCC\xA3";  // acute above, dot below: out of canonical order
  return text;
}

// In a process of its own; the exit code says whether all limits were kept.
int measure(const std::filesystem::path& folder) {
  bool kept = true;
  const double before = resident_megabytes();
  const Moment start;
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const Moment loaded;
  const double memory = resident_megabytes() - before, peak = peak_megabytes();
  kept = kept && in_time(start, loaded) && peak < kMegabytesLimit;
  fmt::print("{:<10} load {}   memory {:>5.1f} MB, at most {:>5.1f} MB while loading\n", folder.filename().string(),
             between(start, loaded), memory, peak);
  const std::pair<const char*, std::string> texts[] = {{"English", english()},
                                                       {"code", code()},
                                                       {"one unbroken character", std::string(kBytes, 'a')},
                                                       {"one million spaces", std::string(kBytes, ' ')},
                                                       {"random letters", letters()},
                                                       {"ideographs", ideographs()},
                                                       {"combining marks", marks()}};
  for (const auto& [name, text] : texts) {
    const Moment begin;
    const std::vector<int32_t> ids = tokenizer.encode(text, false);
    const Moment encoded;
    const std::string back = tokenizer.decode(ids, false);
    const Moment decoded;
    kept = kept && in_time(begin, encoded);
    fmt::print("  {:<24} encode {}   {:>8} tokens   decode {}{}\n", name, between(begin, encoded), ids.size(),
               between(encoded, decoded), back == text ? "" : "   (normalised)");
  }
  fmt::print("  {:<24} {:.1f} MB\n\n", "memory at most", peak_megabytes());
  std::fflush(stdout);
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace doppler

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> folders(argv + 1, argv + argc);
  if (folders.empty()) {
    folders.push_back(DOPPLER_SOURCE_DIR "/tests/data/tokens/tiny");
    const char* set = std::getenv("DOPPLER_TOKENIZERS");
    const std::filesystem::path root = set ? set : DOPPLER_BINARY_DIR "/tokenizers";
    for (const char* name : {"gemma3", "gemma2", "gptoss", "llama3_2", "qwen3"}) folders.push_back(root / name);
  }
  int status = 0;
  for (const auto& folder : folders) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        return doppler::measure(folder);
      } catch (const doppler::Failure& failure) {
        fmt::print(stderr, "tokenizer_bench: {}\n", failure.what());
        return exit_code(failure.error.code);
      }
    }
    int result = 0;
    if (child < 0 || waitpid(child, &result, 0) < 0 || !WIFEXITED(result)) return 70;
    if (WEXITSTATUS(result) != 0 && status == 0) status = WEXITSTATUS(result);
  }
  return status;
}
