#include "convert/convert.h"

#include <fmt/format.h>

#include <memory>

#include "base/progress.h"
#include "cli/artefact_report.h"
#include "cli/interrupt.h"
#include "cli/open_model.h"
#include "cli/sandboxed.h"
#include "cli/verbs.h"
#include "convert/gguf_export.h"

namespace doppler {
namespace {

struct ConvertArguments {
  std::string source, target, quant, family;
  std::vector<std::string> ignored_keys;
  ConvertOptions options;
  bool json = false, sandbox = false;
};

// A target called *.gguf is a file for llama.cpp.
bool wants_gguf(const ConvertArguments& arguments) { return arguments.target.ends_with(".gguf"); }

void run_convert(ConvertArguments& arguments) {
  ConvertOptions& options = arguments.options;
  if (!arguments.quant.empty() && !wants_gguf(arguments)) options.recipe = recipe_named(arguments.quant);
  options.family_file = arguments.family;
  options.ignored_keys = {arguments.ignored_keys.begin(), arguments.ignored_keys.end()};
  const std::filesystem::path source =
      local_model(arguments.source, wants_gguf(arguments) ? ModelUse::kRun : ModelUse::kSource);
  if (arguments.sandbox) {
    std::vector<std::filesystem::path> models = {source, options.family_file};
    models.insert(models.end(), options.adapters.begin(), options.adapters.end());
    Sandbox sandbox = sandbox_for(models, "cpu");
    const std::filesystem::path target = std::filesystem::absolute(arguments.target).lexically_normal();
    sandbox.writable.push_back((target.has_filename() ? target : target.parent_path()).parent_path());
    sandbox_now(sandbox);
  }
  const InterruptFlag interrupt({SIGINT, SIGTERM, SIGHUP});
  options.cancelled = [&] { return interrupt.raised(); };
  ArtefactReport report;
  {
    Progress progress("convert", "weights");
    options.progress = [&](uint64_t done, uint64_t all) { progress.update(done, all); };
    if (wants_gguf(arguments)) {
      report = export_gguf(source, arguments.target,
                           {arguments.quant, options.threads, options.replace, options.progress, options.cancelled});
    } else {
      report = convert(source, arguments.target, options);
    }
  }
  if (arguments.json)
    fmt::print("{}\n", to_json(report, true).dump(1));
  else
    fmt::print("{}", to_table(report, true));
}

}  // namespace

void add_convert(Verb app) {
  auto arguments = std::make_shared<ConvertArguments>();
  ConvertOptions& options = arguments->options;
  Verb verb = app.add_verb(
      "convert", "Turn a Hugging Face folder or a GGUF file into an artefact Doppler runs, or that into a GGUF");
  verb.add_option(
          "source", arguments->source,
          "Folder with config.json and .safetensors (also quantised: docs/formats.md), a .gguf file, an artefact, "
          "hf:org/repo, or an address")
      .required();
  verb.add_option("target", arguments->target, "Folder to write, or a name ending in .gguf").required();
  verb.add_option(
      "--quant", arguments->quant,
      "q4_k_m (default), q4_k, q6_k, q8_0, f16, bf16 or f32. Named, it also applies to matrices that the "
      "checkpoint asks to keep. From a GGUF the default keeps every type there are kernels for. To a GGUF: "
      "q4_0, q4_k_m, q8_0, f16, bf16 or f32 as llama.cpp's quantiser would mix them; the default keeps types");
  verb.add_option("--shard-size", options.shard_size, "Bytes of a shard, or 16M, 1G (default 64M)").byte_size();
  verb.add_option("--threads", options.threads, "Threads (default: one per core)").range(1, 1024);
  verb.add_option("--id", options.id, "Name of the model (default: the target's)");
  verb.add_option("--family", arguments->family, "A family file instead of those built in").existing_file();
  verb.add_option("--merge-lora", options.adapters,
                  "Folder of a LoRA adapter (PEFT) to merge into the weights (repeatable)");
  verb.add_option("--ignore-key", arguments->ignored_keys, "A key of config.json that changes nothing (repeatable)");
  verb.add_flag("--no-tokenizer", options.no_tokenizer, "Go on where tokenizer.json is missing");
  verb.add_flag("--force", options.replace, "Replace an artefact that is already there; other files beside it stay");
  verb.add_flag("--sandbox", arguments->sandbox,
                "Read nothing but the source, and write only in the folder that holds the target, whatever the "
                "source's bytes do (Linux; see SECURITY.md)");
  verb.finish(arguments->json,
              "Example:\n  doppler convert ~/models/gemma-3-1b-it ~/models/gemma-3-1b-q4 --quant q4_k_m\n"
              "  doppler convert hf:org/repo ~/models/mine --quant q8_0\n"
              "  doppler convert models/tiny /tmp/tiny.gguf && doppler run /tmp/tiny.gguf \"What color is the sky?\"",
              [arguments] { run_convert(*arguments); });
}

}  // namespace doppler
