// list, du and rm: what the caches of models hold.
#include "hub/cache.h"
#include "base/say.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "cli/artefact_report.h"
#include "cli/verbs.h"

namespace doppler {
namespace {

struct CacheArguments {
  std::string model;
  bool json = false, dry_run = false;
};

std::string joined(const std::vector<std::string>& words) {
  return words.empty() ? "-" : fmt::format("{}", fmt::join(words, ", "));
}

void list(const CacheArguments& arguments) {
  const std::vector<CachedModel> models = cached_models(settings_from_environment());
  if (arguments.json) {
    Json out = Json::array();
    for (const CachedModel& model : models) {
      out.push_back({{"model", model.name},
                     {"revisions", model.revisions},
                     {"contents", model.contents},
                     {"bytes", model.bytes()},
                     {"unfinished", model.unfinished}});
    }
    fmt::print("{}\n", out.dump(1));
    return;
  }
  size_t width = 5;
  for (const CachedModel& model : models) width = std::max(width, model.name.size());
  for (const CachedModel& model : models) {
    fmt::print("{:<{}}  {:>8}  {}  {}{}\n", visible(model.name), width, megabytes(model.bytes()),
               visible(joined(model.revisions)), visible(joined(model.contents)),
               model.unfinished ? "  (not all of it is here)" : "");
  }
  if (models.empty()) say("no models are here; doppler pull hf:org/repo fetches one");
}

void du(const CacheArguments& arguments) {
  const HubSettings settings = settings_from_environment();
  CachedModel all;
  Json models = Json::array();
  if (!arguments.json) fmt::print("{:>9} {:>9} {:>9} {:>9}  model\n", "all", "fetched", "begun", "converted");
  const auto line = [](const CachedModel& model, const std::string& name) {
    fmt::print("{:>9} {:>9} {:>9} {:>9}  {}\n", megabytes(model.bytes()), megabytes(model.blobs),
               megabytes(model.unfinished), megabytes(model.artefacts), visible(name));
  };
  for (const CachedModel& model : cached_models(settings)) {
    all.blobs += model.blobs;
    all.unfinished += model.unfinished;
    all.artefacts += model.artefacts;
    if (!arguments.json) line(model, model.name);
    models.push_back(
        {{"model", model.name}, {"fetched", model.blobs}, {"begun", model.unfinished}, {"converted", model.artefacts}});
  }
  if (arguments.json) {
    fmt::print("{}\n", Json{{"hub", settings.hub.string()},
                            {"own", settings.own.string()},
                            {"bytes", all.bytes()},
                            {"models", std::move(models)}}
                           .dump(1));
    return;
  }
  line(all, fmt::format("in {} and {}", settings.hub.string(), settings.own.string()));
}

void rm(const CacheArguments& arguments) {
  const HubSettings settings = settings_from_environment();
  const ModelName name = parse_model_name(arguments.model, settings.endpoint);
  if (name.kind == ModelName::Kind::kPath) {
    fail({.code = ErrorCode::kUsage,
          .what = "only models in the cache are removed",
          .where = arguments.model,
          .expected = "hf:org/repo or an address",
          .todo = "doppler list shows what is there"});
  }
  const bool revision = arguments.model.find('@') != std::string::npos;
  const uint64_t bytes = remove_cached(settings, name, revision, arguments.dry_run);
  fmt::print("{}{} {}\n", name.id(), arguments.dry_run ? " would free" : " is gone, which frees", megabytes(bytes));
}

}  // namespace

void add_cache(Verb app) {
  auto a = std::make_shared<CacheArguments>();
  Verb list_verb = app.add_verb("list", "The models that were fetched");
  list_verb.add_flag("--json", a->json, "Print a JSON list");
  list_verb.footer("Example:\n  doppler list");
  list_verb.callback([a] { list(*a); });

  Verb du_verb = app.add_verb("du", "How much of the disk the models take that were fetched and converted");
  du_verb.finish(a->json, "Example:\n  doppler du", [a] { du(*a); });

  Verb rm_verb = app.add_verb("rm", "Remove a model that was fetched");
  rm_verb
      .add_option("model", a->model,
                  "hf:org/repo with all that belongs to it, hf:org/repo@revision, hf:org/repo:file, or an address")
      .required();
  rm_verb.add_flag("--dry-run", a->dry_run, "Only tell what would be free");
  rm_verb.footer("Example:\n  doppler rm hf:org/repo");
  rm_verb.callback([a] { rm(*a); });
}

}  // namespace doppler
