#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/say.h"
#include "base/version.h"
#include "cli/debug_page.h"
#include "cli/debug_variants.h"
#include "cli/open_model.h"
#include "cli/peer.h"
#include "cli/verbs.h"
#include "debug/health.h"
#include "debug/probe.h"
#include "debug/report.h"
#include "engine/backend.h"

namespace doppler {
namespace {

constexpr const char* kUsualPrompt = "The color of the sky is";

struct DebugArguments {
  std::string model, prompt, prompt_file, backend = "auto", compare, dump, bundle, html, head, kernel;
  std::vector<int32_t> prompt_ids;
  std::vector<int> layers, positions;
  std::vector<std::string> watch, probes;
  int device = -1, threads = 0, context = 0, tokens = 0;
  uint64_t gpu_memory = 0;
  std::vector<std::string> adapters;
  double bound = 0;
  bool chat = false, all = false, json = false, nan_check = false, no_verify = false;
};

std::vector<int32_t> prompt_of(const DebugArguments& a, const LoadedModel& model, const Stages* reference) {
  const int given = !a.prompt.empty() + !a.prompt_file.empty() + !a.prompt_ids.empty();
  if (given > 1)
    fail({.code = ErrorCode::kUsage,
          .what = "the prompt was given more than once",
          .where = "debug",
          .expected = "one prompt"});
  if (!a.prompt_ids.empty()) return a.prompt_ids;
  if (given == 0 && reference) {
    if (!reference->prompt_ids.empty()) return reference->prompt_ids;
    fail({.code = ErrorCode::kUsage,
          .what = "the reference does not say which prompt it is of",
          .where = a.compare,
          .todo = "Give that prompt, with --prompt or --prompt-ids"});
  }
  std::string text = a.prompt_file.empty() ? a.prompt : read_input(a.prompt_file);
  if (given == 0) text = kUsualPrompt;
  const Tokenizer& tokenizer = model.need_tokenizer();
  if (!a.chat) return tokenizer.encode(text, true);
  if (!model.chat_template || !model.chat_template->present()) {
    fail({.code = ErrorCode::kUsage,
          .what = "this model has no chat template",
          .where = model.config.id,
          .todo = "Leave --chat out"});
  }
  const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
  return tokenizer.encode(model.chat_template->render(messages, Json(), true), false);
}

bool is_backend(const std::string& word) { return word == "cpu" || word == "ref" || word == "webgpu"; }

// A folder written by --dump, a checkpoint's folder with its reference, or the file itself.
Stages read_reference(const std::string& word) {
  const std::filesystem::path path = word;
  std::error_code ignored;
  for (const char* name : {"stages.safetensors", "reference.safetensors"}) {
    if (std::filesystem::is_directory(path, ignored) && std::filesystem::exists(path / name, ignored)) {
      return read_stages(path / name);
    }
  }
  return read_stages(path);
}

std::string quoted_piece(const LoadedModel& model, int32_t id) {
  return model.tokenizer ? model.tokenizer->decode(std::vector<int32_t>{id}, false) : fmt::format("<{}>", id);
}

// The tokens of --watch: the first token of each text.
std::vector<std::pair<std::string, int32_t>> watched(const DebugArguments& a, const LoadedModel& model) {
  std::vector<std::pair<std::string, int32_t>> list;
  for (const std::string& text : a.watch) {
    const std::vector<int32_t> ids = model.need_tokenizer().encode(text, false);
    if (ids.empty()) fail({.code = ErrorCode::kUsage, .what = "no token to watch", .where = "--watch", .got = text});
    if (ids.size() > 1) {
      say("'{}' is {} tokens; the first, '{}', is watched", text, ids.size(), quoted_piece(model, ids[0]));
    }
    list.emplace_back(text, ids[0]);
  }
  return list;
}

Json logits_json(const DebugArguments& a, const LoadedModel& model, std::span<const float> logits) {
  Json json = {{"top", Json::array()}, {"watch", Json::array()}};
  for (const ScoredToken& s : likeliest(logits, 5)) {
    json["top"].push_back({{"id", s.id}, {"text", quoted_piece(model, s.id)}, {"logit", s.logit}});
  }
  for (const auto& [text, id] : watched(a, model)) {
    const float logit = logits[static_cast<size_t>(id)];
    const auto rank = std::count_if(logits.begin(), logits.end(), [&](float other) { return other > logit; });
    json["watch"].push_back({{"text", text}, {"id", id}, {"logit", logit}, {"rank", rank + 1}});
  }
  return json;
}

void print_logits(const Json& json) {
  fmt::print("\n{:<26}{:>8}{:>12}\n", "likeliest next", "id", "logit");
  for (const Json& t : json["top"]) {
    fmt::print("{:<26}{:>8}{:>12.4f}\n", fmt::format("'{}'", visible(t["text"].get<std::string>())), t["id"].get<int>(),
               t["logit"].get<double>());
  }
  fmt::print("TOP5");
  for (const Json& t : json["top"]) {
    fmt::print(" '{}'={:.4f}", visible(t["text"].get<std::string>()), t["logit"].get<double>());
  }
  fmt::print("\n");
  for (const Json& w : json["watch"]) {
    fmt::print("{:<26}{:>8}{:>12.4f}  (place {})\n", fmt::format("watched '{}'", visible(w["text"].get<std::string>())),
               w["id"].get<int>(), w["logit"].get<double>(), w["rank"].get<int>());
  }
}

void print_json(const Json& json) { fmt::print("{}\n", json.dump(1)); }

// SHA-256 of an artefact's manifest, which holds those of its shards; empty for a model of another kind.
std::string artefact_hash(const std::filesystem::path& model) {
  const std::filesystem::path manifest = model / "manifest.json";
  if (!file_exists(manifest)) return "";
  const std::string text = read_text_file(manifest);
  return sha256_hex(std::as_bytes(std::span(text)));
}

// What a bundle says beside its stages.
Json bundle_json(const LoadedModel& model, const BackendChoice& backend, const KernelOf& kernel) {
  Json kernels = Json::object();
  for (const Step& step : model.plan.steps) {
    if (const std::string name = kernel(step); !name.empty()) kernels[step.name] = name;
  }
  return {{"model", model.config.id}, {"quantization", model.quantization},  {"version", kVersion},
          {"backend", backend.name},  {"device", {{"name", backend.about}}}, {"kernels", std::move(kernels)}};
}

// What a key of a stranger's bundle says, fit for a terminal.
std::string told(const Json& bundle, const char* key) {
  const Json* value = find(bundle, key);
  return value && value->is_string() ? visible(value->get<std::string>()) : "unknown";
}

void describe_bundle(const Stages& sent, const std::string& artefact, const LoadedModel& model) {
  const Json* device = find(sent.bundle, "device");
  fmt::print("A bundle of {} {}, {} on {}, Doppler {}\n", told(sent.bundle, "model"), told(sent.bundle, "quantization"),
             told(sent.bundle, "backend"), device && device->is_object() ? told(*device, "name") : "unknown",
             told(sent.bundle, "version"));
  if (find(sent.bundle, "agent")) fmt::print("{}\n", told(sent.bundle, "agent"));
  if (sent.artefact != artefact) {
    fmt::print("Its artefact is another than {}: {}… there, {}… here. What differs may be the weights.\n",
               model.config.id, visible(sent.artefact.substr(0, 12)), artefact.substr(0, 12));
  }
  fmt::print("\n");
}

void write_dump(const std::string& folder, const Stages& run, const LoadedModel& model) {
  FolderWriter writer{std::filesystem::path(folder)};
  write_stages(writer.path() / "stages.safetensors", run);
  const Json about = {{"model", model.config.id},
                      {"quantization", model.quantization},
                      {"backend", run.source},
                      {"prompt_ids", run.prompt_ids}};
  write_file_whole(writer.path() / "stages.json", about.dump(1) + "\n");
  writer.commit();
}

// What can be told without a reference.
void look_for_anomalies(const DebugArguments& a, const LoadedModel& model, const Stages& run, Json& json) {
  json["shape"] = shape_of_model(model.config);
  json["like"] = kind_of_model(model.config);
  json["anomalies"] = Json::array();
  const std::vector<Anomaly> anomalies = find_anomalies(run, model.config, model.plan);
  for (const Anomaly& anomaly : anomalies) {
    json["anomalies"].push_back({{"stage", anomaly.step},
                                 {"position", anomaly.position},
                                 {"what", anomaly.what},
                                 {"expected", anomaly.expected},
                                 {"got", anomaly.got}});
  }
  if (a.json) return;
  const Json* top = find(json, "top");
  const std::string next = top && !top->empty() ? visible((*top)[0]["text"].get<std::string>()) : "";
  fmt::print("{}", health_table(run, model.config, next));
  for (const Anomaly& anomaly : anomalies) {
    fmt::print("{}{}\n", &anomaly == anomalies.data() ? "\nAnomalies\n  " : "  ", anomaly.text());
  }
}

// The run with its taps; --nan-check ends it at the first value that is not finite.
Stages run_watched(const DebugArguments& a, const LoadedModel& model, Executor& executor,
                   std::span<const int32_t> prompt, const TapSteps& steps) {
  Tap watch;
  const TapSteps traced = traced_steps(model.plan);
  if (a.nan_check || !traced.empty()) {
    watch = [&a, &traced, lines = trace_tap()](const Step& step, std::span<const float> data, int tokens,
                                               int position) {
      if (traced.count(step.name) > 0) lines(step, data, tokens, position);
      if (!a.nan_check) return;
      if (const auto found = first_not_finite(step, data, tokens, position)) throw NotFinite(*found);
    };
  }
  try {
    return capture_run(executor, model.plan, prompt, steps, {.generate = a.tokens, .watch = watch});
  } catch (const NotFinite& found) {
    if (a.json) {
      print_json({{"model", model.config.id},
                  {"backend", executor.name()},
                  {"prompt_ids", std::vector<int32_t>(prompt.begin(), prompt.end())},
                  {"not_finite", not_finite_json(found)}});
    } else {
      fmt::print(
          "The run was stopped at its first value that is not finite: {} at position {}, column {} is {} ({} in "
          "that step)\n",
          found.stage, found.position, found.column, found.value, found.count);
    }
    throw CheckFailed{};
  }
}

void debug(const DebugArguments& a) {
  const std::string path = local_model(a.model).string(), artefact = artefact_hash(path);
  const LoadedModel model = open_model(path);
  if (a.tokens > 0) model.need_text();
  std::unique_ptr<Stages> reference;
  const bool variants = a.compare == "variants", peer = a.compare == "llama.cpp";
  if (!a.compare.empty() && !is_backend(a.compare) && !variants && !peer)
    reference = std::make_unique<Stages>(read_reference(a.compare));
  std::vector<int32_t> prompt = prompt_of(a, model, reference.get());
  if (reference && !reference->prompt_ids.empty() && reference->prompt_ids != prompt) {
    fail({.code = ErrorCode::kUsage,
          .what = "the reference was made from another prompt",
          .where = a.compare,
          .todo = "Leave the prompt out: the reference knows its own"});
  }
  std::vector<Probe> probes;
  for (const std::string& text : a.probes) {
    for (Probe& one : parse_probe(text, model.plan, a.layers)) probes.push_back(std::move(one));
  }
  const bool sent = reference && reference->bundle.is_object();
  const TapSteps steps = steps_of_layers(model.plan, a.layers);
  const int context = std::max(a.context, static_cast<int>(prompt.size()) + a.tokens);
  const BackendChoice backend = choose_backend(a.backend, a.device);
  if (info_enabled()) say_dim("[{} on {}: {}; {} tokens]", model.config.id, backend.name, backend.about, prompt.size());
  const ExecutorOptions options{.context = context,
                                .threads = a.threads,
                                .device = a.device,
                                .gpu_memory = a.gpu_memory,
                                .adapters = load_adapters(model, adapter_specs(a.adapters)),
                                .kernels = parse_kernel_wishes(a.kernel)};
  if (variants) {
    if (!debug_variants(model, backend, options, prompt, a.bound, !a.no_verify, a.json)) throw CheckFailed{};
    return;
  }
  const auto executor = make_executor(model, backend.name, options, !a.no_verify);
  Stages run = run_watched(a, model, *executor, prompt, steps);
  run.artefact = artefact;
  prompt = run.prompt_ids;  // and what was generated
  KernelOf kernel = [&](const Step& step) { return executor->kernel_of(step); };
  if (!a.bundle.empty()) {
    run.bundle = bundle_json(model, backend, kernel);
    write_stages(a.bundle, run);
    run.bundle = nullptr;
  }
  if (sent) {  // the bundle's run is what is in question, and this machine's is what it is held against
    std::swap(run, *reference);
    kernel = [&run](const Step& step) {
      const Json* kernels = find(run.bundle, "kernels");
      const Json* name = kernels && kernels->is_object() ? find(*kernels, step.name.c_str()) : nullptr;
      return name && name->is_string() ? visible(name->get<std::string>()) : "";
    };
    if (!a.json) describe_bundle(run, artefact, model);
  }
  if (peer) {
    reference = std::make_unique<Stages>(peer_logits(path, model, prompt, a.threads));
  } else if (!a.compare.empty() && !reference) {
    ExecutorOptions chosen_by_itself = options;
    chosen_by_itself.kernels.clear();
    const auto other = make_executor(model, a.compare, chosen_by_itself, false);
    reference = std::make_unique<Stages>(capture_run(*other, model.plan, prompt, steps));
  }
  Json json = Json::object();
  bool faulty = false;
  const std::vector<int> positions = a.positions.empty() ? std::vector<int>{-1} : a.positions;
  std::unique_ptr<Comparison> comparison;
  if (reference) {
    const bool same_weights =
        is_backend(a.compare) || peer || (!artefact.empty() && run.artefact == reference->artefact);
    Bounds bounds = bounds_for(model.weights, same_weights);
    if (a.bound > 0) bounds = {a.bound, a.bound, std::max(0.5, 10 * a.bound)};
    const DebuggedModel debugged{model.config, model.plan, model.weights, context, options.adapters.get()};
    comparison = std::make_unique<Comparison>(compare_stages(run, *reference, debugged, bounds, a.all));
    faulty = !comparison->first_bad.empty() || comparison->stages.empty();
    json = comparison_json(*comparison, model.plan, kernel);
    if (!a.json) fmt::print("{}", comparison_table(*comparison, run, model.plan, kernel));
    if (!a.json && peer && run.find("logits")) {
      fmt::print("{}", likeliest_table(*run.find("logits"), *reference->find("logits"),
                                       [&](int32_t id) { return quoted_piece(model, id); }));
    }
  } else {
    json["stages"] = statistics_json(run, positions);
    if (!a.json) fmt::print("{}", statistics_table(run, model.plan, positions));
  }
  json["model"] = model.config.id;
  json["backend"] = backend.name;
  json["prompt_ids"] = prompt;
  if (sent) json["bundle"] = run.bundle;
  const Stage* logits = run.find("logits");
  if (logits) json.update(logits_json(a, model, logits->row(logits->rows() - 1)));
  if (logits && !a.json) print_logits(json);
  if (!reference) look_for_anomalies(a, model, run, json);
  if (a.nan_check) {
    json["not_finite"] = nullptr;
    if (!a.json) fmt::print("\nEvery value is finite.\n");
  }
  if (!probes.empty()) json["probes"] = Json::array();
  for (const Probe& p : probes) {
    for (const ProbedValue& v : probe(p, run)) {
      json["probes"].push_back(
          {{"id", p.id}, {"stage", v.stage}, {"position", v.position}, {"dim", v.column}, {"value", v.value}});
      if (a.json) continue;
      fmt::print("{}{}[{}, {}] = {:.9g}\n", p.id.empty() ? "" : p.id + ": ", v.stage, v.position, v.column, v.value);
    }
  }
  if (!a.dump.empty()) write_dump(a.dump, run, model);
  if (!a.html.empty()) write_debug_page(a.html, a.head, model, backend, run, comparison.get(), a.compare);
  if (a.json) print_json(json);
  if (faulty) throw CheckFailed{};
}

}  // namespace

void add_debug(Verb app) {
  auto a = std::make_shared<DebugArguments>();
  Verb verb = app.add_verb("debug", "Look into a run, and name the first step that is wrong");
  verb.add_option("model,-m,--model", a->model, kModelHelp);
  verb.add_option("--prompt", a->prompt,
                  fmt::format("The text, as it is (default: the reference's, or '{}')", kUsualPrompt));
  verb.add_option("--prompt-file", a->prompt_file, "Read the text from a file");
  verb.add_option("--prompt-ids", a->prompt_ids, "The text as token ids: 2,5,9").delimiter(',').one_word();
  verb.add_flag("--chat", a->chat, "Put the prompt through the model's chat template");
  verb.add_option("--compare", a->compare,
                  "cpu, ref, webgpu, variants (each variant of the backend's kernels, or those of --kernel, against "
                  "plain code), llama.cpp (its logits), a folder written by --dump, or a reference.safetensors: stop "
                  "at the first stage "
                  "that differs; or a bundle, which is then held against this machine");
  verb.add_option("--bound", a->bound, "Relative error a step may add (default: what rounding explains)").positive();
  verb.add_flag("--all", a->all, "Compare every stage; do not stop at the first that differs");
  verb.add_option("--layers", a->layers, "Tap these layers only: 0,12,25").delimiter(',').one_word();
  verb.add_option("--position", a->positions, "Positions of the table; negative count from the end")
      .delimiter(',')
      .one_word();
  verb.add_option("--watch", a->watch, "Print this token's logit (repeatable)").repeatable().one_word();
  verb.add_option(
          "--probe", a->probes,
          "Exact values: 'stage=logits,tokens=-1,dims=476,3868' or 'stage=q_rope,layers=0,3,dims=0' (repeatable)")
      .repeatable()
      .one_word();
  verb.add_option("--tokens", a->tokens, "Go on for so many tokens, and look into those too").not_negative();
  verb.add_flag("--nan-check", a->nan_check,
                "Stop at the first value that is not finite and name it; exit 1 if there is one");
  verb.add_option("--dump", a->dump, "Write every tapped stage to this folder, for a later --compare");
  verb.add_option("--bundle", a->bundle,
                  "Write the run to one file that somebody else's --compare opens: stages, prompt, device, kernels");
  verb.add_option("--html", a->html, "Write one page with charts");
  verb.add_option("--head", a->head, "The head whose attention the page shows: LAYER:HEAD").default_text("0:0");
  verb.add_option("--backend", a->backend, "auto, webgpu, cpu or ref").show_default();
  verb.add_option("--device", a->device, "Which GPU, as doppler devices counts them");
  add_gpu_memory(verb, a->gpu_memory);
  add_lora(verb, a->adapters);
  add_kernel(verb, a->kernel);
  verb.add_option("--threads", a->threads, "Threads (default: one per core)");
  verb.add_option("--context", a->context, "Tokens to make room for (default: the prompt's)");
  add_no_verify(verb, a->no_verify);
  verb.finish(a->json,
              "Exit code 1 when something is out of bounds.\nExamples:\n"
              "  doppler debug models/tiny --prompt \"The color of the sky is\" --watch \" blue\"\n"
              "  doppler debug models/tiny --backend webgpu --compare ref\n"
              "  doppler debug MODEL --compare reference.safetensors --html out.html",
              [a] { debug(*a); });
}

}  // namespace doppler
