// `doppler bench peers`: this engine and llama.cpp on the same weights, in turns.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/say.h"
#include "base/threads.h"
#include "bench/peers.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "convert/gguf_export.h"
#include "format/gguf.h"
#include "format/rdrr.h"
#include "model/model_config.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPeerVersion = "3.22.1";  // of node-llama-cpp

struct PeersArguments {
  std::string model;
  std::vector<std::string> quants = {"q4_k_m", "q4_0"};
  PeerWorkload workload;
  bool json = false, install_only = false;
};

// The program's own, and no other: what is found is run.
fs::path find_script() {
  const fs::path script = program_path().parent_path().parent_path() / "tools/peers/peer.mjs";
  if (!file_exists(script)) {
    fail({.code = ErrorCode::kFile,
          .what = "the script that drives llama.cpp is not here",
          .where = script.string(),
          .todo = "Use the program in the build folder of the sources"});
  }
  return script;
}

// Runs a command in `folder`, what it says goes to `log`. True if it ended well.
bool run_logged(const std::vector<std::string>& command, const fs::path& folder, const fs::path& log) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    fail({.code = ErrorCode::kFile,
          .what = "a program that is needed cannot be started",
          .where = command.front(),
          .got = std::strerror(error),
          .todo = "Install it"});
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The folder with node_modules, filled on first use. Only the plain CPU build is fetched, none for other machines.
fs::path install(const std::function<void(std::string_view)>& progress) {
  const fs::path folder = program_path().parent_path() / "peers";
  std::error_code ec;
  const fs::path mark = folder / fmt::format("installed-{}", kPeerVersion);
  if (fs::exists(mark, ec)) return folder;
  struct utsname machine {};
  ::uname(&machine);
  const bool arm = std::string_view(machine.machine) == "aarch64";
  progress("fetching llama.cpp (npm node-llama-cpp)");
  fs::create_directories(folder, ec);
  write_file_whole(folder / "package.json",
                   Json{{"private", true},
                        {"dependencies",
                         {{"node-llama-cpp", kPeerVersion},
                          {arm ? "@node-llama-cpp/linux-arm64" : "@node-llama-cpp/linux-x64", kPeerVersion}}}}
                       .dump(1));
  const fs::path log = folder / "npm.log";
  if (!run_logged({"npm", "install", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund"}, folder, log)) {
    fail({.code = ErrorCode::kFile,
          .what = "llama.cpp could not be fetched",
          .where = log.string(),
          .expected = "npm with a registry in reach",
          .todo = "Read the log"});
  }
  write_file_whole(mark, "");
  return folder;
}

// llama.cpp brings a library for each kind of CPU and takes the best that runs. Where DOPPLER_CPU holds this engine to
// an instruction set, a copy with one library alone holds llama.cpp to the same.
fs::path held_back(const fs::path& peers) {
  const char* asked = std::getenv("DOPPLER_CPU");
  const std::string name = asked ? asked : "";
  const std::string kind = name == "portable" ? "x64" : name == "avx2" ? "haswell" : name == "avx512" ? "icelake" : "";
  if (kind.empty()) return peers;
  const fs::path folder = peers / ("only-" + kind), mark = folder / fmt::format("installed-{}", kPeerVersion);
  std::error_code ec;
  if (fs::exists(mark, ec)) return folder;
  fs::remove_all(folder, ec);
  fs::create_directories(folder, ec);
  fs::copy(peers / "node_modules", folder / "node_modules",
           fs::copy_options::recursive | fs::copy_options::copy_symlinks, ec);
  std::vector<fs::path> others;
  bool found = false;
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(folder, ec)) {
    const std::string stem = file.path().stem().string();
    if (!stem.starts_with("libggml-cpu-")) continue;
    found |= stem.ends_with(kind);
    if (!stem.ends_with(kind)) others.push_back(file.path());
  }
  if (!found) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "llama.cpp has no library for this instruction set alone",
          .where = folder.string(),
          .expected = "libggml-cpu-" + kind,
          .todo = "Unset DOPPLER_CPU"});
  }
  for (const fs::path& file : others) fs::remove(file, ec);
  write_file_whole(mark, "");
  return folder;
}

// GGUF files made for the comparison; gone with it.
struct Exports {
  explicit Exports(const fs::path& root) : folder(root / ("models-" + random_name())) {
    std::error_code ec;
    if (fs::create_directory(folder, ec)) return;
    fail({.code = ErrorCode::kFile,
          .what = "no folder for the models can be made",
          .where = folder.string(),
          .got = ec.message()});
  }
  ~Exports() {
    std::error_code ec;
    fs::remove_all(folder, ec);
  }
  Exports(const Exports&) = delete;
  Exports& operator=(const Exports&) = delete;
  fs::path folder;
};

void run_peers(PeersArguments& arguments) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto progress = [&](std::string_view line) {
    if (terminal) show_status(line);
  };
  const fs::path script = find_script(), peers = install(progress);
  if (arguments.install_only) {
    progress("");
    fmt::print("{}\n", peers.string());
    return;
  }
  PeerWorkload& workload = arguments.workload;
  if (workload.threads == 0) workload.threads = available_cores();
  const fs::path model = fs::absolute(local_model(arguments.model));
  const bool gguf = is_gguf(model);
  const fs::path here = held_back(peers);
  const Exports exports(peers);
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
