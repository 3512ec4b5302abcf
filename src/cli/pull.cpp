#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/say.h"
#include "cli/artefact_report.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "convert/recipe.h"
#include "engine/machine.h"
#include "format/gguf.h"
#include "import/gguf_config.h"
#include "import/tensor_map.h"
#include "model/cost.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

struct PullArguments {
  std::string model;
  int connections = 4;
  bool dry_run = false, json = false, keep = false;
};

struct Needs {
  ModelConfig config;
  uint64_t weights = 0;  // bytes in memory
};

// The beginning of a file as a whole one: what lies behind it reads as zeros. A GGUF's numbers and its list of tensors
// stand at its beginning, and the reader wants every tensor inside the file.
class HeadFile {
 public:
  HeadFile(const std::string& head, uint64_t size) : fd_(::memfd_create("head", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, head.data(), head.size()) != static_cast<ssize_t>(head.size()) ||
        ::ftruncate(fd_, static_cast<off_t>(size)) != 0) {
      fail({.code = ErrorCode::kMemory, .what = "there is no room for the beginning of the file"});
    }
  }
  ~HeadFile() { ::close(fd_); }
  HeadFile(const HeadFile&) = delete;
  HeadFile& operator=(const HeadFile&) = delete;
  fs::path path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  int fd_;
};

std::optional<Needs> needs_of_gguf(const PullPlan& plan, const PullOptions& options) {
  for (const uint64_t bytes : {16u << 20, 64u << 20}) {
    const HeadFile file(fetch_head(plan, bytes, options), plan.choice.files.front().size);
    try {
      const GgufFile gguf(file.path());
      return Needs{config_from_gguf(gguf, family_for_gguf(gguf)), plan.bytes};
    } catch (const Failure& failure) {
      if (failure.error.code == ErrorCode::kUnsupported) throw;
    }
  }
  return std::nullopt;  // in parts, or a beginning longer than all that we know
}

Needs needs_of_checkpoint(const PullPlan& plan, const PullOptions& options) {
  const std::string where = plan.name.repo + "/config.json";
  const Json json = parse_json(fetch_head(plan, 16 << 20, options), where);
  const Family& family = family_for(json, where);
  Needs needs{config_from_hf(family, json, where)};
  const Recipe& recipe = recipe_named(plan.choice.recipe.empty() ? "q4_k_m" : plan.choice.recipe);
  const Plan plan_of_model = build_plan(needs.config);
  for (const WeightUse& use : weights_of(plan_of_model)) {
    if (stays_in_file(plan_of_model, use.slot)) continue;
    const TensorRule rule = rule_for(family, use.slot, layouts_of(family).front());
    const DType dtype = rule.blocks.empty()
                            ? dtype_for(recipe, rule.quant, layer_of(use.slot), needs.config.layer_count())
                            : DType::kMXFP4;
    uint64_t rows = 1;
    for (size_t i = 0; i + 1 < use.shape.size(); ++i) rows *= static_cast<uint64_t>(use.shape[i]);
    needs.weights += rows * row_bytes(dtype, static_cast<size_t>(use.shape.back()));
  }
  return needs;
}

std::optional<Needs> needs_of(const PullPlan& plan, const PullOptions& options) {
  switch (plan.choice.kind) {
    case Choice::Kind::kGguf: return needs_of_gguf(plan, options);
    case Choice::Kind::kCheckpoint: return needs_of_checkpoint(plan, options);
    case Choice::Kind::kArtefact: break;
  }
  return std::nullopt;
}

// The longest context whose keys and values fit beside the weights; 0 if not even one token's do.
int longest_context(const Needs& needs, uint64_t memory) {
  const auto fits = [&](int context) { return needs.weights + kv_cache_bytes(needs.config, context) <= memory; };
  int most = 0;
  for (int step = 1 << 30; step > 0; step /= 2) {
    if (most + step <= needs.config.max_context && fits(most + step)) most += step;
  }
  return most;
}

void dry_run(const PullArguments& arguments, const PullPlan& plan, const PullOptions& options) {
  const std::optional<Needs> needs = needs_of(plan, options);
  const uint64_t memory = machine_memory();
  const int context = needs ? std::min(default_context(needs->config), needs->config.max_context) : 0;
  const uint64_t needed = needs ? needs->weights + kv_cache_bytes(needs->config, context) : 0;
  const int most = needs ? longest_context(*needs, memory) : 0;
  if (arguments.json) {
    Json files = Json::array();
    for (const HubFile& file : plan.choice.files)
      files.push_back({{"name", file.name}, {"bytes", file.size}, {"hash", file.hash}});
    Json out = {{"model", plan.name.id()}, {"commit", plan.commit},   {"files", std::move(files)},
                {"bytes", plan.bytes},     {"missing", plan.missing}, {"memory", memory}};
    if (needs)
      out["needs"] = {{"weights", needs->weights}, {"context", context}, {"bytes", needed}, {"longest_context", most}};
    fmt::print("{}\n", out.dump(1));
    return;
  }
  fmt::print("{}{}\n", plan.name.id(), plan.commit.empty() ? "" : " at " + plan.commit.substr(0, 8));
  for (const HubFile& file : plan.choice.files) fmt::print("{:>9}  {}\n", megabytes(file.size), visible(file.name));
  fmt::print("{:>9}  in all, {} to fetch\n", megabytes(plan.bytes), plan.missing ? megabytes(plan.missing) : "nothing");
  if (!needs) return;
  if (plan.choice.kind == Choice::Kind::kCheckpoint)
    fmt::print("{:>9}  when converted ({})\n", megabytes(needs->weights),
               plan.choice.recipe.empty() ? "q4_k_m" : plan.choice.recipe);
  fmt::print("It needs {} of memory at a context of {}; this machine has {}: ", megabytes(needed), context,
             megabytes(memory));
  if (most >= needs->config.max_context)
    fmt::print("it fits, at its longest context of {}\n", most);
  else if (most > 0)
    fmt::print("it fits, up to a context of {} (of {})\n", most, needs->config.max_context);
  else
    fmt::print("it does not fit\n");
}

void run_pull(const PullArguments& arguments) {
  with_pull_options([&](const PullOptions& given) {
    PullOptions options = given;
    options.download.connections = arguments.connections;
    options.limits.connections = std::max(options.limits.connections, arguments.connections);
    const ModelName name = parse_model_name(arguments.model, options.settings.endpoint);
    const PullPlan plan = plan_pull(name, options);
    if (arguments.dry_run) return dry_run(arguments, plan, options);
    fs::path path = arguments.keep ? fetch(plan, options) : obtain(plan, ModelUse::kRun, options);
    path = fs::absolute(path);
    if (arguments.json)
      fmt::print("{}\n", Json{{"model", name.id()},
                              {"commit", plan.commit},
                              {"path", path.string()},
                              {"bytes", plan.bytes},
                              {"fetched", plan.missing}}
                             .dump(1));
    else
      fmt::print("{}\n", path.string());
  });
}

}  // namespace

void add_pull(Verb app) {
  auto a = std::make_shared<PullArguments>();
  Verb verb = app.add_verb("pull", "Fetch a model from the Hugging Face hub or an address, and say where it lies");
  verb.add_option("model", a->model, "hf:org/repo[@revision][:file or quantisation], or https://…/NAME.gguf")
      .required();
  verb.add_option("--connections", a->connections, "Pieces of a file to fetch at once").range(1, 64).show_default();
  verb.add_flag("--dry-run", a->dry_run, "Only tell what would be fetched, and whether it fits this machine's memory");
  verb.add_flag("--no-convert", a->keep, "Leave a checkpoint in safetensors as it is");
  verb.finish(
      a->json,
      "Of a repository with GGUFs the Q4_K_M is fetched, else the Q8_0, else the first; one in safetensors is fetched\n"
      "and converted. What is interrupted goes on where it stopped. docs/models.md tells where things are kept.\n"
      "Examples:\n  doppler pull hf:org/repo --dry-run\n  doppler pull hf:org/repo:Q8_0 && doppler run "
      "hf:org/repo:Q8_0 "
      "--chat",
      [a] { run_pull(*a); });
}

}  // namespace doppler
