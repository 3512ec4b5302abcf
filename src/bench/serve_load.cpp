#include "bench/serve_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>

#include "base/error.h"
#include "engine/random.h"

namespace doppler {
namespace {

// Words that are one token each in most vocabularies.
constexpr const char* kWords[] = {
    "the",  "a",     "and",  "to",   "in",   "is",   "it",     "on",   "was",  "day",    "big",   "red",   "little",
    "sun",  "tree",  "dog",  "cat",  "ball", "bird", "boat",   "girl", "boy",  "house",  "water", "happy", "sad",
    "play", "run",   "walk", "jump", "look", "see",  "find",   "like", "love", "want",   "help",  "make",  "time",
    "park", "toy",   "car",  "fish", "food", "home", "friend", "mom",  "dad",  "small",  "old",   "new",   "good",
    "blue", "green", "hand", "door", "bed",  "book", "game",   "rain", "snow", "flower", "grass", "star"};
constexpr int kWordCount = static_cast<int>(std::size(kWords));

enum class Draw : uint64_t { kPromptLength = 1, kLength, kWord };

// The same number for the same seed, whatever was drawn before.
uint32_t draw(uint64_t seed, Draw what, uint64_t request, uint64_t index = 0) {
  return philox(seed, static_cast<uint64_t>(what) << 60 | request << 24 | index)[0];
}

int draw_length(LengthRange range, uint64_t seed, Draw what, uint64_t request) {
  const uint64_t choices = static_cast<uint64_t>(range.most - range.least) + 1;
  return range.least + static_cast<int>(draw(seed, what, request) * choices >> 32);
}

Json request_body(const ServeWorkload& w, const std::string& prompt, int tokens) {
  Json body = {{"model", w.model}};
  if (w.endpoint == "chat") {
    body["messages"] = Json::array({{{"role", "user"}, {"content", prompt}}});
  } else {
    body["prompt"] = prompt;
  }
  // ignore_eos: the lengths that were asked for are those that are measured.
  body.update({{"max_tokens", tokens},
               {"temperature", 0},
               {"ignore_eos", true},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}});
  body.update(w.body);
  return body;
}

std::string path_of(const ServeWorkload& w) {
  return w.endpoint == "chat" ? "/v1/chat/completions" : "/v1/completions";
}

double since(LoadClock::time_point start, LoadClock::time_point at) {
  return std::chrono::duration<double>(at - start).count();
}

int tokens_of(const Json& usage, const char* key) {
  const Json* count = usage.find(key);
  return count && count->is_number() ? count->get<int>() : -1;
}

// {"error": {"message": "…"}}, or {"error": "…"}, or whatever else it is.
std::string error_message(const std::string& text) {
  const std::optional<Json> json = try_parse_json(text);
  const Json* error = json ? json->find("error") : nullptr;
  const Json* message = error && error->is_object() ? error->find("message") : error;
  return (message && message->is_string() ? message->text() : text).substr(0, 300);
}

// One request on its way.
struct Asking {
  HttpExchange http;
  StreamReader reader;
  LoadClock::time_point due = {};
  int words = 0;

  Asking(const ServeWorkload& w, const std::string& prompt, int tokens) {
    http.path = path_of(w);
    http.body = request_body(w, prompt, tokens).dump();
    http.on_bytes = [this](std::string_view bytes, LoadClock::time_point at) {
      reader.take(bytes, since(http.sent, at));
    };
  }
  Asking(const Asking&) = delete;

  RequestSample sample(LoadClock::time_point start) const {
    RequestSample s{.sent_s = since(start, http.sent),
                    .late_s = since(due, http.sent),
                    .ttft_s = reader.first_s,
                    .e2e_s = reader.last_s,
                    .gaps_s = reader.gaps_s,
                    .prompt_tokens = reader.prompt_tokens < 0 ? words : reader.prompt_tokens,
                    .tokens = reader.tokens < 0 ? reader.chunks : reader.tokens,
                    .cached_tokens = std::max(0, reader.cached_tokens)};
    if (!http.failure.empty()) {
      s.failure = http.failure;
      s.detail = error_message(http.text);
    } else if (!reader.failure.empty()) {
      s.failure = reader.failure;
      s.detail = reader.detail;
    } else if (reader.chunks == 0) {
      s.failure = "no text";
      s.detail = "an answer without a chunk that has text";
    } else if (!reader.finished) {
      s.failure = "cut off";
      s.detail = "an answer without finish_reason and [DONE]";
    }
    return s;
  }
};

// How many words a prompt of so many tokens has: a line through two prompts that were counted by the server.
struct WordScale {
  double fixed = 0, per_word = 1;  // tokens
  bool known = false;
  int words(int tokens) const { return std::max(1, static_cast<int>(std::lround((tokens - fixed) / per_word))); }
};

WordScale measure_words(LoadClient& client, const ServeWorkload& w) {
  int counts[2];
  std::string prompt;
  for (int& count : counts) {
    for (const char* word : kWords) prompt += (prompt.empty() ? "" : " ") + std::string(word);
    Asking asking(w, prompt, 1);
    client.ask(asking.http);
    const RequestSample sample = asking.sample(asking.http.sent);
    if (!sample.failure.empty() && sample.failure != "no text") {
      fail({.code = ErrorCode::kFile,
            .what = "the server does not answer a first request: " + sample.failure,
            .where = asking.http.path,
            .got = sample.detail,
            .todo = "Check the address, --model, --api-key and --endpoint"});
    }
    count = asking.reader.prompt_tokens;
  }
  if (counts[0] < 0 || counts[1] <= counts[0]) return {};
  const double per_word = static_cast<double>(counts[1] - counts[0]) / kWordCount;
  return {counts[0] - per_word * kWordCount, per_word, true};
}

std::string first_model(LoadClient& client) {
  HttpExchange http{.path = "/v1/models"};
  std::string text;
  http.on_bytes = [&](std::string_view bytes, LoadClock::time_point) { text += bytes; };
  client.ask(http);
  const std::optional<Json> json = try_parse_json(text);
  const Json* data = json ? json->find("data") : nullptr;
  const Json* id = data && data->is_array() && !data->empty() ? (*data)[size_t{0}].find("id") : nullptr;
  if (id && id->is_string()) return id->text();
  fail({.code = ErrorCode::kFile,
        .what = "the server does not say which models it has",
        .where = http.path,
        .got = http.failure.empty() ? text.substr(0, 300) : http.failure + ": " + error_message(http.text),
        .todo = "Check the address and --api-key, or name one with --model"});
}

}  // namespace

void StreamReader::take(std::string_view bytes, double at) {
  for (size_t end; (end = bytes.find('\n')) != std::string_view::npos; bytes.remove_prefix(end + 1)) {
    line_ += bytes.substr(0, end);
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("data:")) {
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      take_event(line, at);
    }
    line_.clear();
  }
  line_ += bytes;
}

void StreamReader::take_event(std::string_view data, double at) {
  if (data == "[DONE]") {
    finished = true;
    return;
  }
  const std::optional<Json> json = try_parse_json(data);
  if (!json || !json->is_object()) {
    failure = "no JSON";
    detail = std::string(data.substr(0, 300));
    return;
  }
  if (const Json* error = json->find("error"); error && !error->is_null()) {
    failure = "error in the stream";
    detail = error_message(std::string(data));
  }
  if (const Json* usage = json->find("usage"); usage && usage->is_object()) {
    prompt_tokens = tokens_of(*usage, "prompt_tokens");
    tokens = tokens_of(*usage, "completion_tokens");
    const Json* details = usage->find("prompt_tokens_details");
    if (details && details->is_object()) cached_tokens = tokens_of(*details, "cached_tokens");
  }
  if (const Json* choices = json->find("choices"); choices && choices->is_array() && !choices->empty()) {
    take_choice((*choices)[size_t{0}], at);
  }
}

void StreamReader::take_choice(const Json& choice, double at) {
  last_s = at;
  if (const Json* reason = choice.find("finish_reason"); reason && reason->is_string()) finished = true;
  const Json* delta = choice.find("delta");
  const Json& said = delta ? *delta : choice;
  bool text = false;
  for (const char* key : {"content", "reasoning_content", "reasoning", "text"}) {
    const Json* part = said.find(key);
    text = text || (part && part->is_string() && !part->text().empty());
  }
  const Json* calls = said.find("tool_calls");
  if (!text && !(calls && calls->is_array() && !calls->empty())) return;
  if (chunks++ == 0) {
    first_s = at;
  } else {
    gaps_s.push_back(at - last_text_s_);
  }
  last_text_s_ = at;
}

std::string load_prompt(const ServeWorkload& workload, uint64_t request, int words) {
  const auto shared = static_cast<uint64_t>(std::lround(workload.shared_prefix * words));
  std::string text;
  for (uint64_t i = 0; i < static_cast<uint64_t>(words); ++i) {
    const uint64_t speaker = i < shared ? 0 : request + 1;
    if (i > 0) text += ' ';
    text += kWords[draw(workload.seed, Draw::kWord, speaker, i) % kWordCount];
  }
  return text;
}

ServeResult bench_serve(const LoadTarget& target, const ServeWorkload& workload, const OnStatus& progress) {
  LoadClient client(target);
  ServeResult result;
  result.url = fmt::format("http://{}:{}{}", target.host, target.port, target.base);
  result.workload = workload;
  ServeWorkload& w = result.workload;
  progress("asking what a word costs");
  if (w.model.empty()) w.model = first_model(client);
  const WordScale scale = measure_words(client, w);

  std::deque<Asking> all;
  size_t done = 0;
  LoadClock::time_point told = {};
  const auto next = [&](LoadClock::time_point due) -> HttpExchange& {
    const uint64_t request = all.size();
    const int words = scale.words(draw_length(w.prompt_tokens, w.seed, Draw::kPromptLength, request));
    const int tokens = draw_length(w.tokens, w.seed, Draw::kLength, request);
    Asking& asking = all.emplace_back(w, load_prompt(w, request, words), tokens);
    asking.due = due;
    asking.words = words;
    return asking.http;
  };
  const LoadClock::time_point start = LoadClock::now();
  LoadClock::time_point end = start;
  client.run({.clients = w.clients,
              .rate = w.rate,
              .requests = w.requests,
              .seconds = w.seconds,
              .seed = w.seed,
              .next = next,
              .done = [&](HttpExchange& http) {
                ++done;
                end = http.ended;
                http.body.clear();
                if (http.ended - told < std::chrono::milliseconds(200)) return;
                told = http.ended;
                progress(fmt::format("{} requests answered, {} running", done, all.size() - done));
              }});
  progress("");
  result.duration_s = since(start, end);
  for (const Asking& asking : all) {
    result.samples.push_back(asking.sample(start));
    const RequestSample& last = result.samples.back();
    if (last.failure.empty() && (asking.reader.tokens < 0 || asking.reader.prompt_tokens < 0)) result.counted = false;
  }
  return result;
}

}  // namespace doppler
