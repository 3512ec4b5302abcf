#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "cli/artefact_report.h"
#include "cli/open_model.h"
#include "cli/verbs.h"
#include "format/rdrr.h"
#include "model/weights.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::string model;
  bool no_hashes = false, json = false;
};

// What can be checked once the tensors are where the manifest says: the model's numbers against them.
void check_content(const fs::path& path, std::vector<std::string>& faults) {
  const RdrrReader reader = RdrrReader::open(path);
  const ModelConfig config = read_model_config(reader.manifest(), "manifest.json");
  Weights weights;
  for (const RdrrTensorEntry& entry : reader.entries()) {
    if (entry.slot.empty())
      faults.push_back(fmt::format("{} is there, but nothing is known by that name", entry.name));
    else
      weights.add(entry.slot, reader.tensor(entry));
  }
  for (std::string& fault : weight_faults(build_plan(config), weights)) faults.push_back(std::move(fault));
  if (const Json* tokenizer = find(reader.manifest(), "tokenizer")) {
    const std::string file = string_or(*tokenizer, "file", "tokenizer.json", "manifest.json: tokenizer");
    std::error_code ec;
    if (!fs::is_regular_file(reader.folder() / file, ec))
      faults.push_back(fmt::format("the tokenizer {} is missing", file));
  }
}

std::vector<std::string> find_faults(const fs::path& path, bool hashes, uint64_t& hashed) {
  std::vector<std::string> faults;
  try {
    Progress progress("verify", "B");
    faults = RdrrReader::verify(path, hashes, [&](uint64_t done, uint64_t all) {
      progress.update(done, all);
      hashed = done;
    });
    // Bytes that changed do not move the tensors: all but the hashes must be sound to look further.
    if (faults.empty() || (hashes && RdrrReader::verify(path, false).empty())) check_content(path, faults);
  } catch (const Failure& failure) {
    // A manifest that cannot be read is a fault; a path that is not there, or a hash we cannot compute, is an error.
    if (failure.error.code != ErrorCode::kFormat) throw;
    faults.push_back(failure.what());
  }
  return faults;
}

void run(const Arguments& arguments) {
  const fs::path path = arguments.model.empty() ? default_model() : fs::path(arguments.model);
  uint64_t hashed = 0;
  const std::vector<std::string> faults = find_faults(path, !arguments.no_hashes, hashed);
  if (arguments.json) {
    fmt::print(
        "{}\n",
        Json{{"model", path.string()}, {"sound", faults.empty()}, {"bytes_hashed", hashed}, {"faults", faults}}.dump(
            1, ' ', false, Json::error_handler_t::replace));
  } else if (faults.empty()) {
    fmt::print("{} is sound: every tensor is in its place and fits the config{}\n", path.string(),
               arguments.no_hashes ? "; hashes were not checked"
                                   : fmt::format(", {} of shards match their hashes", megabytes(hashed)));
  } else {
    fmt::print("{} has {} fault{}:\n", path.string(), faults.size(), faults.size() == 1 ? "" : "s");
    for (const std::string& fault : faults) fmt::print("  {}\n", fault);
  }
  if (!faults.empty()) throw CheckFailed{};
}

}  // namespace

void add_verify(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* verb = app.add_subcommand("verify", "Check an artefact: hashes, places and sizes, config against tensors");
  verb->add_option("model", arguments->model, "An RDRR folder (default: the model that ships with Doppler)");
  verb->add_flag("--no-hashes", arguments->no_hashes, "Leave the shards' bytes unread");
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  verb->footer(
      "Exits with 0 if the artefact is sound, with 1 and a list of faults if not.\n"
      "Example:\n  doppler verify models/tiny");
  verb->callback([arguments] { run(*arguments); });
}

}  // namespace doppler
