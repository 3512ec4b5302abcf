#include "cli/peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/say.h"
#include "base/threads.h"
#include "bench/line_process.h"
#include "cli/open_model.h"
#include "convert/gguf_export.h"
#include "debug/compare.h"
#include "debug/report.h"
#include "format/gguf.h"

namespace doppler {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPeerVersion = "3.22.1";  // of node-llama-cpp

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

double log_probability(std::span<const float> logits, int32_t token) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float logit : logits) total += std::exp(logit - highest);
  return logits[static_cast<size_t>(token)] - highest - std::log(total);
}

}  // namespace

fs::path peer_script() {
  const fs::path script = program_path().parent_path().parent_path() / "tools/peers/peer.mjs";
  if (!file_exists(script)) {
    fail({.code = ErrorCode::kFile,
          .what = "the script that drives llama.cpp is not here",
          .where = script.string(),
          .todo = "Use the program in the build folder of the sources"});
  }
  return script;
}

fs::path install_peer(const std::function<void(std::string_view)>& progress) {
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

fs::path held_back_peer(const fs::path& peers) {
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

PeerModels::PeerModels(const fs::path& root) : folder(root / ("models-" + random_name())) {
  std::error_code ec;
  if (fs::create_directory(folder, ec)) return;
  fail({.code = ErrorCode::kFile,
        .what = "no folder for the models can be made",
        .where = folder.string(),
        .got = ec.message()});
}

PeerModels::~PeerModels() {
  std::error_code ec;
  fs::remove_all(folder, ec);
}

Stages peer_logits(const fs::path& path, const LoadedModel& model, std::span<const int32_t> tokens, int threads) {
  const auto progress = [](std::string_view line) {
    if (info_enabled()) show_status(line);
  };
  const fs::path peers = install_peer(progress);
  const PeerModels made(peers);
  fs::path file = fs::absolute(path);
  if (!is_gguf(file)) {
    if (!model.artefact) {
      fail({.code = ErrorCode::kUsage,
            .what = "llama.cpp reads GGUF files, and this can be written as none",
            .where = path.string(),
            .todo = "Make an artefact of it: doppler convert"});
    }
    progress("writing the model as GGUF");
    file = made.folder / "same.gguf";
    export_gguf(path, file, {});
  }
  progress("running llama.cpp");
  LineProcess process({node_program().string(), peer_script().string()}, held_back_peer(peers));
  process.ask({{"model", file.string()},
               {"threads", threads > 0 ? threads : available_cores()},
               {"context", std::max<size_t>(64, tokens.size() + 1)}});
  const fs::path rows = made.folder / "logits";
  process.ask({{"logits", std::vector<int32_t>(tokens.begin(), tokens.end())}, {"to", rows.string()}});
  progress("");
  const std::string bytes = read_text_file(rows);
  const auto vocab = static_cast<size_t>(model.config.vocab);
  if (bytes.size() != tokens.size() * vocab * sizeof(float)) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "llama.cpp has another vocabulary for this model",
          .where = path.string(),
          .expected = fmt::format("{} logits for each of {} tokens", vocab, tokens.size()),
          .got = fmt::format("{} bytes", bytes.size())});
  }
  Stage stage{"logits", model.config.vocab, 0, std::vector<float>(tokens.size() * vocab)};
  std::memcpy(stage.data.data(), bytes.data(), bytes.size());
  Stages stages;
  stages.source = "llama.cpp";
  stages.prompt_ids.assign(tokens.begin(), tokens.end());
  stages.all.push_back(std::move(stage));
  return stages;
}

std::string likeliest_table(const Stage& run, const Stage& reference,
                            const std::function<std::string(int32_t token)>& piece) {
  const AlignedRows rows = align(run, reference);
  std::string text = fmt::format("\n{:<10}{:<22}{:>10}{:>10}  {}\n", "position", "likeliest here", "log p", "there",
                                 "likeliest there");
  for (int r = 0; r < rows.rows; ++r) {
    const auto width = static_cast<size_t>(rows.width);
    const auto here = rows.got.subspan(static_cast<size_t>(r) * width, width);
    const auto there = rows.expected.subspan(static_cast<size_t>(r) * width, width);
    const int32_t ours = likeliest(here, 1)[0].id, theirs = likeliest(there, 1)[0].id;
    const auto named = [&](int32_t id) { return fmt::format("'{}'", visible(piece(id))); };
    text +=
        fmt::format("{:<10}{:<22}{:>10.4f}{:>10.4f}  {}\n", rows.position + r, named(ours), log_probability(here, ours),
                    log_probability(there, ours), ours == theirs ? "the same" : named(theirs));
  }
  return text;
}

}  // namespace doppler
