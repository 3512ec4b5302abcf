#include "cli/open_model.h"

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

void add_gpu_memory(Verb verb, uint64_t& bytes) {
  verb.add_option("--gpu-memory", bytes,
                  "The most that a model may take on a GPU: bytes, 512MiB or 8GiB; experts beyond that are fetched "
                  "when they are chosen")
      .byte_size()
      .check([](const std::string& value) { return value == "0" ? "must be more than nothing" : ""; });
}

}  // namespace doppler
