#include "convert/synth.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "base/progress.h"
#include "cli/artefact_report.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"

namespace doppler {
namespace {

struct SynthArguments {
  std::string architecture, target, quant = "q4_k_m";
  SynthOptions options;
  bool json = false;
};

void run_synth(SynthArguments& arguments) {
  SynthOptions& options = arguments.options;
  options.recipe = recipe_named(arguments.quant);
  const Preset preset = preset_named(arguments.architecture);
  const InterruptFlag interrupt({SIGINT, SIGTERM, SIGHUP});
  options.cancelled = [&] { return interrupt.raised(); };
  ArtefactReport report;
  {
    Progress progress("synth", "weights");
    options.progress = [&](uint64_t done, uint64_t all) { progress.update(done, all); };
    report = synth(preset, arguments.target, options);
  }
  if (arguments.json)
    fmt::print("{}\n", to_json(report, false).dump(1));
  else
    fmt::print("{}", to_table(report, false));
}

std::string known_architectures() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void add_synth(Verb app) {
  auto arguments = std::make_shared<SynthArguments>();
  SynthOptions& options = arguments->options;
  Verb verb = app.add_verb("synth", "Write a model of a real architecture with random weights, to measure");
  verb.add_option("architecture", arguments->architecture, known_architectures()).required();
  verb.add_option("target", arguments->target, "Folder to write").required();
  verb.add_option("--quant", arguments->quant, "q4_k_m, q4_k, q6_k, q8_0, f16, bf16 or f32").show_default();
  verb.add_option("--seed", options.seed, "Another seed, other weights").show_default();
  verb.add_option("--shard-size", options.shard_size, "Bytes of a shard, or 16M, 1G (default 64M)").byte_size();
  verb.add_option("--threads", options.threads, "Threads (default: one per core)").range(1, 1024);
  verb.add_option("--id", options.id, "Name of the model (default: the target's)");
  verb.add_flag("--force", options.replace, "Replace an artefact that is already there; other files beside it stay");
  verb.finish(arguments->json,
              "Example:\n  doppler synth gemma-3-1b /tmp/1b && doppler bench inference /tmp/1b\n"
              "The artefact has no tokenizer: use run --prompt-ids.",
              [arguments] { run_synth(*arguments); });
}

}  // namespace doppler
