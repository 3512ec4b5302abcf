#include <fmt/format.h>

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "base/files.h"
#include "cli/interrupt.h"
#include "cli/other_rank.h"
#include "cli/sandboxed.h"
#include "cli/serving.h"
#include "cli/verbs.h"
#include "serve/server.h"

namespace doppler {
namespace {

struct ServeArguments {
  std::vector<std::string> models, cors, hosts, api_keys;
  std::string host = "127.0.0.1", api_key_file;
  EngineArguments engine;
  int port = 8080, sequences = 32, queue = 256, drain_seconds = 30, idle_unload = 0;
  uint64_t body_limit = 16 << 20;
  bool no_auth = false, isolate = false, watch = false, sandbox = false, log_json = false, log_text = false;
};

// Those of the command line and of the file; where there are none, the variable's.
std::vector<std::string> api_keys(const ServeArguments& a) {
  std::vector<std::string> keys = a.api_keys;
  if (!a.api_key_file.empty()) {
    std::istringstream lines(read_text_file(a.api_key_file));
    for (std::string line; std::getline(lines, line);) {
      const size_t begin = line.find_first_not_of(" \t\r");
      if (begin != std::string::npos && line[begin] != '#')
        keys.push_back(line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin));
    }
    if (keys.empty()) fail({.code = ErrorCode::kUsage, .what = "there is no key in the file", .where = a.api_key_file});
  }
  const char* key = std::getenv("DOPPLER_API_KEY");
  if (keys.empty() && key && *key) keys.emplace_back(key);
  return keys;
}

void run_serve(const ServeArguments& a) {
  serve::ServeOptions options;
  options.http.address = a.host;
  options.http.port = static_cast<uint16_t>(a.port);
  options.http.body_limit = a.body_limit;
  options.models = model_specs(a.models, a.engine.adapters);
  if (worked_as_other_rank(options.models.front().path.string(), a.engine.backend, a.engine.device, a.engine.threads,
                           a.engine.gpu_memory, a.sandbox))
    return;
  check_one_model(options.models.size());
  options.engine = engine_options(a.engine, a.sequences);
  options.engine.queue = a.queue;
  options.engine.idle_unload_s = a.idle_unload;
  options.access = {.keys = api_keys(a), .cors = a.cors, .allowed_hosts = a.hosts, .isolate = a.isolate};
  options.no_auth = a.no_auth;
  options.log_json = a.log_json;
  options.log_text = a.log_text;
  if (a.watch) {
    if (::isatty(STDOUT_FILENO) == 0) {
      fail(
          {.code = ErrorCode::kUsage, .what = "standard output is no terminal to show a table on", .where = "--watch"});
    }
    options.watch_file = STDOUT_FILENO;
    if (::isatty(STDERR_FILENO) != 0) options.log_file = -1;  // lines would tear the table
  }
  options.drain = std::chrono::seconds(a.drain_seconds);
  if (a.sandbox) {
    std::vector<std::filesystem::path> paths;
    for (const serve::ModelSpec& model : options.models) {
      paths.push_back(model.path);
      for (const serve::NamedAdapter& adapter : model.adapters) paths.push_back(adapter.spec.path);
    }
    Sandbox sandbox = sandbox_for(paths, a.engine.backend);
    sandbox.listens = true;
    sandbox.port = options.http.port;
    sandbox_now(sandbox);
  }
  std::signal(SIGPIPE, SIG_IGN);
  const InterruptFlag stop({SIGINT, SIGTERM});
  const auto address = [&](uint16_t port) {
    return fmt::format("http://{}:{}\n", a.host.find(':') == std::string::npos ? a.host : "[" + a.host + "]", port);
  };
  // What cannot be written is no reason to stop: fmt would throw.
  serve::serve(options, {.stopping = [&] { return stop.raised(); },
                         .ready =
                             [&](uint16_t port) {
                               std::fputs(address(port).c_str(), stdout);
                               std::fflush(stdout);
                             }});
}

}  // namespace

void add_serve(Verb app) {
  auto a = std::make_shared<ServeArguments>();
  Verb verb = app.add_verb("serve", "Answer over HTTP: OpenAI's, Anthropic's and Ollama's APIs");
  verb.add_option("models", a->models,
                  "What doppler run takes, or NAME=MODEL (default: the model that ships with Doppler); all but the "
                  "first are loaded when they are asked for");
  verb.add_option("--host", a->host, "Address to listen at; one that others reach needs --api-key or --no-auth")
      .show_default();
  verb.add_option("--port", a->port, "Port; 0 takes one that is free").range(0, 65535).show_default();
  verb.add_option("--api-key", a->api_keys,
                  "Key that requests must carry (default: the variable DOPPLER_API_KEY, if it is set); can be given "
                  "several times, one for each client")
      .repeatable();
  verb.add_option("--api-key-file", a->api_key_file, "File with a key on each line; # begins a comment");
  verb.add_flag("--isolate", a->isolate,
                "What one client's prompts left in the cache is not found by another's: a client is a key, or an "
                "address where there is no key");
  verb.add_flag("--no-auth", a->no_auth, "Let whoever reaches the address ask");
  verb.add_option("--cors", a->cors, "Origin of pages that may ask, or *; can be given several times").repeatable();
  verb.add_option("--allow-host", a->hosts,
                  "Name under which the server is reached, beside localhost; can be given several times")
      .repeatable();
  verb.add_option("--sequences", a->sequences,
                  "Answers of one client that run at once; an eighth more may run for others")
      .range(1, 1024)
      .show_default();
  verb.add_option(
          "--queue", a->queue,
          "Unfinished requests at most, and an eighth more from clients that have none; one more is answered with 429")
      .positive()
      .show_default();
  verb.add_option("--idle-unload", a->idle_unload, "Unload a model that nobody asked for so many seconds").positive();
  verb.add_option("--body-limit", a->body_limit, "Largest body of a request: bytes, 16MiB").byte_size();
  verb.add_option("--drain", a->drain_seconds, "Seconds that answers may still take after SIGTERM")
      .not_negative()
      .show_default();
  add_engine_options(verb, a->engine);
  verb.add_flag("--sandbox", a->sandbox,
                "Reach nothing but the models, this port and the GPU, whatever a model's file or a request does "
                "(Linux; see SECURITY.md)");
  verb.add_flag("--watch", a->watch,
                "A table on the terminal: what runs, the cache, tokens per second; log lines only where standard error "
                "goes elsewhere");
  verb.add_flag("--log-json", a->log_json, "Log lines are JSON");
  verb.add_flag("--log-text", a->log_text, "Log what is asked and answered, too");
  verb.footer(
      "Example:\n  doppler serve models/tiny --port 8080\n  curl http://127.0.0.1:8080/v1/chat/completions -d "
      "'{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'");
  verb.callback([a] { run_serve(*a); });
}

}  // namespace doppler
