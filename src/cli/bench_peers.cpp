// `doppler bench peers`: this engine and llama.cpp on the same weights, in turns.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/say.h"
#include "base/threads.h"
#include "bench/peers.h"
#include "cli/open_model.h"
#include "cli/peer.h"
#include "cli/verbs.h"
#include "convert/gguf_export.h"
#include "format/gguf.h"
#include "format/rdrr.h"
#include "model/model_config.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

struct PeersArguments {
  std::string model;
  std::vector<std::string> quants = {"q4_k_m", "q4_0"};
  PeerWorkload workload;
  bool json = false, install_only = false;
};

void run_peers(PeersArguments& arguments) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto progress = [&](std::string_view line) {
    if (terminal) show_status(line);
  };
  const fs::path script = peer_script(), peers = install_peer(progress);
  if (arguments.install_only) {
    progress("");
    fmt::print("{}\n", peers.string());
    return;
  }
  PeerWorkload& workload = arguments.workload;
  if (workload.threads == 0) workload.threads = available_cores();
  const fs::path model = fs::absolute(local_model(arguments.model));
  const bool gguf = is_gguf(model);
  const fs::path here = held_back_peer(peers);
  const PeerModels exports(peers);
  std::vector<PeerEngine> engines = {
      {"doppler", "", {program_path().string(), "bench", "peer-worker"}, fs::current_path(), model}};
  if (gguf) {
    workload.vocab = open_model(model).config.vocab;
    engines[0].types = "the same file";
    engines.push_back({"llama.cpp", "", {node_program().string(), script.string()}, here, model});
  } else {
    const RdrrReader reader = RdrrReader::open(model);
    workload.vocab = read_model_config(reader.manifest(), "manifest.json").vocab;
    engines[0].types = string_or(reader.manifest(), "quantization", "", "manifest.json");
    for (const std::string& quant : arguments.quants) {
      progress(fmt::format("writing the model as GGUF {}", quant));
      const fs::path file = exports.folder / (quant + ".gguf");
      export_gguf(model, file, {.quant = quant == "same" ? "" : quant});
      engines.push_back({"llama.cpp", quant, {node_program().string(), script.string()}, here, file});
    }
  }
  const std::vector<PeerFigures> figures = compare_peers(engines, workload, progress);
  fmt::print("{}", arguments.json ? to_json(figures, workload).dump(1) + "\n" : to_table(figures, workload));
}

}  // namespace

void add_bench_peers(Verb bench) {
  auto arguments = std::make_shared<PeersArguments>();
  Verb verb = bench.add_verb("peers", "This engine beside llama.cpp on the CPU: same weights, in turns");
  verb.add_option("model", arguments->model, kModelHelp);
  verb.add_option("--quant", arguments->quants,
                  "GGUF types to give llama.cpp, comma-separated: q4_k_m, q4_0, q8_0, f16, bf16, f32, or same")
      .delimiter(',')
      .show_default();
  verb.add_option("--prompt-tokens", arguments->workload.prompt_tokens, "Tokens of the prompt")
      .range(1, 1 << 20)
      .show_default();
  verb.add_option("--prompt-ids", arguments->workload.prompt, "A prompt of your own, as token ids").delimiter(',');
  verb.add_option("--tokens", arguments->workload.tokens, "Tokens to decode").range(1, 1 << 20).show_default();
  verb.add_option("--runs", arguments->workload.runs, "Runs of each, after one that warms up")
      .range(1, 1000)
      .show_default();
  verb.add_option("--threads", arguments->workload.threads, "Threads (default: one per core)").range(1, 1024);
  verb.add_flag("--install", arguments->install_only, "Only fetch llama.cpp, and print where it is");
  verb.finish(arguments->json,
              "Fetches npm's node-llama-cpp (30 MB) into peers/ beside the program on first use; needs node 20.\n"
              "Example:\n  doppler synth gemma-3-1b /tmp/1b && doppler bench peers /tmp/1b",
              [arguments] { run_peers(*arguments); });
  Verb worker = bench.add_verb("peer-worker", "");
  worker.hide();  // for peers only
  worker.callback([] { serve_peer(); });
}

}  // namespace doppler
