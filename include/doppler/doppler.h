// Doppler, for programs: language models on the machine a person has.
//
//   auto model = doppler::Model::open("model.gguf");
//   doppler::Chat chat(model, {.backend = "auto"});
//   chat.say("Tell me a story.", [](std::string_view piece) { std::cout << piece << std::flush; return true; });
//
// Whatever goes wrong is thrown as doppler::Exception. A Model may be used by any number of threads at once; a Chat, a
// Completion or an Embedder by one at a time. C++20. docs/api.md has more, and doppler_c.h is the same for C.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if defined(__GNUC__)
#define DOPPLER_API __attribute__((visibility("default")))
#else
#define DOPPLER_API
#endif

namespace doppler {
inline namespace v1 {

// The kinds of errors, by the numbers that the program `doppler` exits with.
enum class Code {
  kUsage = 2,        // an argument is wrong, or a call that makes no sense now
  kFile = 3,         // missing, unreadable
  kFormat = 4,       // bytes that do not mean what they should
  kUnsupported = 5,  // well formed, but nothing this engine does
  kMemory = 6,       // it does not fit
  kDevice = 7,       // the GPU or its driver refused or was lost
  kInternal = 70,    // a bug of ours
};

struct Problem {
  Code code = Code::kInternal;
  std::string what = {};      // one sentence: what went wrong
  std::string where = {};     // the file, tensor or argument to look at
  std::string expected = {};  // these may be empty
  std::string got = {};
  std::string todo = {};  // what to do about it
};

class DOPPLER_API Exception : public std::runtime_error {
 public:
  explicit Exception(Problem problem);
  Exception(const Exception&) noexcept = default;
  Exception& operator=(const Exception&) noexcept = default;
  ~Exception() override;

  // what(): "what (where): expected X, got Y. todo"
  const Problem& problem() const noexcept { return *problem_; }
  Code code() const noexcept { return problem_->code; }

 private:
  std::shared_ptr<const Problem> problem_;
};

DOPPLER_API std::string_view version();  // of the library: "0.1.0"

struct ModelInfo {
  std::string id;
  std::string quantization;        // "Q4_K_M", "GGUF Q8_0", "checkpoint BF16"
  int layers = 0, vocabulary = 0;  // vocabulary in tokens
  int max_context = 0;             // tokens the model was made for
  std::uint64_t bytes = 0;         // of its weights on disk
  bool has_tokenizer = false;      // without one it takes and gives token ids only
  bool can_chat = false;           // it has a chat template
  bool makes_text = true;          // false: it makes vectors of texts, and no Chat or Completion
  int embedding_width = 0;         // numbers of a text's vector
  std::vector<std::string> notes;  // what had to be done to its weights, and what was left out
};

// A model ready to run. Copies share it; it lives as long as somebody holds one, a Chat, a Completion or an Embedder
// included.
class DOPPLER_API Model {
 public:
  // An RDRR folder, a GGUF file (any part of a split one), or a Hugging Face folder.
  static Model open(const std::string& path);

  const ModelInfo& info() const;
  // `special` adds the tokens that the model wants around a text, as its beginning.
  std::vector<std::int32_t> tokenize(std::string_view text, bool special = true) const;
  std::string detokenize(const std::vector<std::int32_t>& tokens) const;

 private:
  friend class Chat;
  friend class Completion;
  friend class Embedder;
  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// A LoRA adapter beside a model's weights.
struct Lora {
  std::string path;  // a PEFT folder, or a GGUF adapter of llama.cpp's
  float scale = 1;   // what it is multiplied with
};

// Where and how a model runs.
struct Options {
  std::string backend = "auto";  // auto (a GPU if there is one), webgpu, cpu, or ref
  int device = -1;               // which GPU, as `doppler devices` counts them; -1: the best
  int context = 0;               // tokens to make room for; 0: the model's own, at most 4096
  int threads = 0;               // of the CPU; 0: one per core
  std::uint64_t gpu_memory = 0;  // the most bytes to take on a GPU; 0: what it needs
  bool self_test = true;         // compare a GPU with the CPU before the first token
  bool verify = true;            // hold an artefact's bytes against its hashes, once for each file
  std::vector<Lora> lora = {};   // adapters; all of them are added up
};

// How an answer is drawn.
struct AnswerOptions {
  int max_tokens = 512;
  float temperature = 0;                    // 0 always takes the likeliest token
  std::optional<int> top_k = std::nullopt;  // absent: what the model's makers recommend
  std::optional<float> top_p = std::nullopt;
  std::optional<float> min_p = std::nullopt;
  std::optional<float> repeat_penalty = std::nullopt;
  std::optional<std::uint64_t> seed = std::nullopt;  // same seed, same text; absent: random
  std::vector<std::string> stop = {};                // the answer ends before any of these appears
};

enum class Stop { kEnd, kText, kMaxTokens, kContextFull, kInterrupted };

struct Reply {
  std::string text;                  // empty for a model without a tokenizer
  std::vector<std::int32_t> tokens;  // of the answer
  Stop stop = Stop::kEnd;
  int prompt_tokens = 0;      // of the whole prompt …
  int prompt_tokens_run = 0;  // … and those that were not in the cache already
  double prompt_ms = 0, answer_ms = 0;
};

// Called with each piece of text as soon as it is certain: whole characters, sometimes none, so that a long prompt can
// be stopped, too. False stops the answer. What it throws stops the answer and leaves say() or run().
using OnPiece = std::function<bool(std::string_view piece)>;

struct ChatMessage {
  std::string role;  // system, user or assistant
  std::string content;
};

// A conversation by the model's own chat template.
class DOPPLER_API Chat {
 public:
  explicit Chat(Model model, const Options& options = {});
  ~Chat();
  Chat(Chat&&) noexcept;
  Chat& operator=(Chat&&) noexcept;

  // Asks, and keeps question and answer, also one that was stopped. What fails leaves the conversation as it was.
  Reply say(const std::string& text, const OnPiece& on_piece = {}, const AnswerOptions& options = {});

  void set_system(std::string text);  // what every answer is told first; empty: nothing
  const std::vector<ChatMessage>& messages() const;
  void clear();                        // the system message stays
  const std::string& backend() const;  // what runs: "cpu", "webgpu" or "ref"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A text, or token ids, that the model goes on from.
class DOPPLER_API Completion {
 public:
  explicit Completion(Model model, const Options& options = {});
  ~Completion();
  Completion(Completion&&) noexcept;
  Completion& operator=(Completion&&) noexcept;

  Reply run(const std::string& prompt, const OnPiece& on_piece = {}, const AnswerOptions& options = {});
  Reply run(const std::vector<std::int32_t>& prompt, const OnPiece& on_piece = {}, const AnswerOptions& options = {});
  const std::string& backend() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// How texts become vectors.
struct EmbedOptions {
  int dimensions = 0;            // 0: all; else the first so many, at length 1 again, of a model made for vectors
  std::string prompt_name = {};  // what is put before a text, by the name that the model has for it; empty: its default
  bool truncate = false;         // cut what is longer than the context, which is an error otherwise
};

// Vectors of texts, by the model's own pooling, dense layers and normalisation. A model that makes text gives the mean
// of what its final norm makes of the tokens, at length 1. A text's vector has the same bits alone and among others.
class DOPPLER_API Embedder {
 public:
  explicit Embedder(Model model, const Options& options = {});
  ~Embedder();
  Embedder(Embedder&&) noexcept;
  Embedder& operator=(Embedder&&) noexcept;

  std::vector<float> embed(const std::string& text, const EmbedOptions& options = {});
  std::vector<std::vector<float>> embed(const std::vector<std::string>& texts, const EmbedOptions& options = {});
  const std::string& backend() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace v1
}  // namespace doppler
