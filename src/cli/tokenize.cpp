#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/say.h"
#include "base/utf8.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "jinja/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace doppler {
namespace {

struct TokenizeArguments {
  std::string model, text, chat;
  Option text_given, chat_given;
  bool json = false, jsonl = false;
};

std::string read_all(const std::string& path) { return read_input(path == "-" ? "/dev/stdin" : path); }

std::string as_line(const Json& json) { return json.dump(); }

// A conversation: {"messages": […], "tools": […], "add_generation_prompt": true}; whatever else it holds goes to the
// template as it is, and no generation prompt is added unless it says so. A bare array is the messages of somebody who
// waits for an answer.
std::string render(const ChatTemplate& chat, const Json& conversation, const std::string& where) {
  if (!chat.present()) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "this model has no chat template",
          .where = where,
          .todo = "Give the prompt as plain text"});
  }
  if (conversation.is_array()) return chat.render(conversation, nullptr, true);
  const Json* tools = find(conversation, "tools");
  Json extra = Json::object();
  for (const auto& [key, value] : conversation.items()) {
    if (key != "messages" && key != "tools" && key != "add_generation_prompt") extra[key] = value;
  }
  return chat.render(require_array(conversation, "messages", where), tools ? *tools : Json(),
                     bool_or(conversation, "add_generation_prompt", false, where), extra);
}

void print_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  const bool colour = isatty(STDOUT_FILENO) != 0 && !std::getenv("NO_COLOR");
  static constexpr int kBackgrounds[] = {24, 58, 53, 23, 94};  // dark, of the 256; neighbours tell apart
  fmt::print("{} tokens\n", ids.size());
  size_t i = 0;
  for (const int32_t id : ids) {
    const std::string piece = visible(tokenizer.piece(id));
    if (!colour) {
      fmt::print("{:>8}  {}\n", id, piece);
    } else if (tokenizer.is_special(id)) {
      fmt::print("\033[1;38;5;16;48;5;180m{}\033[0m", piece);
    } else {
      fmt::print("\033[97;48;5;{}m{}\033[0m", kBackgrounds[i++ % std::size(kBackgrounds)], piece);
    }
  }
  if (colour) fmt::print("\n{}\n", fmt::join(ids, " "));
}

Json pieces_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Json pieces = Json::array();
  for (const int32_t id : ids) pieces.push_back(std::string(tokenizer.piece(id)));
  return pieces;
}

// One request a line, one answer a line, in order. A conversation that the template refuses is answered with its
// words; a line that is no request ends the program.
void serve_lines(const Tokenizer& tokenizer, const ChatTemplate& chat) {
  std::string line;
  for (size_t number = 1; std::getline(std::cin, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("standard input, line {}", number);
    const Json request = parse_json(line, where);
    Json answer;
    if (find(request, "messages")) {
      try {
        answer["text"] = render(chat, request, where);
      } catch (const Failure& failure) {
        answer = {{"error", failure.what()}};
      }
    } else {
      const std::string text = require_string(request, "text", where);
      const std::vector<int32_t> ids = tokenizer.encode(text, false);
      answer["ids"] = ids;
      answer["with_special"] = tokenizer.encode(text, true);
      answer["decoded"] = tokenizer.decode(ids, false);
    }
    fmt::print("{}\n", as_line(answer));
    std::fflush(stdout);
  }
}

void tokenize(const TokenizeArguments& a) {
  const int inputs = a.text_given.given() + a.chat_given.given() + a.jsonl;
  if (inputs != 1) {
    fail({.code = ErrorCode::kUsage,
          .what = "there must be one thing to tokenize",
          .where = "tokenize",
          .expected = "TEXT, --chat or --jsonl",
          .todo = "See doppler tokenize --help"});
  }
  const std::filesystem::path folder =
      is_remote_name(a.model) ? local_model(a.model, ModelUse::kSource) : std::filesystem::path(a.model);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  if (a.jsonl) return serve_lines(tokenizer, ChatTemplate::load(folder));
  const bool conversation = a.chat_given.given();
  // A template writes the special tokens itself.
  const std::string text = conversation
                               ? render(ChatTemplate::load(folder), parse_json(read_all(a.chat), a.chat), a.chat)
                           : a.text == "-" ? read_all("-")
                                           : a.text;
  const std::vector<int32_t> plain = tokenizer.encode(text, false);
  const std::vector<int32_t> ids = conversation ? plain : tokenizer.encode(text, true);
  if (a.json) {
    Json answer;
    answer["text"] = replace_invalid_utf8(text);
    answer["ids"] = plain;
    if (!conversation) answer["with_special"] = ids;
    answer["pieces"] = pieces_of(tokenizer, ids);
    answer["decoded"] = tokenizer.decode(plain, false);
    fmt::print("{}\n", as_line(answer));
    return;
  }
  if (conversation) fmt::print("{}\n\n", text);
  print_tokens(tokenizer, ids);
}

}  // namespace

void add_tokenize(Verb app) {
  auto a = std::make_shared<TokenizeArguments>();
  Verb verb = app.add_verb("tokenize", "Show the tokens of a text, or the prompt of a conversation");
  verb.add_option("MODEL", a->model, "A folder with a tokenizer.json, or hf:org/repo of a checkpoint").required();
  a->text_given = verb.add_option("TEXT", a->text, "The text; - reads standard input");
  a->chat_given = verb.add_option(
      "--chat", a->chat,
      "A JSON file with a conversation, its messages or {\"messages\": [], \"tools\": [], \"add_generation_prompt\": "
      "true}; - reads standard input");
  verb.add_flag("--json", a->json, "One JSON object with ids, pieces, and the text");
  verb.add_flag(
      "--jsonl", a->jsonl,
      "Answer requests from standard input, one per line: {\"text\": …} with ids, {\"messages\": […]} with the "
      "prompt");
  verb.footer(
      "Examples:\n"
      "  doppler tokenize models/tiny \"Once upon a time\"\n"
      "  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | doppler tokenize models/tiny --chat -\n"
      "  doppler tokenize models/tiny --jsonl < requests.jsonl > answers.jsonl");
  verb.callback([a] { tokenize(*a); });
}

}  // namespace doppler
