#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "cli/interrupt.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "serve/server.h"

namespace doppler {
namespace {

struct Arguments {
  std::vector<std::string> models, cors, hosts;
  std::string host = "127.0.0.1", api_key, backend = "auto";
  int port = 8080, context = 0, threads = 0, device = -1, sequences = 32, queue = 256, drain_seconds = 30,
      idle_unload = 0;
  uint64_t body_limit = 16 << 20, cache_memory = 0, gpu_memory = 0;
  bool no_auth = false, log_json = false, log_text = false;
};

// NAME=MODEL, or a model whose last part is the name; one from elsewhere is fetched.
serve::ModelSpec model_spec(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals != std::string::npos && equals > 0 && word.find('/') > equals)
    return {word.substr(0, equals), local_model(word.substr(equals + 1))};
  std::filesystem::path path = word;
  if (path.filename().empty()) path = path.parent_path();
  return {path.extension() == ".gguf" ? path.stem().string() : path.filename().string(), local_model(word)};
}

void run(const Arguments& a) {
  serve::ServeOptions options;
  options.http.address = a.host;
  options.http.port = static_cast<uint16_t>(a.port);
  options.http.body_limit = a.body_limit;
  for (const std::string& word : a.models) options.models.push_back(model_spec(word));
  if (options.models.empty()) options.models.push_back(model_spec(default_model().string()));
  for (size_t i = 0; i < options.models.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (options.models[i].name != options.models[k].name) continue;
      fail({.code = ErrorCode::kUsage,
            .what = "two models have the same name",
            .where = options.models[i].name,
            .todo = "Give one of them another: NAME=PATH"});
    }
  }
  options.engine.backend = a.backend;
  // Sequences share what four of full length need, unless told how much.
  options.engine.executor = {.context = a.context,
                             .threads = a.threads,
                             .device = a.device,
                             .gpu_memory = a.gpu_memory,
                             .cache_memory = a.cache_memory,
                             .sequences = 4};
  options.engine.sequences = a.sequences;
  options.engine.queue = a.queue;
  options.engine.idle_unload_s = a.idle_unload;
  const char* key = std::getenv("DOPPLER_API_KEY");
  options.api_key = a.api_key.empty() && key ? key : a.api_key;
  options.no_auth = a.no_auth;
  options.cors = a.cors;
  options.allowed_hosts = a.hosts;
  options.log_json = a.log_json;
  options.log_text = a.log_text;
  options.drain = std::chrono::seconds(a.drain_seconds);
  std::signal(SIGPIPE, SIG_IGN);
  const InterruptFlag stop({SIGINT, SIGTERM});
  serve::serve(
      options, [&] { return stop.raised(); },
      [&](uint16_t port) {
        fmt::print("http://{}:{}\n", a.host.find(':') == std::string::npos ? a.host : "[" + a.host + "]", port);
        std::fflush(stdout);
      });
}

}  // namespace

void add_serve(Verb app) {
  auto a = std::make_shared<Arguments>();
  Verb verb = app.add_verb("serve", "Answer over HTTP: OpenAI's, Anthropic's and Ollama's APIs");
  verb.add_option("models", a->models,
                  "What doppler run takes, or NAME=MODEL (default: the model that ships with Doppler); all but the "
                  "first are loaded when they are asked for");
  verb.add_option("--host", a->host, "Address to listen at; one that others reach needs --api-key or --no-auth")
      .show_default();
  verb.add_option("--port", a->port, "Port; 0 takes one that is free").range(0, 65535).show_default();
  verb.add_option("--api-key", a->api_key,
                  "Key that requests must carry (default: the variable DOPPLER_API_KEY, if it is set)");
  verb.add_flag("--no-auth", a->no_auth, "Let whoever reaches the address ask");
  verb.add_option("--cors", a->cors, "Origin of pages that may ask, or *; can be given several times").repeatable();
  verb.add_option("--allow-host", a->hosts,
                  "Name under which the server is reached, beside localhost; can be given several times")
      .repeatable();
  verb.add_option("--context", a->context,
                  "Tokens of a prompt with its answer (default: the model's own, at most 4096)")
      .positive();
  verb.add_option("--sequences", a->sequences, "Answers that run at once").range(1, 1024).show_default();
  verb.add_option("--queue", a->queue, "Unfinished requests at most; one more is answered with 429")
      .positive()
      .show_default();
  verb.add_option(
          "--cache-memory", a->cache_memory,
          "Bytes of keys and values that all answers share: 512MiB or 8GiB (default: what four of full length need)")
      .byte_size();
  verb.add_option("--idle-unload", a->idle_unload, "Unload a model that nobody asked for so many seconds").positive();
  verb.add_option("--body-limit", a->body_limit, "Largest body of a request: bytes, 16MiB").byte_size();
  verb.add_option("--drain", a->drain_seconds, "Seconds that answers may still take after SIGTERM")
      .not_negative()
      .show_default();
  verb.add_option("--threads", a->threads, "Threads (default: one per core)").range(1, 1024);
  verb.add_option("--backend", a->backend, "auto, webgpu, cpu or ref").show_default();
  verb.add_option("--device", a->device, "Which GPU, as doppler devices counts them");
  add_gpu_memory(verb, a->gpu_memory);
  verb.add_flag("--log-json", a->log_json, "Log lines are JSON");
  verb.add_flag("--log-text", a->log_text, "Log what is asked and answered, too");
  verb.footer(
      "Example:\n  doppler serve models/tiny --port 8080\n  curl http://127.0.0.1:8080/v1/chat/completions -d "
      "'{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'");
  verb.callback([a] { run(*a); });
}

}  // namespace doppler
