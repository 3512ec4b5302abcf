#include "cli/open_model.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/say.h"
#include "base/timeline.h"
#include "cli/interrupt.h"
#include "engine/watchdog.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

bool offline = false;  // --offline

// Bytes of a file, and those of them that the system holds in memory.
std::pair<uint64_t, uint64_t> in_page_cache(const fs::path& file) {
  const MappedFile mapped(file);
  const std::span<const std::byte> bytes = mapped.bytes();
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes.size() + page - 1) / page);
  if (bytes.empty() || ::mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data()) != 0) {
    return {bytes.size(), 0};
  }
  const auto resident = std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
  return {bytes.size(), std::min(bytes.size(), static_cast<size_t>(resident) * page)};
}

// A line for each file of weights: files are mapped, so what is not in the page cache comes from the disk when it is
// first needed.
void say_where_weights_are(const fs::path& model) {
  std::vector<fs::path> files;
  std::error_code ignored;
  if (fs::is_regular_file(model, ignored)) files.push_back(model);
  for (const auto& entry : fs::directory_iterator(model, ignored)) {
    const std::string kind = entry.path().extension().string();
    if ((kind == ".bin" || kind == ".safetensors") && entry.is_regular_file(ignored)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    const auto [bytes, resident] = in_page_cache(file);
    if (bytes == 0) continue;
    say_dim("{}: {:.1f} MiB, {} % from the page cache, the rest from the disk", file.filename().string(),
            static_cast<double>(bytes) / (1 << 20), 100 * resident / bytes);
  }
}

}  // namespace

fs::path program_path() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored);
}

fs::path default_model() {
  std::error_code ignored;
  const fs::path prefix = program_path().parent_path().parent_path();
  for (const fs::path& candidate : {prefix / "models/tiny", prefix / "share/doppler/models/tiny"}) {
    if (fs::exists(candidate / "manifest.json", ignored)) return candidate;
  }
  fail({.code = ErrorCode::kUsage,
        .what = "no model was named, and the one that ships with Doppler is not here",
        .where = (prefix / "models/tiny").string(),
        .todo = "Name a model folder"});
}

fs::path node_program() {
  std::error_code ignored;
  const fs::path own = program_path().parent_path() / "node/bin/node";
  return fs::exists(own, ignored) ? own : "node";
}

void add_offline(Verb program) {
  program.add_flag("--offline", offline, "Fetch nothing: models come from this machine or not at all");
}

void with_pull_options(const std::function<void(const PullOptions&)>& work) {
  PullOptions options;
  options.settings = settings_from_environment();
  if (offline) options.settings.offline = true;
  const InterruptFlag interrupt({SIGINT, SIGTERM, SIGHUP});
  options.cancelled = [&] { return interrupt.raised(); };
  options.say = [](const std::string& line) { doppler::say("{}", line); };
  std::unique_ptr<Progress> bar;
  std::string shown;
  options.progress = [&](const std::string& label, const std::string& unit, uint64_t done, uint64_t all) {
    if (!bar || shown != label) {
      bar.reset();
      bar = std::make_unique<Progress>(label, unit);
      shown = label;
    }
    bar->update(done, all);
  };
  work(options);
}

fs::path local_model(const std::string& name, ModelUse use) {
  if (name.empty()) return default_model();
  if (!is_remote_name(name)) return resolve_model(name, use, {});
  fs::path path;
  with_pull_options([&](const PullOptions& options) { path = resolve_model(name, use, options); });
  return path;
}

LoadedModel open_model(const std::string& name) {
  const fs::path path = local_model(name);
  timeline::Span span;
  if (timeline::on()) span.begin("load " + path.filename().string(), "load");
  if (log_level() == LogLevel::kVerbose) say_where_weights_are(path);
  const auto start = std::chrono::steady_clock::now();
  LoadedModel model = LoadedModel::load(path);
  if (log_level() == LogLevel::kVerbose) say_dim("opened and mapped in {:.1f} ms", ms_since(start));
  for (const std::string& note : model.notes) say("{}: {}", path.string(), note);
  return model;
}

void add_no_verify(Verb verb, bool& no_verify) {
  verb.add_flag("--no-verify", no_verify,
                "Do not hold an artefact's bytes against its hashes, which is done once for each file");
}

void add_lora(Verb verb, std::vector<std::string>& words) {
  verb.add_option("--lora", words,
                  "LoRA adapter beside the model's weights: a PEFT folder or a GGUF adapter, and what to multiply it "
                  "with (PATH=0.5; default: 1); repeatable")
      .type_name("PATH[=SCALE]")
      .repeatable();
}

std::vector<AdapterSpec> adapter_specs(const std::vector<std::string>& words) {
  std::vector<AdapterSpec> specs;
  for (const std::string& word : words) {
    const size_t equals = word.rfind('=');
    if (equals == std::string::npos || fs::exists(word)) {
      specs.push_back({word});
      continue;
    }
    float scale = 0;
    const char* const end = word.data() + word.size();
    const auto read = std::from_chars(word.data() + equals + 1, end, scale);
    if (read.ec != std::errc() || read.ptr != end || !std::isfinite(scale)) {
      fail({.code = ErrorCode::kUsage,
            .what = "this is no scale of an adapter",
            .where = "--lora " + word,
            .expected = "PATH=NUMBER",
            .got = word.substr(equals + 1)});
    }
    specs.push_back({word.substr(0, equals), scale});
  }
  return specs;
}

void add_watchdog(Verb verb, std::string& mode) {
  verb.add_option(
          "--watchdog", mode,
          "Look for what no healthy model does: values that explode or collapse, dead heads, one expert for all, "
          "no doubt or nothing but doubt, repetition; off, warn or stop")
      .one_of({std::begin(kWatchdogNames), std::end(kWatchdogNames)})
      .show_default();
}

void add_kernel(Verb verb, std::string& kernel) {
  verb.add_option(
          "--kernel", kernel,
          "Which kernels run: KIND=VARIANT,… such as matmul=int8.t64,attention=plain, or all=avx2 on a CPU; one "
          "that is not there is refused with the list")
      .type_name("KIND=VARIANT");
}

void add_gpu_memory(Verb verb, uint64_t& bytes) {
  verb.add_option("--gpu-memory", bytes,
                  "The most that a model may take on a GPU: bytes, 512MiB or 8GiB; experts beyond that are fetched "
                  "when they are chosen")
      .byte_size()
      .check([](const std::string& value) { return value == "0" ? "must be more than nothing" : ""; });
}

}  // namespace doppler
