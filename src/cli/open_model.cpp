#include "cli/open_model.h"

#include <charconv>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "base/say.h"
#include "base/timeline.h"
#include "cli/interrupt.h"

namespace doppler {
namespace fs = std::filesystem;
namespace {

bool offline = false;  // --offline

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
  LoadedModel model = LoadedModel::load(path);
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

void add_gpu_memory(Verb verb, uint64_t& bytes) {
  verb.add_option("--gpu-memory", bytes,
                  "The most that a model may take on a GPU: bytes, 512MiB or 8GiB; experts beyond that are fetched "
                  "when they are chosen")
      .byte_size()
      .check([](const std::string& value) { return value == "0" ? "must be more than nothing" : ""; });
}

}  // namespace doppler
