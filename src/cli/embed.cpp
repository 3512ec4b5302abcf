#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/say.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "engine/embedding.h"
#include "engine/open_session.h"

namespace doppler {
namespace {

constexpr size_t kTextsAtOnce = 64;  // read before their vectors are printed

struct EmbedArguments {
  std::string model, jsonl;
  std::vector<std::string> texts;
  EmbedText text;
  SessionWishes session;
  int dimensions = 0;
  bool no_verify = false;
};

struct Entry {
  std::string text;
  Json id;  // as the line has it; null where it has none
};

// {"text": …} with an id perhaps, or the text alone as a JSON string.
Entry entry_of(const std::string& line, const std::string& where) {
  Json json = parse_json(line, where);
  if (json.is_string()) return {std::string(json.text()), {}};
  const Json* id = find(json, "id");
  return {require_string(json, "text", where), id ? *id : Json()};
}

// Texts from the command line, a file of JSON lines, or lines of standard input.
class TextSource {
 public:
  explicit TextSource(const EmbedArguments& a) : a_(a) {
    if (!a.texts.empty()) return;
    const std::string path = a.jsonl.empty() || a.jsonl == "-" ? "/dev/stdin" : a.jsonl;
    where_ = path == "/dev/stdin" ? "standard input" : path;
    text_ = read_input(path);
  }

  std::optional<Entry> next() {
    if (!a_.texts.empty()) {
      if (number_ == a_.texts.size()) return {};
      return Entry{a_.texts[number_++], {}};
    }
    while (at_ < text_.size()) {
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      std::string line = text_.substr(at_, end - at_);
      at_ = end + 1;
      ++number_;
      if (line.ends_with('\r')) line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      if (a_.jsonl.empty()) return Entry{std::move(line), {}};
      return entry_of(line, fmt::format("{}, line {}", where_, number_));
    }
    return {};
  }

 private:
  const EmbedArguments& a_;
  std::string where_, text_;
  size_t number_ = 0, at_ = 0;
};

void embed(EmbedArguments a) {
  if (!a.texts.empty() && !a.jsonl.empty()) {
    fail({.code = ErrorCode::kUsage,
          .what = "texts come from one place",
          .where = "embed",
          .expected = "TEXT …, --jsonl FILE, or lines of standard input"});
  }
  const LoadedModel model = open_model(a.model);
  const EmbeddingHead head(model);
  head.check_dimensions(a.dimensions);
  a.session.verify = !a.no_verify;
  a.text.longest = context_of(model, a.session);
  TextSource source(a);
  std::unique_ptr<Executor> executor;
  size_t index = 0;
  for (std::optional<Entry> entry = source.next(); entry;) {
    std::vector<Json> ids;
    std::vector<std::vector<int32_t>> tokens;
    for (; entry && tokens.size() < kTextsAtOnce; entry = source.next()) {
      ids.push_back(entry->id);
      tokens.push_back(tokens_to_embed(model, entry->text, a.text));
      if (tokens.back().empty())
        fail({.code = ErrorCode::kUsage,
              .what = "a text has no tokens",
              .where = "embed",
              .got = fmt::format("text {}", index + tokens.size())});
    }
    if (!executor) executor = open_executor(model, a.session);
    const std::vector<Embedding> vectors = embed_texts(head, *executor, tokens, a.dimensions);
    for (size_t i = 0; i < vectors.size(); ++i) {
      Json line = Json::object();
      line["index"] = index++;
      if (!ids[i].is_null()) line["id"] = ids[i];
      line["tokens"] = tokens[i].size();
      line["embedding"] = vectors[i];
      fmt::print("{}\n", line.dump());
    }
    std::fflush(stdout);
  }
}

}  // namespace

void add_embed(Verb app) {
  auto a = std::make_shared<EmbedArguments>();
  Verb verb = app.add_verb("embed", "Make vectors of texts");
  verb.add_option("MODEL", a->model,
                  "An RDRR folder, a GGUF file, a Hugging Face folder, hf:org/repo[@revision][:quantisation], or an "
                  "address")
      .required();
  verb.add_option("TEXT", a->texts, "Texts; without any and without --jsonl, each line of standard input is one")
      .expected(0, 1 << 20);
  verb.add_option("--jsonl", a->jsonl,
                  "A file (- for standard input) with a text a line: {\"text\": …}, with an \"id\" that comes back, or "
                  "a JSON string");
  verb.add_option("--prompt-name", a->text.prompt_name,
                  "Put this prompt of the model before each text, as \"query\" or \"document\" (default: the model's)");
  verb.add_option("--dimensions", a->dimensions, "Only the first so many numbers, at length 1 again (default: all)")
      .positive();
  verb.add_flag("--truncate", a->text.truncate, "Cut texts that are longer than the context");
  verb.add_option("--context", a->session.context, "Tokens to make room for (default: the model's own, at most 4096)")
      .positive();
  verb.add_option("--backend", a->session.backend, "auto, webgpu, cpu or ref").show_default();
  verb.add_option("--device", a->session.device, "Which GPU, as doppler devices counts them");
  add_gpu_memory(verb, a->session.gpu_memory);
  verb.add_option("--threads", a->session.threads, "Threads (default: one per core)");
  add_no_verify(verb, a->no_verify);
  verb.footer(
      "Prints a JSON line for each text: {\"index\": 0, \"tokens\": 7, \"embedding\": […]}. A model that makes text "
      "has\n"
      "vectors, too: the mean over a text's tokens of what its final norm makes of them, at length 1.\n"
      "Examples:\n"
      "  doppler embed ~/models/embed-q8 \"A cat.\" \"A dog.\" --prompt-name document --dimensions 256\n"
      "  doppler embed ~/models/embed-q8 --jsonl texts.jsonl > vectors.jsonl");
  verb.callback([a] { embed(*a); });
}

}  // namespace doppler
